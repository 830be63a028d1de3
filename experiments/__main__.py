"""The paper's tasks and twenty tables: `python -m experiments COMMAND`; each command resumes."""

import argparse
import os
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from experiments import classes, harness, practitioner_tables
from experiments.paper import contamination, figures, protocol, scalability
from experiments.paper.context import RunContext
from experiments.paper.plans import METHODS, PLANS
from experiments.paper.table import tables
from experiments.paper.tasks.images import CIFAR10_OOD
from experiments.shifts import command as shifts_command
from experiments.tables import command as tables_command
from experiments.tables.methods.base import MissingPackage
from gpn import TrainConfig, data
from gpn.data.image_set import OFFICIAL

QUICK_SHARE = {
    "superconductor": 0.1,
    "superconductor-grouped": 0.1,
    "mnist": 0.01,
    "cifar10": 0.005,
}
CONTAMINATION_TASKS = tuple(task for task, plan in PLANS.items() if plan.settings_of is None)
RENAMED = {"again": "confirm", "shares": "contamination"}
MAX_SEED = 2**32 - 1


def main(arguments: list[str] | None = None) -> None:
    options = _parser().parse_args(_renamed(sys.argv[1:] if arguments is None else arguments))
    try:
        COMMANDS[options.command](options)
    except (data.DataError, MissingPackage, OSError) as error:  # missing or broken data, results, …
        _refuse(error)


def _renamed(arguments: list[str]) -> list[str]:
    """Former names of commands and figures still work, with a warning."""
    for name in RENAMED.keys() & arguments[:2]:
        warnings.warn(f"{name} is now called {RENAMED[name]}.", FutureWarning, stacklevel=3)
    return [RENAMED.get(word, word) for word in arguments[:2]] + arguments[2:]


def _refuse(error: object) -> NoReturn:
    """One line, and exit status 1."""
    sys.exit(f"error: {' '.join(str(error).splitlines())}")


def _run(options: argparse.Namespace) -> None:
    _run_task(options.task, _methods(options) or PLANS[options.task].methods, options)


def _run_task(task: str, methods: Iterable[str], options: argparse.Namespace) -> None:
    context, setting, seed = _context(task, options), options.setting, options.seed
    for method in methods:
        if setting is not None:
            protocol.run_one(context, method, context.plan.grid(method)[1][setting], seed)
        elif seed is not None:
            protocol.run_seed(context, method, seed)
        else:
            protocol.run_method(context, method)


def _confirm(options: argparse.Namespace) -> None:
    methods, context = _methods(options) or ("gpn",), _context(options.task, options)
    for method in methods:
        protocol.confirm(context, method)


def _all(options: argparse.Namespace) -> None:
    """Every task, then contamination and scalability, then all tables and figures.

    A quick run ends with the tasks; contamination and scalability need all settings and seeds.
    """
    for task, plan in PLANS.items():
        wanted = options.method or plan.methods
        _run_task(task, [name for name in plan.methods if name in wanted], options)
    if options.quick:
        return
    if options.setting is None and options.seed is None:
        _follow_ups(options)
    for task in PLANS:
        print(f"\n{task}\n\n{tables(task)}")
    for name in figures.FIGURES:
        try:
            print(figures.figure(name))
        except FileNotFoundError as error:
            print(f"no figure {name}: {error}")


def _follow_ups(options: argparse.Namespace) -> None:
    wanted = options.method or METHODS
    contaminated = [name for name in contamination.METHODS if name in wanted]
    timed = [name for name in scalability.METHODS if name in wanted]
    for task in CONTAMINATION_TASKS if contaminated else ():
        print(contamination.run_contamination(_context(task, options), methods=contaminated))
    for task in scalability.GROUP_SIZE if timed else ():
        print(scalability.run_scalability(_context(task, options), methods=timed))


