"""Timing in turn, and result files: `benchmarks/results/<name>.json`."""

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import gpn
from experiments import results

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Row:
    """One line of a benchmark: a number, its unit, and what it is compared with."""

    what: str
    value: float | None
    unit: str
    against: str | None = None


def in_turn(
    works: Mapping[str, Callable[[], Any]], repeats: int, warm_ups: int, device: torch.device
) -> dict[str, float]:
    """Median seconds of each, all taken one after the other `repeats` times.

    The first `warm_ups` rounds are not counted; the device's queue is empty at both ends.
    """
    rounds = [
        {name: seconds(work, device) for name, work in works.items()}
        for _ in range(warm_ups + repeats)
    ]
    return {name: statistics.median(r[name] for r in rounds[warm_ups:]) for name in works}


def seconds(work: Callable[[], Any], device: torch.device) -> float:
    """Wall time of `work`, once everything that it asked of the device is done."""
    wait(device)
    started = time.perf_counter()
    work()
    wait(device)
    return time.perf_counter() - started


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def ratio(
    what: str, times: Mapping[str, float], ours: str, theirs: str, wanted: str = ""
) -> list[Row]:
    """Both times, and how many times the other's ours is."""
    return [
        Row(f"{what}: {ours}", times[ours], "s"),
        Row(f"{what}: {theirs}", times[theirs], "s"),
        Row(f"{what}: ratio", times[ours] / times[theirs], "times", f"{theirs}{wanted}"),
    ]


def save(folder: Path, name: str, device: torch.device, rows: list[Row]) -> Path:
    """The rows so far, with the hardware and the versions that they were measured with."""
    report = {
        "name": name,
        "device": results.device(device),
        "versions": {"gpn": gpn.__version__, **results.versions()},
        "machine": f"{platform.machine()}, {os.cpu_count()} CPU cores",
        "rows": [asdict(row) for row in rows],
    }
    return results.save(folder / f"{name}.json", report)


def table(folder: Path) -> str:
    """Every result file as a table, one line per row."""
    reports = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    lines = ["| benchmark | what | value | against | on |", "|---|---|---|---|---|"]
    for report in reports:
        lines += [_line(report, Row(**row)) for row in report["rows"]]
    return "\n".join(lines)


def _line(report: dict[str, Any], row: Row) -> str:
    return (
        f"| {report['name']} | {row.what} | {shown(row)} | {row.against or ''} "
        f"| {report['device']} |"
    )


def shown(row: Row) -> str:
    return row.unit if row.value is None else f"{row.value:.4g} {row.unit}"
