"""Result files: `experiments/results/<task>/<method>.json`, read by every table and figure."""

import dataclasses
import json
import platform
import statistics
from pathlib import Path
from typing import Any

import gpytorch
import numpy
import torch
from torch import nn

import gpn
from gpn.core.files import write_atomically

RESULTS = Path(__file__).parent / "results"


def write(
    task: str,
    method: str,
    config: Any,
    seeds: list[int],
    rows: list[dict[str, float]],
    seconds: dict[str, float],
    extra: dict[str, Any] | None = None,
) -> Path:
    """One method on one task: every metric as mean, standard deviation and count over the seeds."""
    report = {
        "task": task,
        "method": method,
        "config": plain(config),
        "seeds": seeds,
        "device": device(),
        "versions": versions(),
        "seconds": seconds,
        "metrics": {name: summary([row[name] for row in rows]) for name in rows[0]},
        **(extra or {}),
    }
    return save(RESULTS / task / f"{method}.json", report)


def save(path: Path, report: dict[str, Any], indent: int | None = 2) -> Path:
    """The whole file or none: a run that is killed leaves no half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(report, indent=indent) + "\n").encode())
    return path


def kept(path: Path) -> dict[str, Any] | None:
    """What was saved at `path`; None where there is nothing, or something cut."""
    try:
        report = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return report if isinstance(report, dict) else None


def read(task: str, method: str) -> dict[str, Any]:
    return json.loads((RESULTS / task / f"{method}.json").read_text())


def summary(values: list[float]) -> dict[str, float]:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return {"mean": statistics.fmean(values), "std": spread, "n": len(values)}


def device(where: torch.device | None = None) -> str:
    """The GPU where there is one (or where `where` says so), else the CPU's threads."""
    on_gpu = torch.cuda.is_available() if where is None else where.type == "cuda"
    if on_gpu:
        return f"{torch.cuda.get_device_name()}, {torch.get_num_threads()} CPU threads"
    return f"CPU, {torch.get_num_threads()} threads"


def versions() -> dict[str, str]:
    return {
        "gpn": gpn.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "gpytorch": gpytorch.__version__,
    }


def plain(value: Any) -> Any:
    """A configuration as JSON can hold it."""
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {name: plain(item) for name, item in fields.items()}
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return type(value).__name__ if isinstance(value, nn.Module) else value
