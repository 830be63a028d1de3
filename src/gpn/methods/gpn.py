"""Generative Posterior Networks (Roderick, Berkenkamp, Sheikholeslami and Kolter 2022).

One network g(x, z); each code z ~ N(0, I) is one function from the posterior. For anchors
j = 1..k with prior networks θ_j and codes z_j, and pool points x' ~ P_sample, training minimises

    mean_j [ data(g(x_obs, z_j + ε), y_obs) + β ‖g(x', z_j + ε) − f(x'; θ_j)‖² ]
    + KL(N(z̄, s_z) ‖ N(0, I))
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from gpn.core.config import Config, require_one_of, require_positive
from gpn.core.embedding import Embedding
from gpn.core.generator import ConcatGenerator, Generator
from gpn.core.networks import MLPTrunk, Trunk
from gpn.core.objective import Batch, StoredAnchors, paper_terms
from gpn.core.pool import Pool
from gpn.core.posterior import FunctionBatch, Posterior
from gpn.core.prior import MLPPrior, PriorSpec
from gpn.core.task import Signature, Task
from gpn.core.train import History, LabelBatches, Terms, TrainConfig, train
from gpn.core.types import Rng, as_generator, normal
from gpn.progress import progress_bar


@dataclass(frozen=True, kw_only=True)
class GPNConfig(Config):
    """Settings of a GPN; the names are the paper's where it has one.

    n_anchors, code_dim
        k prior functions, each with a code of q dimensions; k must exceed q.
    beta
        Weight of the pull towards the prior on the pool.
    code_noise
        Standard deviation of ε. The paper writes 1, at which most of the spread is lost.
    pairing
        "every": each anchor sees each row (exact). "one": each row draws one anchor (unbiased,
        and the price of one ordinary network).
    """

    n_anchors: int = 100
    code_dim: int = 10
    beta: float = 0.1
    code_noise: float = 0.1
    pairing: str = "every"
    prior: PriorSpec = field(default_factory=MLPPrior)
    trunk: Trunk = field(default_factory=MLPTrunk)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        require_positive(self, "n_anchors", "code_dim", "beta")
        require_one_of(self, "pairing", ("every", "one"))
        if self.code_noise < 0:
            raise ValueError(f"code_noise must not be negative, got {self.code_noise}.")

    @classmethod
    def paper(cls, **changes: Any) -> "GPNConfig":
        """The paper's hyper-parameters: k = 100, 10 code dimensions, β = 0.1, tanh, 40 and 10."""
        paper = {
            "n_anchors": 100,
            "code_dim": 10,
            "beta": 0.1,
            "prior": MLPPrior(prior_variance=(40.0, 10.0), activation="tanh"),
        }
        return cls(**{**paper, **changes})


class GPN:
    """The method: `GPN(config).fit(task, rng=0)` gives a posterior."""

    def __init__(self, config: GPNConfig | None = None) -> None:
        self.config = GPNConfig() if config is None else config

    def fit(self, task: Task, rng: Rng = None, *, progress: bool | None = None) -> "GPNPosterior":
        """Train one generator on the task; `progress` None shows a bar on a terminal."""
        config = self.config
        pool, seeds = _pool(task), as_generator(rng)
        device, dtype = config.train.pick_device(), config.train.pick_dtype(task.x_obs)
        anchors = self._anchors(task, seeds).to(device, dtype)
        anchors.prior = anchors.prior.to(device, dtype)
        terms = _step(config, anchors, task.to(device, dtype), pool, as_generator(seeds, device))
        with progress_bar("GPN", show=progress) as report:
            history = train(anchors, terms, config.train, report)
        return GPNPosterior(anchors.generator, task.signature, config, history)

    def _anchors(self, task: Task, seeds: torch.Generator) -> StoredAnchors:
        config = self.config
        prior = config.prior.sample(task.input_shape, task.n_outputs, config.n_anchors, seeds)
        embedding = Embedding(config.n_anchors, config.code_dim, seeds)
        generator = ConcatGenerator(
            config.trunk, task.input_shape, task.n_outputs, config.code_dim, seeds
        )
        return StoredAnchors(generator, embedding, prior, config.code_noise)


class GPNPosterior(Posterior):
    """Functions x → g(x, z) with z ~ N(0, I)."""

    def __init__(
        self, generator: Generator, signature: Signature, config: GPNConfig, history: History
    ) -> None:
        example = next(generator.parameters())
        super().__init__(signature, example.device, example.dtype)
        self.generator = generator.eval().requires_grad_(False)  # noqa: FBT003
        self.config = config
        self.history = history

    def functions(self, n: int, rng: torch.Generator) -> FunctionBatch:
        like = next(self.generator.parameters())
        codes = normal((n, self.generator.code_dim), rng, like)
        return partial(self.generator, codes=codes)


def _pool(task: Task) -> Pool:
    if task.pool is None:
        raise ValueError(
            "a GPN must have a pool of unlabeled inputs, got pool=None; pass Task(x, y, pool=...) "
            "with unlabeled rows, or gpn.box(low, high) to make some up."
        )
    return task.pool


def _step(
    config: GPNConfig, anchors: StoredAnchors, task: Task, pool: Pool, rng: torch.Generator
) -> Any:
    """The function that the loop calls at each step: a batch, its pairs, their loss terms."""
    labels = LabelBatches(len(task.x_obs), config.train.label_batch, rng)
    pair = {"every": anchors.every_row, "one": anchors.one_per_row}[config.pairing]

    def terms() -> Terms:
        rows = labels.next()
        x_pool = pool.draw(config.train.pool_batch, rng)
        batch = Batch(task.x_obs[rows], task.y_obs[rows], rows, x_pool)
        return paper_terms(pair(batch, rng), batch.y_obs, anchors.embedding.codes, config.beta)

    return terms
