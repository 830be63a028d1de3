"""Density-ratio classifiers: log p_labeled(x) / p_pool(x), from rows of both."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from gpn.core.networks.encodings import fit_features
from gpn.core.networks.trunks import ModuleTrunk, Trunk
from gpn.core.types import Inputs, as_generator, channels_last
from gpn.methods.gpn.model.generator import AffineGenerator
from gpn.training.batches import LabelBatches
from gpn.training.checkpoint import CheckpointSession
from gpn.training.config import TrainConfig
from gpn.training.cuda_graphs import TrainStep
from gpn.training.loop import train
from gpn.training.progress import OnProgress
from gpn.training.state import Stream, Terms
from gpn.training.torch_state import matmul_precision, seeded_global_rng

LogRatio = Callable[[Inputs], Float[Tensor, "n"]]
N_TREES = 20
MIN_LEAF_ROWS = 5
CHUNK_ROWS = 4096
MIN_NUMBERS_FOR_THREADS = 100_000


class DensityRatioFitter(ABC):
    """Fits log p_labeled / p_pool to rows of both kinds, up to a constant."""

    @abstractmethod
    def fit(self, x_obs: Inputs, x_pool: Float[Tensor, "R *d"]) -> LogRatio:
        """The log ratio as a function of rows."""


@dataclass(frozen=True)
class TreeRatio(DensityRatioFitter):
    """Extremely randomised trees (Geurts et al. 2006): the better classifier of table rows.

    The two kinds of rows weigh the same, so that p / (1 − p) is the ratio. Leaves hold five rows:
    with fewer, a handful of labels would be separated from each other and not from the pool.
    """

    rng: torch.Generator

    def fit(self, x_obs: Inputs, x_pool: Float[Tensor, "R *d"]) -> LogRatio:
        from sklearn.ensemble import ExtraTreesClassifier
        from sklearn.utils.parallel import Parallel, delayed

        trees = ExtraTreesClassifier(
            N_TREES,
            min_samples_leaf=MIN_LEAF_ROWS,
            class_weight="balanced",
            n_jobs=_n_jobs(x_obs.numel() + x_pool.numel()),
            random_state=int(torch.randint(2**31, (), generator=self.rng)),
        )
        is_labeled = torch.cat([torch.ones(len(x_obs)), torch.zeros(len(x_pool))])
        trees.fit(torch.cat([x_obs, x_pool]).cpu().numpy(), is_labeled.numpy())
        trees.n_jobs = 1  # parallel trees would be summed in the order in which they end

        def log_ratio(x: Inputs) -> Float[Tensor, "n"]:
            predict, chunks = delayed(trees.predict_proba), x.cpu().split(CHUNK_ROWS)
            parallel = Parallel(_n_jobs(x.numel()), prefer="threads")
            probabilities = parallel(predict(chunk.numpy()) for chunk in chunks)
            labeled = torch.from_numpy(np.concatenate(probabilities)[:, 1])
            return labeled.clamp(1e-3, 1 - 1e-3).logit().to(x)

        return log_ratio


@dataclass(frozen=True)
class NetworkRatio(DensityRatioFitter):
    """A network on the generator's own kind of trunk: for images, and whatever is not a table.

    With `augmented`, of `Task`, it sees rows anew at each step and cannot learn them by heart.
    """

    trunk: Trunk
    config: TrainConfig
    rng: torch.Generator
    on_progress: OnProgress
    session: CheckpointSession | None = None
    augmented: Callable[[Tensor, torch.Generator], Tensor] | None = None

    def fit(self, x_obs: Inputs, x_pool: Float[Tensor, "R *d"]) -> LogRatio:
        network = AffineGenerator(self.trunk, tuple(x_obs.shape[1:]), 1, 0, self.rng).to(x_obs)
        fit_features(network.features, lambda: x_pool)
        batches = as_generator(self.rng, x_obs.device)
        labels = LabelBatches(len(x_obs), self.config.label_batch, batches)
        pool = LabelBatches(len(x_pool), self.config.label_batch, batches)

        def rows() -> tuple[Tensor]:
            both = torch.cat([x_obs[labels.next()], x_pool[pool.next()]])
            changed = both if self.augmented is None else self.augmented(both, batches)
            return (channels_last(changed),)

        def terms(both: Tensor) -> Terms:
            logits = network.columns(both)[0, :, 0]
            on_obs, on_pool = logits.split([labels.batch, pool.batch])
            obs_loss = functional.softplus(-on_obs).mean()
            return {"labeled": obs_loss, "pool": functional.softplus(on_pool).mean()}

        with seeded_global_rng(self.rng) as global_rngs:
            streams: list[Stream] = [batches, labels, pool, *global_rngs]
            step = TrainStep(rows, terms, graph_safe=not isinstance(self.trunk, ModuleTrunk))
            train(
                network,
                step,
                self.config,
                self.on_progress,
                streams=streams,
                session=self.session,
            )
        network.eval()
        precision = self.config.precision

        @torch.no_grad()
        def log_ratio(x: Inputs) -> Float[Tensor, "n"]:
            half = torch.autocast(x.device.type, torch.bfloat16, enabled=precision == "bf16")
            with matmul_precision(precision), half:
                chunks = (channels_last(chunk) for chunk in x.split(CHUNK_ROWS))
                logits = torch.cat([network.columns(chunk)[0, :, 0] for chunk in chunks])
            return logits.to(x)

        return log_ratio


def _n_jobs(n_numbers: int) -> int:
    """All cores for many numbers; for few, starting threads takes longer than the work."""
    return -1 if n_numbers >= MIN_NUMBERS_FOR_THREADS else 1
