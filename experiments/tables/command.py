"""`python -m experiments tables [run | report]`."""

import argparse
import os
from pathlib import Path
from typing import Any

from experiments.tables.data import table_names
from experiments.tables.methods import METHODS
from experiments.tables.methods.base import package
from experiments.tables.report import write_report
from experiments.tables.run import all_jobs, run_suite


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", nargs="?", choices=("run", "report"), default="run", help="run, or only report"
    )
    parser.add_argument("--tables", type=Path, metavar="FOLDER", help="else GPN_DATA/tables")
    parser.add_argument("--methods", choices=METHODS, nargs="+", default=list(METHODS))
    parser.add_argument("--tables-only", metavar="NAME", nargs="+", help="only these tables")
    parser.add_argument("--splits", type=int, choices=range(5), nargs="+", help="only these")
    parser.add_argument("--jobs", type=_count, default=1, help="splits at a time")
    parser.add_argument("--threads", type=_count, help="of each job; else the cores, shared")
    parser.add_argument("--device", default="auto", help="for the methods that use a GPU")


def execute(options: argparse.Namespace) -> None:
    if options.action == "report":
        print(write_report())
        return
    for name in {name for method in options.methods for name in METHODS[method].packages}:
        package(name)  # missing ones are named before anything runs
    names = options.tables_only or table_names(options.tables)
    threads = options.threads or max(1, (os.cpu_count() or 1) // options.jobs)
    jobs = all_jobs(names, options.methods, options.splits, options.tables, options.device, threads)
    run_suite(jobs, options.jobs)


def _count(text: str) -> Any:
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, got {text!r}")
    return int(text)
