"""`python -m benchmarks list | run NAME... | table`."""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.big_pool import big_pool
from benchmarks.context import BenchmarkContext
from benchmarks.fits import ensemble_axis, many_fits, six_seconds, superconductor_cpu
from benchmarks.harness import RESULTS, Row, save, table
from benchmarks.peers import peers
from benchmarks.sampling import draws, moments
from benchmarks.scoring import engines, long_table, partitions, scoring
from benchmarks.soak import soak
from benchmarks.training import gpn_against_ensemble, gpn_against_labels, profile
from gpn import TrainConfig

BENCHMARKS: dict[str, Callable[[BenchmarkContext], Iterator[Row]]] = {
    "draws": draws,
    "moments": moments,
    "training": gpn_against_labels,
    "ensemble": gpn_against_ensemble,
    "ensemble_axis": ensemble_axis,
    "side_by_side": many_fits,
    "six_seconds": six_seconds,
    "peers": peers,
    "profile": profile,
    "superconductor_cpu": superconductor_cpu,
    "big_pool": big_pool,
    "soak": soak,
    "scoring": scoring,
    "engines": engines,
    "long_table": long_table,
    "partitions": partitions,
}


def main(arguments: list[str] | None = None) -> None:
    parser = _parser()
    options = parser.parse_args(arguments)
    unknown = set(getattr(options, "name", ())) - set(BENCHMARKS)
    if unknown:
        parser.error(f"a benchmark must be one of {', '.join(BENCHMARKS)}, got {unknown}.")
    if options.command == "list":
        for name, benchmark in BENCHMARKS.items():
            print(f"{name:20s} {(benchmark.__doc__ or '').splitlines()[0]}")
    elif options.command == "table":
        print(table(options.results or RESULTS))
    else:
        _run(options)


def _run(options: argparse.Namespace) -> None:
    """Run each, then print the rows that compare."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.results or (Path(temporary) if options.quick else RESULTS)
        device = TrainConfig(device=options.device).pick_device()
        context = BenchmarkContext(device, folder, options.quick)
        rows = {name: run(name, context) for name in options.name or BENCHMARKS}
    compared = [(name, row) for name, each in rows.items() for row in each if row.against]
    print("", *(f"{name:18s} {row.what[:60]:60s} {row!s:>14s}" for name, row in compared), sep="\n")


def run(name: str, context: BenchmarkContext) -> list[Row]:
    """All rows of one benchmark, each printed and saved as it is measured."""
    started = time.perf_counter()
    rows: list[Row] = []
    print(f"{name} ...", flush=True)
    for row in BENCHMARKS[name](context):
        rows.append(row)
        save(context.results, name, context.device, rows)
        print(f"  {row.what:64s} {row}", flush=True)
    print(f"  {name} took {time.perf_counter() - started:.0f} s", flush=True)
    return rows


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="name every benchmark")
    running = commands.add_parser("run", help="run some benchmarks, or all")
    running.add_argument("name", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    running.add_argument("--quick", action="store_true", help="synthetic data: does it work?")
    running.add_argument("--device", default="auto", help="auto, cpu or cuda")
    showing = commands.add_parser("table", help="every result so far")
    for command in (running, showing):
        command.add_argument("--results", type=Path, help="folder of the results")
    return parser


if __name__ == "__main__":
    main()
