"""`python -m experiments run | shares | scalability | table TASK` or `all`: the paper, again."""

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.paper.settings import METHODS, PLANS

if TYPE_CHECKING:
    from experiments.paper.run import Place

QUICK = {"superconductor": 0.1, "superconductor-grouped": 0.1, "mnist": 0.02, "cifar10": 0.01}


def main() -> None:
    options = _parser().parse_args()
    if options.command == "table":
        from experiments.paper.table import table

        print(table(options.task))
        return
    for task in list(PLANS) if options.command == "all" else [options.task]:
        place = _place(task, options)
        {"shares": _shares, "scalability": _scalability}.get(options.command, _run)(
            task, place, options
        )
        if options.quick:
            print(f"a quick look at {place.quick:.0%} of rows and steps, kept in {place.results}")


def _place(task: str, options: argparse.Namespace) -> "Place":
    from experiments.paper.run import Place

    if not options.quick:
        return Place(data=options.data, device=options.device)
    results = Path(tempfile.mkdtemp(prefix="gpn-quick-"))
    return Place(results=results, data=options.data, quick=QUICK[task], device=options.device)


def _run(task: str, place: "Place", options: argparse.Namespace) -> None:
    from experiments.paper.run import final, run_method, trial

    for method in options.method or place.plan(task).methods:
        if options.setting is None:
            run_method(task, method, place)
        elif options.seed is None:
            trial(task, method, options.setting, place)
        else:
            final(task, method, options.setting, options.seed, place)


def _shares(task: str, place: "Place", options: argparse.Namespace) -> None:
    from experiments.paper.pool_share import run_shares

    print(run_shares(task, place))


def _scalability(task: str, place: "Place", options: argparse.Namespace) -> None:
    from experiments.paper.scalability import run_scalability

    print(run_scalability(task, place))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="one task: choose settings, then every seed")
    run.add_argument("task", choices=PLANS)
    everything = commands.add_parser("all", help="every task")
    shares = commands.add_parser("shares", help="OOD AUC as strangers become rare in the pool")
    grow = commands.add_parser("scalability", help="OOD AUC against training time")
    shares.add_argument("task", choices=PLANS)
    grow.add_argument("task", choices=("superconductor", "cifar10"))
    for command in (run, everything, shares, grow):
        command.add_argument("--data", type=Path, help="the data folder (else GPN_DATA)")
        command.add_argument("--device", default="auto")
        command.add_argument("--quick", action="store_true", help="a small share of rows and steps")
    for command in (run, everything):
        command.add_argument("--method", choices=METHODS, action="append")
        command.add_argument("--setting", type=int, choices=range(5), help="try this one only")
        command.add_argument("--seed", type=int, help="with --setting: test it with this seed")
    table = commands.add_parser("table", help="print a task's table, from the result files")
    table.add_argument("task", choices=PLANS)
    return parser


if __name__ == "__main__":
    main()
