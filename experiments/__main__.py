"""`python -m experiments run | again | shares | scalability | table TASK`, `figure NAME`, `all`."""

import argparse
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from experiments.paper.settings import METHODS, PLANS
from gpn import TrainConfig, data

if TYPE_CHECKING:
    from experiments.paper.place import Place

QUICK = {"superconductor": 0.1, "superconductor-grouped": 0.1, "mnist": 0.01, "cifar10": 0.005}
GROWN = ("superconductor", "cifar10")
SHARED = tuple(task for task, plan in PLANS.items() if plan.settings_of is None)
FIGURES = ("scalability", "roc", "boxes", "shares", "active-learning")
MAX_SEED = 2**32 - 1


def main(arguments: list[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    try:
        COMMANDS[options.command](options)
    except (data.DataError, OSError) as error:  # data, results or folders that are not as needed
        _refuse(error)


def _refuse(error: object) -> NoReturn:
    """One line, and exit status 1."""
    sys.exit(f"error: {' '.join(str(error).splitlines())}")


def _table(options: argparse.Namespace) -> None:
    from experiments.paper.table import more, table

    print(f"{table(options.task)}\n\n{more(options.task)}")


def _figure(options: argparse.Namespace) -> None:
    from experiments.paper.figures import figure

    print(figure(options.name))


def _run(options: argparse.Namespace) -> None:
    _run_task(options.task, _methods(options) or PLANS[options.task].methods, options)


def _run_task(task: str, chosen: Iterable[str], options: argparse.Namespace) -> None:
    from experiments.paper.run import final, run_method, run_seed, trial

    place, setting, seed = _place(task, options), options.setting, options.seed
    for method in chosen:
        if setting is None and seed is None:
            run_method(task, method, place)
        elif setting is None:
            run_seed(task, method, seed, place)
        elif seed is None:
            trial(task, method, setting, place)
        else:
            final(task, method, setting, seed, place)


def _again(options: argparse.Namespace) -> None:
    from experiments.paper.run import run_again

    methods, place = _methods(options) or ("gpn",), _place(options.task, options)
    for method in methods:
        run_again(options.task, method, place)


def _shares(options: argparse.Namespace) -> None:
    from experiments.paper.pool_share import run_shares

    print(run_shares(options.task, _place(options.task, options), only=options.seed))


def _scalability(options: argparse.Namespace) -> None:
    from experiments.paper.scalability import run_scalability

    print(run_scalability(options.task, _place(options.task, options)))


def _all(options: argparse.Namespace) -> None:
    """Every task, then what follows from all of its runs, then tables and figures.

    What follows is left out of a quick look, and where one setting or one seed was asked for.
    Tables and figures are of the full results, so that a quick look has none.
    """
    for task, plan in PLANS.items():
        wanted = options.method or plan.methods
        _run_task(task, [name for name in plan.methods if name in wanted], options)
    if options.quick:
        return
    if options.setting is None and options.seed is None:
        _what_follows(options)
    _show()


def _what_follows(options: argparse.Namespace) -> None:
    from experiments.paper import pool_share, scalability

    wanted = options.method or METHODS
    sharing = [name for name in pool_share.METHODS if name in wanted]
    growing = [name for name in scalability.METHODS if name in wanted]
    for task in SHARED if sharing else ():
        print(pool_share.run_shares(task, _place(task, options), methods=sharing))
    for task in GROWN if growing else ():
        print(scalability.run_scalability(task, _place(task, options), methods=growing))


def _show() -> None:
    """Every table, and every figure that there are files for."""
    from experiments.paper.figures import figure
    from experiments.paper.table import more, table

    for task in PLANS:
        print(f"\n{task}\n\n{table(task)}\n\n{more(task)}")
    for name in FIGURES:
        try:
            print(figure(name))
        except FileNotFoundError as error:
            print(f"no figure {name}: {error}")


COMMANDS = {
    "table": _table,
    "figure": _figure,
    "run": _run,
    "again": _again,
    "shares": _shares,
    "scalability": _scalability,
    "all": _all,
}


def _methods(options: argparse.Namespace) -> list[str] | None:
    """Those that were asked for, if the task has them all."""
    known = PLANS[options.task].methods
    for method in options.method or ():
        if method not in known:
            _refuse(f"a method for {options.task} must be one of {', '.join(known)}, got {method}.")
    return options.method


def _place(task: str, options: argparse.Namespace) -> "Place":
    from experiments import results
    from experiments.paper.place import Place

    _check_device(options.device)
    ood = _ood(task, options)
    if not options.quick:
        return Place(results.RESULTS, options.data, None, options.device, ood)
    quick, folder = QUICK[task], _quick_folder()
    place = Place(folder, options.data, quick, options.device, ood)
    print(
        f"a quick look at {place.name(task)}: {quick:.1%} of the rows, "
        f"{place.plan(task).train.steps} steps, one setting, one seed; kept in {folder}"
    )
    return place


def _check_device(name: str) -> None:
    try:
        TrainConfig(device=name).pick_device()
    except ValueError as error:
        _refuse(error)


def _ood(task: str, options: argparse.Namespace) -> str | None:
    """The OOD set that was asked for, None for the task's own."""
    from experiments.paper.images import CIFAR10_OOD
    from gpn.data.image_set import OFFICIAL

    name = getattr(options, "ood", None)
    if name is None:
        return None
    if task != "cifar10":
        _refuse(f"--ood must go with cifar10, whose strangers can be changed, got {task}.")
    data.images(name, options.data)  # whether it can be a name at all; nothing is read yet
    bare = name.removesuffix(".npz")
    if bare == CIFAR10_OOD:
        return None
    return name if bare in OFFICIAL else bare  # svhn.npz is a file, and svhn the official set


def _quick_folder() -> Path:
    """Beside the data in the user's cache: results proper stay as they are."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "gpn" / "quick"


def _seed(text: str) -> int:
    if not (text.isdecimal() and int(text) <= MAX_SEED):
        raise argparse.ArgumentTypeError(
            f"a seed must be a whole number from 0 to {MAX_SEED}, got {text!r}"
        )
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="one task: choose settings, then every seed")
    again = commands.add_parser("again", help="the chosen setting on splits that no choice saw")
    everything = commands.add_parser("all", help="every task, what follows, tables and figures")
    shares = commands.add_parser("shares", help="OOD AUC as strangers become rare in the pool")
    grow = commands.add_parser("scalability", help="OOD AUC against training time")
    table = commands.add_parser("table", help="print a task's table, from the result files")
    figure = commands.add_parser("figure", help="draw a figure, from the result files")
    for command in (run, again, shares, table):
        command.add_argument("task", choices=PLANS)
    grow.add_argument("task", choices=GROWN)
    figure.add_argument("name", choices=FIGURES)
    for command in (run, again, everything, shares, grow):
        command.add_argument("--data", type=Path, help="the data folder (else GPN_DATA)")
        command.add_argument("--device", default="auto")
        command.add_argument("--quick", action="store_true", help="a small share of rows and steps")
    for command in (run, again, shares, grow):
        command.add_argument("--ood", metavar="NAME", help="cifar10's strangers: any image set")
    for command in (run, again, everything):
        command.add_argument("--method", choices=METHODS, action="append")
    for command in (run, everything):
        command.add_argument("--setting", type=int, choices=range(5), help="try this one only")
    for command in (run, everything, shares):
        command.add_argument("--seed", type=_seed, help="this one only, of the chosen setting")
    return parser


if __name__ == "__main__":
    main()
