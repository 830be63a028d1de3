"""Mixture-aware pool weights: rows that look like labeled ones are anchored less.

A pool is often a mixture π p_labeled + (1 − π) p_other. A classifier of labeled against pool rows
estimates the density ratio r = p_labeled / p_pool, which is 1/π wherever only labeled-like rows
live; a pool row then is labeled-like with probability π r, and its weight is 1 − π r.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from gpn.core.generator import AffineGenerator
from gpn.core.networks import Trunk
from gpn.core.train import History, LabelBatches, Report, Terms, TrainConfig, train
from gpn.core.types import Inputs, as_generator

FLOOR = 0.05


@dataclass(frozen=True)
class MixtureWeights:
    """One weight per pool row, in [FLOOR, 1], and the estimated share π of labeled-like rows."""

    weights: Float[Tensor, "R"]
    labeled_share: float


def mixture_weights(
    x_obs: Inputs,
    x_pool: Float[Tensor, "R *d"],
    trunk: Trunk,
    config: TrainConfig,
    rng: torch.Generator,
    report: Report,
) -> MixtureWeights:
    """Train the classifier and turn its density ratios into weights; `rng` is a CPU generator."""
    network = AffineGenerator(trunk, tuple(x_obs.shape[1:]), 1, 0, rng).to(x_obs)
    _train_ratio(network, x_obs, x_pool, config, as_generator(rng, x_obs.device), report)
    log_ratio_obs, log_ratio_pool = _log_ratio(network, x_obs), _log_ratio(network, x_pool)
    share = float((-log_ratio_obs.median()).exp().clamp(max=1.0))
    labeled_like = (share * log_ratio_pool.exp()).clamp(0.0, 1.0)
    return MixtureWeights((1 - labeled_like).clamp_min(FLOOR), share)


def _train_ratio(
    network: AffineGenerator,
    x_obs: Inputs,
    x_pool: Float[Tensor, "R *d"],
    config: TrainConfig,
    rng: torch.Generator,
    report: Report,
) -> History:
    labels = LabelBatches(len(x_obs), config.label_batch, rng)
    pool = LabelBatches(len(x_pool), config.label_batch, rng)

    def terms() -> Terms:
        ours, theirs = x_obs[labels.next()], x_pool[pool.next()]
        logits = network.columns(torch.cat([ours, theirs]))[0, :, 0]
        on_obs, on_pool = logits.split([len(ours), len(theirs)])
        obs_loss = functional.softplus(-on_obs).mean()
        return {"labeled": obs_loss, "pool": functional.softplus(on_pool).mean()}

    return train(network, terms, config, report)


@torch.no_grad()
def _log_ratio(network: AffineGenerator, x: Inputs) -> Float[Tensor, "n"]:
    return torch.cat([network.columns(part)[0, :, 0] for part in x.split(4096)])
