"""What every suite shares: result files with hardware and versions, and timed fits.

A result is `experiments/results/<task>/<method>.json`; every table and figure reads these files.
"""

import dataclasses
import json
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import gpytorch
import numpy
import torch
from torch import nn

import gpn
from gpn.core.files import write_atomically

RESULTS = Path(__file__).parent / "results"


def write_result(
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
        "device": hardware(),
        "versions": versions(),
        "seconds": seconds,
        "metrics": {name: summary([row[name] for row in rows]) for name in rows[0]},
        **(extra or {}),
    }
    return save(RESULTS / task / f"{method}.json", report)


def save(path: Path, report: dict[str, Any], indent: int | None = 2) -> Path:
    """Write the file whole or not at all, so that a killed run leaves no partial one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(report, indent=indent) + "\n").encode())
    return path


def load(path: Path) -> dict[str, Any] | None:
    """The saved report; None if the file is missing or truncated."""
    try:
        report = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return report if isinstance(report, dict) else None


def summary(values: list[float]) -> dict[str, float]:
    std = statistics.stdev(values) if len(values) > 1 else 0.0
    return {"mean": statistics.fmean(values), "std": std, "n": len(values)}


def markdown(heads: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows))


def hardware(device: torch.device | None = None) -> str:
    """The name of the device in a result file; by default the GPU where there is one."""
    on_gpu = torch.cuda.is_available() if device is None else device.type == "cuda"
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
        return {
            field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return type(value).__name__ if isinstance(value, nn.Module) else value


def timed_fit(method: Any, task: gpn.Task, seed: int) -> tuple[gpn.Posterior, float]:
    """A fitted posterior and the wall time of its fit in seconds, the device's queue included."""
    started = time.perf_counter()
    posterior = method.fit(task, rng=seed, progress=False)
    if posterior.device.type == "cuda":
        torch.cuda.synchronize(posterior.device)
    return posterior, time.perf_counter() - started
