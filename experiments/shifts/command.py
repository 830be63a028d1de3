"""`python -m experiments shifts [run | report]`."""

import argparse
from pathlib import Path

from experiments.shifts.data import names
from experiments.shifts.methods import METHODS
from experiments.shifts.report import write_report
from experiments.shifts.run import run_suite


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", nargs="?", choices=("run", "report"), default="run", help="run, or only report"
    )
    parser.add_argument("--tables", type=Path, metavar="FOLDER", help="else GPN_DATA/tables")
    parser.add_argument("--methods", choices=METHODS, nargs="+", default=list(METHODS))
    parser.add_argument("--tables-only", metavar="NAME", nargs="+", help="only these tables")


def execute(options: argparse.Namespace) -> None:
    if options.action == "run":
        run_suite(options.tables_only or names(options.tables), options.methods, options.tables)
    print(write_report())
