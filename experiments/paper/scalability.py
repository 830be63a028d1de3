"""OOD AUC against training time: an ensemble grows a few members at a time, a GPN is fitted once.

The paper's Figure 3. Members of both regularised ensembles are trained in groups, one group after
the other, and the AUC is that of all members so far; then ten at once, as one tensor axis. A GPN
is fitted anew for a sixteenth up to all of its steps. Everything is timed in one process. Writes
`results/<task>/scalability.json`.
"""

from pathlib import Path
from typing import Any

import torch

from experiments import results
from experiments.paper.evaluate import DRAWS, evaluate
from experiments.paper.place import Place, Say
from experiments.paper.split import Split
from experiments.timing import timed_fit
from gpn import Posterior
from gpn.core.posterior import FunctionBatch
from gpn.core.types import Draws, Inputs

GROUP = {"superconductor": 2, "cifar10": 5}
MOST_MEMBERS = 10
SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
WAKE_UP = 0.005


def run_scalability(task: str, place: Place, say: Say = print) -> Path:
    """GPN at every length, then both ensembles from few members to ten; saved row by row."""
    grow = _Growth(task, place, say)
    grow.gpn()
    for method in ("ensemble-or", "ensemble-pr"):
        grow.ensemble(method)
        grow.at_once(method)
    return place.file(task, "scalability")


class _Growth:
    """One split on the device, and fits of any method to it."""

    def __init__(self, task: str, place: Place, say: Say) -> None:
        self.name, self.place, self.say = task, place, say
        self.split: Split = place.split(task, 0).merged()
        self.task = place.moved(self.split.task)
        self.rows: list[dict[str, Any]] = []

    def gpn(self) -> None:
        self._fit("gpn", 0, WAKE_UP)
        for share in SHARES:
            posterior, seconds = self._fit("gpn", 0, share)
            metrics = evaluate(posterior, self.split.test, draws=DRAWS)
            self._keep("gpn", f"{share:.4g} of the steps", 0, seconds, metrics)

    def ensemble(self, method: str) -> None:
        together, total, group = [], 0.0, GROUP[self.name]
        self._fit(method, 0, WAKE_UP, n_members=group)
        for first in range(0, MOST_MEMBERS, group):
            posterior, seconds = self._fit(method, first, n_members=group)
            together.append(posterior)
            total += seconds
            metrics = evaluate(Together(together), self.split.test, draws=first + group)
            self._keep(method, f"{group} at a time", first + group, total, metrics)

    def at_once(self, method: str) -> None:
        self._fit(method, 0, WAKE_UP, n_members=MOST_MEMBERS)
        posterior, seconds = self._fit(method, 0, n_members=MOST_MEMBERS)
        metrics = evaluate(posterior, self.split.test, draws=MOST_MEMBERS)
        self._keep(method, "all at once", MOST_MEMBERS, seconds, metrics)

    def _fit(
        self, method: str, seed: int, share: float = 1.0, **changes: Any
    ) -> tuple[Posterior, float]:
        """A short share wakes the device up and is not counted."""
        value = self.place.choice(self.name, method)
        built = self.place.method(self.name, method, value, share, **changes)
        return timed_fit(built, self.task, seed)

    def _keep(
        self, method: str, how: str, members: int, seconds: float, metrics: dict[str, float]
    ) -> None:
        count = f"{members} members, " if members else ""
        self.say(f"{method}, {count}{how}: {seconds:.1f} s  ood_auc {metrics['ood_auc']:.4f}")
        row = {"method": method, "how": how, "members": members, "seconds": seconds}
        self.rows.append({**row, "metrics": metrics})
        report = {"task": self.name, "device": results.device(), "versions": results.versions()}
        results.save(self.place.file(self.name, "scalability"), {**report, "rows": self.rows})


class Together(Posterior):
    """Several ensembles as one: each gives all of its members."""

    def __init__(self, parts: list[Any]) -> None:
        first = parts[0]
        super().__init__(first.signature, first.device, first.dtype, first.noise_std)
        self.parts = parts

    def functions(self, n: int, rng: torch.Generator) -> FunctionBatch:
        def batch(x: Inputs) -> Draws:
            return torch.cat([part.networks(x) for part in self.parts])[:n]

        return batch
