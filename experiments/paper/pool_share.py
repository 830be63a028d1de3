"""How much the pool must hold: OOD AUC as strangers become rare in it, and without any pool.

Strangers make up 50, 10, 1 and 0 % of a pool whose other rows are the labeled ones; "none" is a
pool made up from the labels alone: uniform over each feature's range. Settings are those that the
main protocol chose, and fits take a quarter of its steps. Writes `results/<task>/pool-share.json`,
whose rows of other seeds and methods stay.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from experiments import results
from experiments.paper.finished import fits, rows_of, same_config, save_rows, steps_of
from experiments.paper.place import Place, Say
from experiments.paper.run import fit, judged
from experiments.paper.split import Split
from gpn.core.pools.base import TensorPool

SHARES: dict[str, float | None] = {"50%": 0.5, "10%": 0.1, "1%": 0.01, "0%": 0.0, "none": None}
STEPS = 0.25
METHODS = ("gpn", "gpn-paper", "ensemble-or")
SHOWN = ("device", "seconds", "metrics")


def run_shares(
    task: str,
    place: Place,
    say: Say = print,
    only: int | None = None,
    methods: Sequence[str] = METHODS,
) -> Path:
    """Every method at every share for every seed (or `only` one); what is done is not done again.

    Each run has a file of its own under `runs/`, so that several processes can share the work.
    """
    path, every = place.file(task, "pool-share"), range(place.plan(task).seeds)
    wanted, earlier = every if only is None else [only], rows_of(path, place.quick)
    for cell in _cells(task, place, methods, wanted):
        if cell.earlier(earlier) is None:
            cell.run(say)
    earlier = rows_of(path, place.quick)  # another process may have written it since
    cells = _cells(task, place, methods, {*every, *wanted})
    found = filter(None, [cell.earlier(earlier) for cell in cells])
    rows = {_key(row): row for row in (*earlier, *found)}
    return save_rows(path, place.name(task), [rows[key] for key in sorted(rows)], place.quick)


@dataclass(frozen=True)
class Cell:
    """One method at one share of strangers with one seed."""

    task: str
    method: str
    share: str
    seed: int
    place: Place

    @property
    def path(self) -> Path:
        name = f"runs/{self.method}-share-{self.share.rstrip('%')}-{self.seed}"
        return self.place.file(self.task, name)

    @property
    def where(self) -> dict[str, Any]:
        dial, value = self.place.plan(self.task).dial(self.method)[0], self.value
        which = {"method": self.method, "share": self.share, "seed": self.seed}
        return {**which, dial: value, "steps": steps_of(self.built)}

    @property
    def value(self) -> Any:
        return self.place.choice(self.task, self.method)

    @property
    def built(self) -> Any:
        return self.place.method(self.task, self.method, self.value, STEPS)

    def earlier(self, summed_up: list[dict[str, Any]]) -> dict[str, Any] | None:
        """The row as its own file has it, else as the summary has it."""
        run, where = results.kept(self.path), self.where
        if run is None:
            return next((row for row in summed_up if fits(where, row)), None)
        same = fits({**where, "quick": self.place.quick}, run)
        if not same or not same_config(results.plain(self.built.config), run.get("config", {})):
            return None
        return {**where, **{name: run.get(name) for name in SHOWN}}

    def run(self, say: Say) -> None:
        split = self.place.split(self.task, self.seed).merged()
        split = with_share(split, SHARES[self.share], self.seed)
        posterior, run = fit(split, self.built, self.seed, self.place)
        metrics = judged(posterior, split, self.method)
        which = f"{self.place.name(self.task)} {self.method} seed {self.seed}"
        say(f"{which}: strangers {self.share:5s} ood_auc {metrics['ood_auc']:.4f}")
        made = {**self.where, **run, "quick": self.place.quick, "metrics": metrics}
        results.save(self.path, made)


def _cells(task: str, place: Place, methods: Sequence[str], seeds: Iterable[int]) -> list[Cell]:
    return [
        Cell(task, method, share, seed, place)
        for seed in sorted(seeds)
        for share in SHARES
        for method in methods
    ]


def _key(row: dict[str, Any]) -> tuple[int, int, int]:
    """Rows of one key are the same row; keys are in the order of the file."""
    return row["seed"], list(SHARES).index(row["share"]), METHODS.index(row["method"])


def with_share(split: Split, share: float | None, seed: int) -> Split:
    """The split with strangers as `share` of its pool, or with a pool out of thin air."""
    if share is not None:
        return split.contaminated(share, seed)
    synthetic_outliers = split.contaminated(0.0, seed)
    x, rng = split.task.x_obs, torch.Generator().manual_seed(seed)
    low, high = x.amin(0), x.amax(0)
    synthetic_outliers.task.pool = TensorPool(low + (high - low) * torch.rand(x.shape, generator=rng))
    return synthetic_outliers
