"""`python -m benchmarks list | run NAME... | table`."""

import argparse
import tempfile
import time
from pathlib import Path

from benchmarks.harness import RESULTS, Row, save, shown, table
from benchmarks.place import Place, pick_device
from benchmarks.registry import BENCHMARKS


def main(arguments: list[str] | None = None) -> None:
    parser = _parser()
    options = parser.parse_args(arguments)
    unknown = set(getattr(options, "name", ())) - set(BENCHMARKS)
    if unknown:
        parser.error(f"a benchmark must be one of {', '.join(BENCHMARKS)}, got {unknown}.")
    COMMANDS[options.command](options)


def _list(options: argparse.Namespace) -> None:
    for name, benchmark in BENCHMARKS.items():
        print(f"{name:20s} {(benchmark.__doc__ or '').splitlines()[0]}")


def _run(options: argparse.Namespace) -> None:
    """Each in turn; rows are printed and saved as they come."""
    with tempfile.TemporaryDirectory() as passing:
        folder = options.results or (Path(passing) if options.quick else RESULTS)
        place = Place(pick_device(options.device), folder, options.quick)
        done = {name: run(name, place) for name in options.name or BENCHMARKS}
    print("\n".join(["", *summary(done)]))


def run(name: str, place: Place) -> list[Row]:
    """All rows of one benchmark; its file is complete up to the last one that came."""
    started = time.perf_counter()
    rows: list[Row] = []
    print(f"{name} ...", flush=True)
    for row in BENCHMARKS[name](place):
        rows.append(row)
        save(place.results, name, place.device, rows)
        print(f"  {row.what:64s} {shown(row)}", flush=True)
    print(f"  {name} took {time.perf_counter() - started:.0f} s", flush=True)
    return rows


def summary(done: dict[str, list[Row]]) -> list[str]:
    """The rows that compare, short enough for a screen."""
    compared = [(name, row) for name, rows in done.items() for row in rows if row.against]
    return [f"{name:18s} {row.what[:60]:60s} {shown(row):>14s}" for name, row in compared]


def _table(options: argparse.Namespace) -> None:
    print(table(options.results or RESULTS))


COMMANDS = {"list": _list, "run": _run, "table": _table}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="name every benchmark")
    running = commands.add_parser("run", help="run some benchmarks, or all")
    running.add_argument("name", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    running.add_argument("--quick", action="store_true", help="made-up data: does it work?")
    running.add_argument("--device", default="auto", help="auto, cpu or cuda")
    showing = commands.add_parser("table", help="every result so far")
    for command in (running, showing):
        command.add_argument("--results", type=Path, help="folder of the results")
    return parser


if __name__ == "__main__":
    main()
