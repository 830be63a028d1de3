"""Mixture-aware pool weights: rows that look like labeled ones are anchored less.

A pool is often a mixture π p_labeled + (1 − π) p_other. A classifier of labeled against pool rows
estimates the density ratio r = p_labeled / p_pool, which is 1/π wherever only labeled-like rows
live; a pool row then is labeled-like with probability π r, and its weight is 1 − π r. Two
classifiers learn from one half of all rows each and judge the other half, so that rows learnt by
heart do no harm.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
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
    """Cross-fit the classifier and turn its density ratios into weights; `rng` is on the CPU."""
    halves_obs, halves_pool = _halves(x_obs, rng), _halves(x_pool, rng)
    labeled_like = torch.empty(len(x_pool), device=x_pool.device, dtype=x_pool.dtype)
    for learn, judge in ((0, 1), (1, 0)):
        network = AffineGenerator(trunk, tuple(x_obs.shape[1:]), 1, 0, rng).to(x_obs)
        rows = x_obs[halves_obs[learn]], x_pool[halves_pool[learn]]
        _train_ratio(network, *rows, config, as_generator(rng, x_obs.device), report)
        level = _log_ratio(network, x_obs[halves_obs[judge]]).median()
        log_ratio = _log_ratio(network, x_pool[halves_pool[judge]])
        labeled_like[halves_pool[judge]] = (log_ratio - level).exp().clamp(max=1.0)
    return MixtureWeights((1 - labeled_like).clamp_min(FLOOR), float(labeled_like.mean()))


def _halves(rows: Inputs, rng: torch.Generator) -> tuple[Int[Tensor, "a"], Int[Tensor, "b"]]:
    """The numbers of two random halves; of a single row, that row twice."""
    order = torch.randperm(len(rows), generator=rng).to(rows.device)
    middle = len(order) // 2
    return (order[:middle], order[middle:]) if middle else (order, order)


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
