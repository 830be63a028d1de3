"""Two ways to learn log p_labeled(x) / p_pool(x) from rows of both: trees, or a network."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from gpn.core.networks.encodings import fit_features
from gpn.core.networks.trunks import ModuleTrunk, Trunk
from gpn.core.types import Inputs, as_generator, channels_last
from gpn.methods.gpn.model.generator import AffineGenerator
from gpn.methods.gpn.pool.mixture import Learner, LogRatio
from gpn.training.batches import LabelBatches
from gpn.training.checkpoint import CheckpointSession
from gpn.training.config import TrainConfig
from gpn.training.cuda_graphs import TrainStep
from gpn.training.loop import Report, train
from gpn.training.state import Stream, Terms
from gpn.training.torch_state import seeded_global_rng

TREES = 20

LEAF = 5

CHUNK_ROWS = 4096

WORTH_THREADS = 100_000


def tree_ratio(rng: torch.Generator) -> Learner:
    """Extremely randomised trees (Geurts et al. 2006): the better judge of table rows.

    The two kinds of rows weigh the same, so that p / (1 − p) is the ratio. Leaves hold five rows:
    with fewer, a handful of labels would be told from each other and not from the pool.
    """
    from sklearn.ensemble import ExtraTreesClassifier
    from sklearn.utils.parallel import Parallel, delayed

    def learn(x_obs: Inputs, x_pool: Float[Tensor, "R *d"]) -> LogRatio:
        trees = ExtraTreesClassifier(
            TREES,
            min_samples_leaf=LEAF,
            class_weight="balanced",
            n_jobs=_jobs(x_obs.numel() + x_pool.numel()),
            random_state=int(torch.randint(2**31, (), generator=rng)),
        )
        is_labeled = torch.cat([torch.ones(len(x_obs)), torch.zeros(len(x_pool))])
        trees.fit(torch.cat([x_obs, x_pool]).cpu().numpy(), is_labeled.numpy())

        trees.n_jobs = 1  # many at once add up in the order in which they end

        def log_ratio(x: Inputs) -> Float[Tensor, "n"]:
            judge, parts = delayed(trees.predict_proba), x.cpu().split(CHUNK_ROWS)
            at_once = Parallel(_jobs(x.numel()), prefer="threads")
            judged = at_once(judge(part.numpy()) for part in parts)
            share = torch.from_numpy(np.concatenate(judged)[:, 1])
            return share.clamp(1e-3, 1 - 1e-3).logit().to(x)

        return log_ratio

    return learn


def _jobs(numbers: int) -> int:
    """Threads for so many numbers: with few, waiting for the threads takes longest."""
    return -1 if numbers >= WORTH_THREADS else 1


def network_ratio(
    trunk: Trunk,
    config: TrainConfig,
    rng: torch.Generator,
    report: Report,
    file: CheckpointSession | None = None,
) -> Learner:
    """A network on the generator's own kind of trunk: for images, and whatever is not a table."""

    def learn(x_obs: Inputs, x_pool: Float[Tensor, "R *d"]) -> LogRatio:
        network = AffineGenerator(trunk, tuple(x_obs.shape[1:]), 1, 0, rng).to(x_obs)
        fit_features(network.features, lambda: x_pool)
        batches = as_generator(rng, x_obs.device)
        labels = LabelBatches(len(x_obs), config.label_batch, batches)
        pool = LabelBatches(len(x_pool), config.label_batch, batches)

        def rows() -> tuple[Tensor, Tensor]:
            return x_obs[labels.next()], x_pool[pool.next()]

        def terms(ours: Tensor, theirs: Tensor) -> Terms:
            logits = network.columns(channels_last(torch.cat([ours, theirs])))[0, :, 0]
            on_obs, on_pool = logits.split([len(ours), len(theirs)])
            obs_loss = functional.softplus(-on_obs).mean()
            return {"labeled": obs_loss, "pool": functional.softplus(on_pool).mean()}

        with seeded_global_rng(rng) as torchs:
            streams: list[Stream] = [batches, labels, pool, *torchs]
            feed = TrainStep(rows, terms, graph_safe=not isinstance(trunk, ModuleTrunk))
            history = train(network, feed, config, report, streams=streams, kept=file)
        history.require_finished()
        return _judge(network.eval())

    return learn


def _judge(network: AffineGenerator) -> LogRatio:
    @torch.no_grad()
    def log_ratio(x: Inputs) -> Float[Tensor, "n"]:
        return torch.cat([network.columns(part)[0, :, 0] for part in x.split(CHUNK_ROWS)])

    return log_ratio
