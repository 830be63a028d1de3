"""The networks that are timed: a GPN's own, and the same trunk with an ordinary head."""

import copy
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.place import Place
from gpn import GPNConfig, TrainConfig
from gpn.core.networks.trunks import Trunk
from gpn.core.priors.prior import MLPPrior
from gpn.core.types import as_generator
from gpn.methods.gpn.fitting.build import TrainingProblem, build_problem
from gpn.methods.gpn.fitting.context import Setting
from gpn.methods.gpn.fitting.fit import step_of
from gpn.methods.gpn.model.generator import AffineGenerator
from gpn.training.batches import LabelBatches
from gpn.training.cuda_graphs import TrainStep
from gpn.training.loop import optimiser_of, step_slopes
from gpn.training.state import Terms, TrainingState

ENDLESS = 1_000_000


def plain_network(
    place: Place, task: str, trunk: Trunk | None = None, seed: int = 0
) -> AffineGenerator:
    """The trunk with one number per class (or target) on top: no code, so no columns but b."""
    signature = place.split(task).task.signature
    under = trunk or place.plan(task).trunk
    shape = signature.input_shape, signature.n_outputs
    network = AffineGenerator(under, *shape, code_dim=0, rng=as_generator(seed))
    return network.to(place.device, torch.float32)


def plain_feed(place: Place, task: str, network: AffineGenerator, batch: int) -> TrainStep:
    """Cross-entropy on labels alone, with the same augmentation."""
    known, rng = place.split(task).task, as_generator(0, place.device)
    labels = LabelBatches(len(known.x_obs), batch, rng)

    def rows() -> tuple[Tensor, Tensor]:
        picked = labels.next()
        return known.augmented(known.x_obs[picked], rng), known.y_obs[picked]

    def terms(x: Tensor, y: Tensor) -> Terms:
        return {"data": functional.cross_entropy(network.columns(x)[0], y)}

    return TrainStep(rows, terms)


def gpn_parts(place: Place, task: str, trunk: Trunk, **changes: Any) -> TrainingProblem:
    """What a GPN trains on the task, before its first step."""
    return _parts(place, task, trunk, tuple(changes.items()))


@lru_cache(maxsize=1)
def _parts(
    place: Place, task: str, trunk: Trunk, changes: tuple[tuple[str, Any], ...]
) -> TrainingProblem:
    plan, known = place.plan(task), place.split(task).task
    wanted = {"beta": place.beta(task), "trunk": trunk, "train": plan.train, **dict(changes)}
    config = GPNConfig(**wanted).resolved(known)
    parts_of = config.prior or MLPPrior(), trunk, plan.train
    pool, seeds = known.required_pool("a GPN"), as_generator(0)
    return build_problem(Setting(config, *parts_of, known, pool, seeds, lambda *_: None))


@dataclass
class Training:
    """Some steps of a training, and some more whenever it is called."""

    state: TrainingState
    slopes: Any
    steps: int

    def __call__(self) -> None:
        for _ in range(self.steps):
            _, values = self.slopes()
            self.state.advance(values)
        self.state.recent.clear()


def training(module: torch.nn.Module, feed: TrainStep, config: TrainConfig, steps: int) -> Training:
    """The loop of `gpn.training.loop` without its checks, so that it has no end."""
    endless = config.replace(steps=ENDLESS)
    state = TrainingState(module, *optimiser_of(module, endless), ENDLESS, [])
    return Training(state, step_slopes(feed, state.optimiser, config), steps)


def gpn_training(place: Place, parts: TrainingProblem, config: TrainConfig, steps: int) -> Training:
    """Training of a copy: several of the same parts may be timed in turn."""
    own = replace(parts, objective=copy.deepcopy(parts.objective))
    return training(own.objective, step_of(own, as_generator(0, place.device)), config, steps)
