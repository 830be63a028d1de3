"""Ten ensemble members as one tensor axis against ten separate fits, at the six-point sizes.

Run `python benchmarks/ensemble_axis.py`; it prints both and writes results/ensemble_axis.json.
Both are timed in turn in one process, and the median of the repeats is kept.
"""

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

# threads that wait for each other must not spin: a busy machine would time the spinning
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

import gpn
from gpn.data import six_points
from gpn.methods.ensemble import Ensemble, EnsembleConfig

MEMBERS, STEPS, REPEATS, THREADS = 10, 200, 5, 2
OUT = Path(__file__).parent / "results" / "ensemble_axis.json"
CONFIG = EnsembleConfig(
    regularise="parameters",
    n_members=MEMBERS,
    trunk=gpn.MLPTrunk(widths=(128, 128), activation="relu"),
    train=gpn.TrainConfig(steps=STEPS, device="cpu"),
)


def one_axis() -> None:
    Ensemble(CONFIG).fit(six_points(), rng=0, progress=False)


def separate() -> None:
    for seed in range(MEMBERS):
        Ensemble(CONFIG.replace(n_members=1)).fit(six_points(), rng=seed, progress=False)


def seconds(run: Callable[[], None]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def measure() -> tuple[float, float]:
    """Median seconds of both, taken in turn after one of each that is not counted."""
    one_axis(), separate()
    pairs = [(seconds(one_axis), seconds(separate)) for _ in range(REPEATS)]
    together, apart = zip(*pairs, strict=True)
    return statistics.median(together), statistics.median(apart)


def report(together: float, apart: float) -> dict[str, object]:
    what = f"{MEMBERS} members, 2 × 128 relu, 6 labels, {STEPS} steps"
    rows = [
        {"what": f"{what}: one axis", "value": round(together, 4), "unit": "s", "against": None},
        {"what": f"{what}: separate fits", "value": round(apart, 4), "unit": "s", "against": None},
        {
            "what": "one axis is faster by",
            "value": round(apart / together, 2),
            "unit": "times",
            "against": "separate fits (at least 4 wanted)",
        },
    ]
    versions = {"gpn": gpn.__version__, "torch": torch.__version__}
    versions["python"] = platform.python_version()
    device = f"{torch.get_num_threads()} CPU threads, {platform.machine()}"
    return {"name": "ensemble_axis", "device": device, "versions": versions, "rows": rows}


if __name__ == "__main__":
    torch.set_num_threads(THREADS)
    result = report(*measure())
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    for row in result["rows"]:
        print(f"{row['what']:52s} {row['value']:8} {row['unit']}")
