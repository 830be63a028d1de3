"""A frozen trunk is a change of inputs: features are computed once, and a GPN is fitted on them.

g(x, z) = head(φ(x), z),   a prior over functions of φ(x), and only the head is trained.
"""

import torch

from gpn.core.input_features import Frozen
from gpn.core.networks import MLPTrunk, ModuleTrunk
from gpn.core.pool import TensorPool
from gpn.core.task import Task
from gpn.core.types import as_generator
from gpn.methods.gpn.batches import kept_rows
from gpn.methods.gpn.config import GPNConfig
from gpn.methods.gpn.posterior import GPNPosterior, make_posterior


def is_frozen(config: GPNConfig) -> bool:
    return isinstance(config.trunk, ModuleTrunk) and config.trunk.is_frozen


def on_features(
    config: GPNConfig, task: Task, seeds: torch.Generator
) -> tuple[GPNConfig, Task, Frozen]:
    """The head's configuration, the task with features for rows, and what computes them."""
    if task.augment is not None:
        raise ValueError(
            "a frozen trunk sees every row once, so that a task must have augment=None, got one "
            "that changes rows at each step; leave it out, or use ModuleTrunk(frozen=False)."
        )
    trunk, rng = config.trunk, as_generator(seeds, task.x_obs.device)
    assert isinstance(trunk, ModuleTrunk)
    features, _ = trunk.features(task.input_shape, seeds)
    assert isinstance(features, Frozen)
    features.to(task.x_obs)
    rows = kept_rows(config, task, task.required_pool("a GPN"), rng)
    seen = features.fit(torch.cat([task.x_obs, rows])).split([len(task.x_obs), len(rows)])
    head = MLPTrunk(widths=trunk.widths, activation=trunk.activation, dropout=trunk.dropout)
    return config.replace(trunk=head, made_up=0.0), task.on(seen[0], TensorPool(seen[1])), features


def on_rows(head: GPNPosterior, features: Frozen, config: GPNConfig, task: Task) -> GPNPosterior:
    """The posterior of rows, from that of their features; `config` is the one asked for."""
    head.generator.features = features
    found = config.replace(beta=head.config.beta, noise_std=head.config.noise_std)
    return make_posterior(head.generator, task.signature, found, head.report)
