"""Whole fits: seconds until one is good enough, and many fits as one tensor axis."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from benchmarks.context import BenchmarkContext
from benchmarks.harness import Row, in_turn, ratio
from benchmarks.networks import Work, default_train
from experiments.harness import timed_fit
from experiments.paper.evaluate import evaluate
from gpn import GPN, GPNConfig, MLPTrunk, TrainConfig
from gpn.data import six_points
from gpn.methods.ensemble import Ensemble, EnsembleConfig
from gpn.methods.gpn import fit_many

MIN_ACCURACY, MIN_IMAGE_AUC, MAX_IMAGE_SECONDS = 0.80, 0.96, 6
MIN_TABLE_AUC, MAX_TABLE_SECONDS, N_THREADS = 0.97, 60, 2
SHORT_STEPS, SHORT_BETA = 500, 0.3
N_FITS, AXIS_STEPS, AXIS_REPEATS = 10, 200, 5


@dataclass(frozen=True)
class Variant:
    """A length of training with its batches, and other changes of the experiments' GPN."""

    steps: int
    label_batch: int = 256
    pool_batch: int = 256
    learning_rate: float = 1e-3
    trunk: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        changes = ", ".join(f"{k}={v}" for k, v in {**self.trunk, **self.config}.items())
        batches = f"{self.label_batch} + {self.pool_batch} rows"
        return f"{self.steps} steps of {batches}, rate {self.learning_rate:g}, {changes or 'as is'}"

    def build(self, context: BenchmarkContext, steps: int | None = None) -> GPN:
        """The experiments' GPN on CIFAR-10 with this variant's changes."""
        plan = context.plan("cifar10")
        train = plan.train.replace(
            steps=steps or context.size(self.steps, 5),
            label_batch=context.size(self.label_batch, 16),
            pool_batch=context.size(self.pool_batch, 16),
            learning_rate=self.learning_rate,
            weight_decay=plan.weight_decay,
        )
        trunk, beta = plan.gpn_trunk.replace(**self.trunk), context.beta("cifar10")
        return GPN(GPNConfig(beta=beta, trunk=trunk, train=train, **self.config))


LIGHT = {"dropout": 0.1}
VARIANTS = (
    Variant(2000),
    Variant(1500, learning_rate=2e-3, trunk=LIGHT),
    Variant(1000, 512, 256, 2e-3, LIGHT),
    Variant(1500, 512, 256, 2e-3, LIGHT),
    Variant(1500, 512, 128, 2e-3, LIGHT, {"pool_weights": "equal"}),
    Variant(2000, 512, 128, 2e-3, {**LIGHT, "halve_by": "stride"}),
)


def six_seconds(context: BenchmarkContext) -> Iterator[Row]:
    """CIFAR-10 against SVHN on the paper's trunk: seconds to 80 % accuracy and AUC 0.96."""
    split, fastest = context.split("cifar10"), None
    for variant in VARIANTS[4:5] if context.quick else VARIANTS:
        variant.build(context, steps=5).fit(split.task, rng=1)
        posterior, taken = timed_fit(variant.build(context), split.task, 0)
        measured = evaluate(posterior, split.test)
        yield from _rows(str(variant), taken, measured, ("accuracy", "ood_auc"))
        good = measured["accuracy"] >= MIN_ACCURACY and measured["ood_auc"] >= MIN_IMAGE_AUC
        if good and (fastest is None or taken < fastest):
            fastest = taken
    target = f"accuracy {MIN_ACCURACY} and AUC {MIN_IMAGE_AUC}"
    against = f"{target} (at most {MAX_IMAGE_SECONDS} s wanted)"
    yield Row("the fastest that is good enough", fastest, "s" if fastest else "none", against)


