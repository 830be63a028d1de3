"""`python -m experiments.fidelity run | table | figure | reach`."""

import argparse

from experiments.fidelity.problems import PROBLEMS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.fidelity", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="fit every variant on every problem, five seeds each")
    run.add_argument("--problem", choices=sorted(PROBLEMS), action="append")
    run.add_argument("--workers", type=int, default=1)
    commands.add_parser("table", help="print the table, from the result files")
    commands.add_parser("figure", help="draw the figure, from the result files")
    reach = commands.add_parser("reach", help="distance to the exact GP with 100 to 10,000 labels")
    for command in (run, reach):
        command.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    if options.command == "run":
        from experiments.fidelity.run import run_all

        run_all(options.problem or list(PROBLEMS), options.workers, options.threads)
    elif options.command == "reach":
        from experiments.fidelity.reach import run_reach

        run_reach(options.threads)
    else:
        from experiments.fidelity import report

        print(report.table() if options.command == "table" else report.figure())


if __name__ == "__main__":
    main()
