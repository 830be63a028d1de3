"""What identifies a fit: hashes of its configuration, its data and its seed."""

import dataclasses
import hashlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from gpn.core.config import Config
from gpn.core.pools.base import Pool, TensorPool
from gpn.core.task import Task
from gpn.core.types import Rng, as_generator

SAMPLE_ROWS = 64


def fingerprint(config: Config, task: Task, rng: Rng, device: torch.device) -> dict[str, str]:
    """One hash for each thing that must not change between a fit's start and its resumption.

    Functions (samplers, datasets, augmentation) are represented by some of their outputs.
    """
    augmented = task.augmented(task.x_obs[:SAMPLE_ROWS], as_generator(0, task.x_obs.device))
    return {
        "configuration": _hash(repr(config), *_weights(config)),
        "labels": _hash(task.x_obs, task.y_obs, task.n_outputs, augmented),
        "pool": "none" if task.pool is None else _hash(*_pool(task.pool)),
        "seed": _seed(rng),
        "device": str(device),
        "torch": str(torch.__version__),
    }


def _seed(rng: Rng) -> str:
    if rng is None:
        raise ValueError(
            "a fit with a checkpoint must have a seed, so that it can be resumed, and so must a "
            "fit in several processes, got None; pass rng=0 (random_state=0)."
        )
    return _hash(rng.get_state()) if isinstance(rng, torch.Generator) else str(int(rng))


def _pool(pool: Pool) -> Iterator[Any]:
    yield type(pool).__name__
    yield pool.rows if isinstance(pool, TensorPool) else pool.draw(SAMPLE_ROWS, as_generator(0))


def _weights(value: Any) -> Iterator[Tensor]:
    """The state of every module that a configuration holds."""
    if isinstance(value, nn.Module):
        yield from value.state_dict().values()
    elif isinstance(value, Config):
        for field in dataclasses.fields(value):  # type: ignore[arg-type]
            yield from _weights(getattr(value, field.name))


def _hash(*parts: Any) -> str:
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, Tensor):
            plain = part.detach().cpu().contiguous()
            digest.update(f"{plain.dtype} {tuple(plain.shape)}\n".encode())
            digest.update(plain.flatten().view(torch.uint8).numpy().data)
        else:
            digest.update(f"{part}\n".encode())
    return digest.hexdigest()
