"""How long a fit takes, on whatever device it runs."""

import time
from typing import Any

import torch

from gpn import Posterior, Task


def timed_fit(method: Any, task: Task, seed: int) -> tuple[Posterior, float]:
    """A fitted posterior and its wall time in seconds, the device's queue emptied."""
    started = time.perf_counter()
    posterior = method.fit(task, rng=seed, progress=False)
    if posterior.device.type == "cuda":
        torch.cuda.synchronize(posterior.device)
    return posterior, time.perf_counter() - started
