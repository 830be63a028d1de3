"""`python -m experiments run | again | shares | scalability | table TASK`, `figure NAME`, `all`."""

import argparse
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.paper.settings import METHODS, PLANS

if TYPE_CHECKING:
    from experiments.paper.place import Place

QUICK = {"superconductor": 0.1, "superconductor-grouped": 0.1, "mnist": 0.01, "cifar10": 0.005}
GROWN = ("superconductor", "cifar10")
FIGURES = ("scalability", "roc", "boxes", "shares")


def main(arguments: list[str] | None = None) -> None:
    parser = _parser()
    options = parser.parse_args(arguments)
    if getattr(options, "seed", None) is not None and getattr(options, "setting", 0) is None:
        parser.error("--seed tests one setting and needs --setting, got --seed alone.")
    try:
        COMMANDS[options.command](options)
    except FileNotFoundError as error:  # data or results that are not there yet
        sys.exit(f"error: {error}")


def _table(options: argparse.Namespace) -> None:
    from experiments.paper.table import table

    print(table(options.task))


def _figure(options: argparse.Namespace) -> None:
    from experiments.paper.figures import figure

    print(figure(options.name))


def _run(options: argparse.Namespace) -> None:
    _run_task(options.task, _methods(options) or PLANS[options.task].methods, options)


def _run_task(task: str, chosen: Iterable[str], options: argparse.Namespace) -> None:
    from experiments.paper.run import final, run_method, trial

    place = _place(task, options)
    for method in chosen:
        if options.setting is None:
            run_method(task, method, place)
        elif options.seed is None:
            trial(task, method, options.setting, place)
        else:
            final(task, method, options.setting, options.seed, place)
    _say_quick(place)


def _again(options: argparse.Namespace) -> None:
    from experiments.paper.run import run_again

    place = _place(options.task, options)
    for method in _methods(options) or ("gpn",):
        run_again(options.task, method, place)
    _say_quick(place)


def _shares(options: argparse.Namespace) -> None:
    from experiments.paper.pool_share import run_shares

    place = _place(options.task, options)
    print(run_shares(options.task, place, only=options.seed))
    _say_quick(place)


def _scalability(options: argparse.Namespace) -> None:
    from experiments.paper.scalability import run_scalability

    place = _place(options.task, options)
    print(run_scalability(options.task, place))
    _say_quick(place)


def _all(options: argparse.Namespace) -> None:
    """Every task with its extra protocols; a quick look is at the tables alone."""
    for task, plan in PLANS.items():
        wanted = options.method or plan.methods
        _run_task(task, [name for name in plan.methods if name in wanted], options)
    if options.quick:
        return
    from experiments.paper.pool_share import run_shares
    from experiments.paper.scalability import run_scalability

    for task in PLANS:
        run_shares(task, _place(task, options))
    for task in GROWN:
        run_scalability(task, _place(task, options))


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
            sys.exit(
                f"error: a method for {options.task} must be one of {', '.join(known)}, "
                f"got {method}."
            )
    return options.method


def _place(task: str, options: argparse.Namespace) -> "Place":
    from experiments.paper.place import Place

    if not options.quick:
        return Place(data=options.data, device=options.device)
    results = Path(tempfile.mkdtemp(prefix="gpn-quick-"))
    return Place(results=results, data=options.data, quick=QUICK[task], device=options.device)


def _say_quick(place: "Place") -> None:
    if place.quick is not None:
        print(f"a quick look at {place.quick:.1%} of rows and steps, kept in {place.results}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="one task: choose settings, then every seed")
    again = commands.add_parser("again", help="the chosen setting on splits that no choice saw")
    everything = commands.add_parser("all", help="every task, and what follows from it")
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
    for command in (run, again, everything):
        command.add_argument("--method", choices=METHODS, action="append")
    for command in (run, everything):
        command.add_argument("--setting", type=int, choices=range(5), help="try this one only")
        command.add_argument("--seed", type=int, help="with --setting: test it with this seed")
    shares.add_argument("--seed", type=int, help="this one only")
    return parser


if __name__ == "__main__":
    main()