def superconductor_cpu(context: BenchmarkContext) -> Iterator[Row]:
    """Superconductor on two CPU threads: the default, and with β given and fewer steps."""
    on_cpu = BenchmarkContext(torch.device("cpu"), context.results, context.quick)
    split, threads = on_cpu.split("superconductor"), context.size(N_THREADS, 1)
    train = default_train(on_cpu)
    short = train.replace(steps=context.size(SHORT_STEPS, 3))
    configs = {
        f"β = {SHORT_BETA}, {short.steps} steps": GPNConfig(beta=SHORT_BETA, train=short),
        f"default, {train.steps} steps": GPNConfig(train=train),
    }
    with _limit_cores(threads):
        for name, config in configs.items():
            cpu_time = time.process_time()
            posterior, taken = timed_fit(GPN(config), split.task, 0)
            cpu_time = time.process_time() - cpu_time
            measured = evaluate(posterior, split.test)
            what = f"{name}, {len(split.task.x_obs)} labels, {threads} cores"
            yield from _rows(what, taken, measured, ("id_loss", "id_width", "ood_auc"))
            yield Row(f"{what}: processor time of all threads", cpu_time, "s")
            good = measured["ood_auc"] >= MIN_TABLE_AUC
            against = f"AUC {MIN_TABLE_AUC} (at most {MAX_TABLE_SECONDS} s wanted)"
            unit = "s" if good else "none"
            yield Row(f"{what}: wall time to AUC", taken if good else None, unit, against)


@contextmanager
def _limit_cores(count: int) -> Iterator[None]:
    """No more than `count` cores, for torch and for scikit-learn (on Linux)."""
    threads, cores = torch.get_num_threads(), os.sched_getaffinity(0)
    torch.set_num_threads(count)
    os.sched_setaffinity(0, sorted(cores)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
        torch.set_num_threads(threads)


def _rows(
    what: str, taken: float, measured: dict[str, float], names: tuple[str, ...]
) -> Iterator[Row]:
    yield Row(f"{what}: fit", taken, "s")
    for name in names:
        yield Row(f"{what}: {name}", measured[name], name)


def ensemble_axis(context: BenchmarkContext) -> Iterator[Row]:
    """Ten members as one tensor axis, against ten separate fits (2 × 128, six labels)."""
    steps, task = context.size(AXIS_STEPS, 3), six_points()
    config = EnsembleConfig(
        regularise="parameters",
        n_members=N_FITS,
        trunk=MLPTrunk(widths=(128, 128), activation="relu"),
        train=TrainConfig(steps=steps, device=str(context.device)),
    )

    def separate() -> None:
        for seed in range(N_FITS):
            Ensemble(config.replace(n_members=1)).fit(task, rng=seed, progress=False)

    works: dict[str, Work] = {
        "one axis": lambda: Ensemble(config).fit(task, rng=0, progress=False),
        "separate fits": separate,
    }
    what = f"{N_FITS} members, {steps} steps"
    yield from _one_axis_against_separate(context, what, works, " (at most 0.25 wanted)")


def many_fits(context: BenchmarkContext) -> Iterator[Row]:
    """Ten β and seeds of a GPN on superconductor by `fit_many`, against ten separate fits."""
    plan, task = context.plan("superconductor"), context.split("superconductor").task
    steps, seeds = context.size(AXIS_STEPS, 3), range(N_FITS)
    train = plan.train.replace(steps=steps)
    networks = {"trunk": plan.gpn_trunk, "train": train, "pool_weights": "equal"}
    configs = [GPNConfig(beta=0.1 * (1 + seed), **networks) for seed in seeds]

    def separate() -> None:
        for config, seed in zip(configs, seeds, strict=True):
            GPN(config).fit(task, rng=seed, progress=False)

    works: dict[str, Work] = {
        "one axis": lambda: fit_many(configs, [task] * N_FITS, seeds, progress=False),
        "separate fits": separate,
    }
    yield from _one_axis_against_separate(context, f"{N_FITS} fits, {steps} steps", works)


def _one_axis_against_separate(
    context: BenchmarkContext, what: str, works: dict[str, Work], target: str = ""
) -> list[Row]:
    times = in_turn(works, context.size(AXIS_REPEATS, 1), 1, context.device)
    return ratio(what, times, "one axis", "separate fits", target)