COMMANDS = {
    "table": lambda options: print(tables(options.task)),
    "figure": lambda options: print(figures.figure(options.name)),
    "run": _run,
    "confirm": _confirm,
    "contamination": lambda options: print(
        contamination.run_contamination(_context(options.task, options), seed=options.seed)
    ),
    "scalability": lambda options: print(
        scalability.run_scalability(_context(options.task, options))
    ),
    "all": _all,
    "shifts": shifts_command.execute,
    "tables": tables_command.execute,
    "classes": classes.execute,
    "practitioner": practitioner_tables.execute,
}


def _methods(options: argparse.Namespace) -> list[str] | None:
    """The methods of --method, if the task has them all."""
    known = PLANS[options.task].methods
    for method in options.method or ():
        if method not in known:
            _refuse(f"a method for {options.task} must be one of {', '.join(known)}, got {method}.")
    return options.method


def _context(task: str, options: argparse.Namespace) -> RunContext:
    try:
        TrainConfig(device=options.device).pick_device()
    except ValueError as error:
        _refuse(error)
    ood = _ood(task, options)
    if not options.quick:
        return RunContext(task, harness.RESULTS, options.data, None, options.device, ood)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    share, folder = QUICK_SHARE[task], cache / "gpn" / "quick"  # away from the real results
    context = RunContext(task, folder, options.data, share, options.device, ood)
    print(
        f"quick run of {context.name}: {share:.1%} of the rows, {context.plan.train.steps} steps, "
        f"one setting, one seed; results in {folder}"
    )
    return context


def _ood(task: str, options: argparse.Namespace) -> str | None:
    """The OOD set of --ood, None for the task's own."""
    name = getattr(options, "ood", None)
    if name is None:
        return None
    if task != "cifar10":
        _refuse(f"--ood must go with cifar10, whose OOD set can be changed, got {task}.")
    data.images(name, options.data)  # refuses what cannot be a name; reads nothing yet
    bare = name.removesuffix(".npz")
    if bare == CIFAR10_OOD:
        return None
    return name if bare in OFFICIAL else bare  # svhn.npz is a file, svhn the official set


def _seed(text: str) -> int:
    if not (text.isdecimal() and int(text) <= MAX_SEED):
        raise argparse.ArgumentTypeError(
            f"a seed must be a whole number from 0 to {MAX_SEED}, got {text!r}"
        )
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="one task: choose hyperparameters, then every seed")
    confirm = commands.add_parser("confirm", help="the chosen hyperparameters on new splits")
    everything = commands.add_parser("all", help="every task, follow-ups, tables and figures")
    shares = commands.add_parser("contamination", help="OOD AUC as OOD rows become rare")
    grow = commands.add_parser("scalability", help="OOD AUC against training time")
    table = commands.add_parser("table", help="print a task's tables, from the result files")
    figure = commands.add_parser("figure", help="draw a figure, from the result files")
    shifts_command.add_arguments(
        commands.add_parser("shifts", help="known against shifted rows, against other detectors")
    )
    tables_command.add_arguments(
        commands.add_parser("tables", help="twenty regression tables, against other methods")
    )
    classes.add_arguments(
        commands.add_parser("classes", help="classes of four small tables, against scikit-learn")
    )
    practitioner_tables.add_arguments(
        commands.add_parser("practitioner", help="twelve tables of PyPI packages, as they are")
    )
    for command in (run, confirm, shares, table):
        command.add_argument("task", choices=PLANS)
    grow.add_argument("task", choices=scalability.GROUP_SIZE)
    figure.add_argument("name", choices=figures.FIGURES)
    for command in (run, confirm, everything, shares, grow):
        command.add_argument("--data", type=Path, help="the data folder (else GPN_DATA)")
        command.add_argument("--device", default="auto")
        command.add_argument("--quick", action="store_true", help="a small share of rows and steps")
    for command in (run, confirm, shares, grow):
        command.add_argument("--ood", metavar="NAME", help="cifar10's OOD set: any image set")
    for command in (run, confirm, everything):
        command.add_argument("--method", choices=METHODS, action="append")
    for command in (run, everything):
        command.add_argument("--setting", type=int, choices=range(5), help="only this one")
    for command in (run, everything, shares):
        command.add_argument("--seed", type=_seed, help="only this one, of the chosen setting")
    return parser


if __name__ == "__main__":
    main()
