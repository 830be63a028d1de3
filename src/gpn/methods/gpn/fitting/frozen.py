"""A frozen trunk is a change of inputs: features are computed once, and a GPN is fitted on them.

g(x, z) = head(φ(x), z),   a prior over functions of φ(x), and only the head is trained.
"""

import torch

from gpn.core.networks.frozen import FrozenFeatures
from gpn.core.networks.trunks import MLPTrunk, ModuleTrunk
from gpn.core.task import Task
from gpn.core.types import as_generator
from gpn.methods.gpn.config import GPNConfig
from gpn.methods.gpn.pool.stored import StoredPool, store_pool
from gpn.methods.gpn.posterior import GPNPosterior, make_posterior


def on_features(
    config: GPNConfig, task: Task, seeds: torch.Generator
) -> tuple[GPNConfig, Task, FrozenFeatures]:
    """The head's configuration, the task with features for rows, and what computes them."""
    if task.augment is not None:
        raise ValueError(
            "a frozen trunk sees every row once, so that a task must have augment=None, got one "
            "that changes rows at each step; leave it out, or use ModuleTrunk(frozen=False)."
        )
    trunk, rng = config.trunk, as_generator(seeds, task.x_obs.device)
    assert isinstance(trunk, ModuleTrunk)
    features, _ = trunk.features(task.input_shape, seeds)
    assert isinstance(features, FrozenFeatures)
    features.to(task.x_obs)
    kept = store_pool(config, task, task.required_pool("a GPN"), rng)
    x_obs, rows = features.fit(torch.cat([task.x_obs, kept.rows])).split(
        [len(task.x_obs), len(kept)]
    )
    head = MLPTrunk(widths=trunk.widths, activation=trunk.activation, dropout=trunk.dropout)
    seen = task.with_inputs(x_obs, StoredPool(rows, kept.n_real))
    return config.replace(trunk=head, made_up=0.0), seen, features


def on_rows(
    head: GPNPosterior, features: FrozenFeatures, config: GPNConfig, task: Task
) -> GPNPosterior:
    """The posterior of rows, from that of their features; `config` is the one asked for."""
    head.generator.features = features
    found = config.replace(beta=head.config.beta, noise_std=head.config.noise_std)
    return make_posterior(head.generator, task.signature, found, head.report)
