"""OOD AUC as OOD rows become rare in the pool, and without any pool.

OOD rows are 50, 10, 1 and 0 % of a pool whose other rows are the labeled ones; "none" is a
synthetic pool, uniform over each feature's range. Hyperparameters are those that the protocol
chose, and fits take a quarter of its steps. Writes `results/<task>/pool-share.json`, and keeps its
rows of other seeds and methods.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from experiments import harness
from experiments.paper.context import Log, RunContext
from experiments.paper.evaluate import evaluate
from experiments.paper.protocol import draws_of, fit
from experiments.paper.resume import Row, load_run, matches, merge_rows, read_rows, row_key
from experiments.paper.tasks.split import Split
from gpn.core.pools.base import TensorPool

SHARES: dict[str, float | None] = {"50%": 0.5, "10%": 0.1, "1%": 0.01, "0%": 0.0, "none": None}
STEPS_SHARE = 0.25
METHODS = ("gpn", "gpn-paper", "ensemble-or")
SHOWN = ("device", "seconds", "metrics")


def run_contamination(
    context: RunContext,
    log: Log = print,
    seed: int | None = None,
    methods: Sequence[str] = METHODS,
) -> Path:
    """Every method at every share for every seed (or only `seed`), except finished runs.

    Each run has its own file under `runs/`, so that several processes can divide the work.
    """
    path, all_seeds = context.file("pool-share"), range(context.plan.seeds)
    seeds, earlier = all_seeds if seed is None else [seed], read_rows(path, context.quick)
    for run in _runs(context, methods, seeds):
        if run.saved(earlier) is None:
            run.fit(log)
    runs, earlier = _runs(context, methods, {*all_seeds, *seeds}), read_rows(path, context.quick)
    return merge_rows(context, path, filter(None, [run.saved(earlier) for run in runs]), _key)


@dataclass(frozen=True)
class ContaminationRun:
    """One method at one share of OOD rows with one seed."""

    context: RunContext
    method: str
    share: str
    seed: int

    @property
    def path(self) -> Path:
        return self.context.file(f"runs/{self.method}-share-{self.share.rstrip('%')}-{self.seed}")

    @property
    def key(self) -> Row:
        which = {"share": self.share, "seed": self.seed}
        return row_key(self.context, self.method, self.build(), **which)

    def build(self) -> Any:
        return self.context.method(self.method, self.context.chosen(self.method), STEPS_SHARE)

    def saved(self, summary: list[Row]) -> Row | None:
        """The row in the run's own file, else in the summary."""
        key = self.key
        if harness.load(self.path) is None:
            return next((row for row in summary if matches(key, row)), None)
        run = load_run(self.path, {**key, "quick": self.context.quick}, self.build())
        return None if run is None else {**key, **{name: run.get(name) for name in SHOWN}}

    def fit(self, log: Log) -> None:
        split = contaminated(self.context.split(self.seed).merged(), self.share, self.seed)
        posterior, facts = fit(self.context, split, self.build(), self.seed)
        metrics = evaluate(posterior, split.test, split.unseen, draws_of(self.method))
        run = f"{self.context.name} {self.method} seed {self.seed}"
        log(f"{run}: OOD share {self.share:5s} ood_auc {metrics['ood_auc']:.4f}")
        report = {**self.key, **facts, "quick": self.context.quick, "metrics": metrics}
        harness.save(self.path, report)


def _runs(
    context: RunContext, methods: Sequence[str], seeds: Iterable[int]
) -> list[ContaminationRun]:
    return [
        ContaminationRun(context, method, share, seed)
        for seed in sorted(seeds)
        for share in SHARES
        for method in methods
    ]


def _key(row: Row) -> tuple[int, int, int]:
    """Rows with one key are the same row; keys are in the order of the file."""
    return row["seed"], list(SHARES).index(row["share"]), METHODS.index(row["method"])


def contaminated(split: Split, share: str, seed: int) -> Split:
    """The split with that share of OOD rows in its pool, or with a uniform synthetic pool."""
    value = SHARES[share]
    if value is not None:
        return split.contaminated(value, seed)
    uniform = split.contaminated(0.0, seed)
    x, rng = split.task.x_obs, torch.Generator().manual_seed(seed)
    low, high = x.amin(0), x.amax(0)
    uniform.task.pool = TensorPool(low + (high - low) * torch.rand(x.shape, generator=rng))
    return uniform
