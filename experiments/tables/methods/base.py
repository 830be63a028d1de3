"""What every method is, and what several of them need."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import ClassVar, Protocol

import numpy as np
import torch
from jaxtyping import Float

from experiments.tables.data import Rows, Targets
from experiments.tables.predictive import Prediction
from gpn.estimators.intervals.conformal import conformal_rank


class MissingPackage(ImportError):
    """A method's package is not installed."""


Predict = Callable[[Rows], Prediction]


@dataclass(frozen=True)
class Machine:
    """Where a fit runs."""

    device: torch.device
    threads: int


class Method(Protocol):
    """A frozen dataclass: its fields are the settings that a result file records.

    uses_gpu
        Whether the method runs on a GPU where there is one.
    packages
        Packages beyond those of gpn whose versions belong into a result file.
    """

    uses_gpu: ClassVar[bool]
    packages: ClassVar[tuple[str, ...]]

    def fit(self, x: Rows, y: Targets, *, seed: int, machine: Machine) -> Predict: ...


@dataclass(frozen=True)
class Standardiser:
    """Columns of mean 0 and standard deviation 1 on the training rows; constant ones stay 0."""

    centre: Float[np.ndarray, "..."]
    scale: Float[np.ndarray, "..."]

    @classmethod
    def of(cls, values: Float[np.ndarray, "n ..."]) -> "Standardiser":
        scale = values.std(0)
        return cls(values.mean(0), np.where(scale > 0, scale, 1.0))

    def __call__(self, values: Float[np.ndarray, "n ..."]) -> Float[np.ndarray, "n ..."]:
        return (values - self.centre) / self.scale


def conformal_quantile(scores: Float[np.ndarray, "n"], level: float) -> float:
    """The k-th smallest score, k = ⌈(n + 1) level⌉, or the largest one of too few."""
    rank = min(conformal_rank(len(scores), level), len(scores))
    return float(np.sort(scores)[rank - 1])


def held_out(n: int, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows to fit on and rows to stop by."""
    order = np.random.default_rng(seed).permutation(n)
    cut = max(1, round(share * n))
    return order[cut:], order[:cut]


def package(name: str) -> ModuleType:
    """An optional package, imported when it is needed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingPackage(
            f"a method of the tables must have its package {name}, got: {error}; "
            "try pip install 'gpn[experiments]'."
        ) from error
