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

from experiments import harness

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Row:
    """One line of a benchmark: a number, its unit, and what it is compared with."""

    what: str
    value: float | None
    unit: str
    against: str | None = None

    def __str__(self) -> str:
        return self.unit if self.value is None else f"{self.value:.4g} {self.unit}"


def in_turn(
    works: Mapping[str, Callable[[], Any]], repeats: int, warm_ups: int, device: torch.device
) -> dict[str, float]:
    """Median seconds of each work over `repeats` rounds: A, B, A, B, ...

    The first `warm_ups` rounds are not counted.
    """
    rounds = [
        {name: seconds(work, device) for name, work in works.items()}
        for _ in range(warm_ups + repeats)
    ]
    return {name: statistics.median(r[name] for r in rounds[warm_ups:]) for name in works}


def seconds(work: Callable[[], Any], device: torch.device) -> float:
    """Wall time of `work`; the device's queue is empty at both ends."""
    synchronise(device)
    started = time.perf_counter()
    work()
    synchronise(device)
    return time.perf_counter() - started


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def memory_megabytes(field: str, pid: int | str = "self") -> float | None:
    """A field of the process's status, VmRSS or VmHWM (Linux); None once it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    found = [line for line in status.splitlines() if line.startswith(field)]
    return int(found[0].split()[1]) / 1024 if found else None


def ratio(
    what: str, times: Mapping[str, float], ours: str, theirs: str, target: str = ""
) -> list[Row]:
    """Both times, and ours divided by theirs."""
    return [
        Row(f"{what}: {ours}", times[ours], "s"),
        Row(f"{what}: {theirs}", times[theirs], "s"),
        Row(f"{what}: ratio", times[ours] / times[theirs], "times", f"{theirs}{target}"),
    ]


def save(folder: Path, name: str, device: torch.device, rows: list[Row]) -> Path:
    """The rows so far, with hardware and versions."""
    report = {
        "name": name,
        "device": harness.hardware(device),
        "versions": harness.versions(),
        "machine": f"{platform.machine()}, {os.cpu_count()} CPU cores",
        "rows": [asdict(row) for row in rows],
    }
    return harness.save(folder / f"{name}.json", report)


def table(folder: Path) -> str:
    """Every result file as one Markdown table."""
    rows = []
    for path in sorted(folder.glob("*.json")):
        report = json.loads(path.read_text())
        for row in (Row(**fields) for fields in report["rows"]):
            rows.append([report["name"], row.what, str(row), row.against or "", report["device"]])
    return harness.markdown(["benchmark", "what", "value", "against", "on"], rows)
