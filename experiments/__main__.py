"""`python -m experiments run TASK | table TASK | all`: the paper on real data."""

import argparse
from pathlib import Path

from experiments.paper.settings import METHODS, PLANS

QUICK = {"superconductor": 0.1, "superconductor-grouped": 0.1, "mnist": 0.02, "cifar10": 0.01}


def main() -> None:
    options = _parser().parse_args()
    if options.command == "table":
        from experiments.paper.table import table

        print(table(options.task))
    else:
        tasks = [options.task] if options.command == "run" else list(PLANS)
        for task in tasks:
            _run(task, options)


def _run(task: str, options: argparse.Namespace) -> None:
    import tempfile

    from experiments.paper.run import Place, final, run_method, trial

    quick = QUICK[task] if options.quick else None
    folder = {"results": Path(tempfile.mkdtemp(prefix="gpn-quick-"))} if options.quick else {}
    place = Place(data=options.data, quick=quick, device=options.device, **folder)
    for method in options.method or place.plan(task).methods:
        if options.setting is None:
            run_method(task, method, place)
        elif options.seed is None:
            trial(task, method, options.setting, place)
        else:
            final(task, method, options.setting, options.seed, place)
    if options.quick:
        print(f"a quick look at {quick:.0%} of the rows and steps, kept in {place.results}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="one task: choose settings, then every seed")
    run.add_argument("task", choices=PLANS)
    everything = commands.add_parser("all", help="every task")
    for command in (run, everything):
        command.add_argument("--method", choices=METHODS, action="append")
        command.add_argument("--setting", type=int, choices=range(5), help="try this one only")
        command.add_argument("--seed", type=int, help="with --setting: test it with this seed")
        command.add_argument("--data", type=Path, help="the data folder (else GPN_DATA)")
        command.add_argument("--device", default="auto")
        command.add_argument("--quick", action="store_true", help="a small share of rows and steps")
    table = commands.add_parser("table", help="print a task's table, from the result files")
    table.add_argument("task", choices=PLANS)
    return parser


if __name__ == "__main__":
    main()
