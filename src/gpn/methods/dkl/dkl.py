"""Deep kernel learning on a grid (Wilson, Hu, Salakhutdinov and Xing 2016a, b; KISS-GP).

A network e maps x into the box [−1, 1]^d. A Gaussian process per output is defined there by its
values u at the nodes of a grid, with cubic interpolation between them:

    f(x) = w(e(x))·u,    u ~ N(μ 1, K_grid),    q(u) = N(m, S)
    loss = −(1/N) [ Σ_i E_q log p(y_i | f(x_i)) − KL(q(u) ‖ p(u)) ]

Adam trains network, kernel, mean and noise; natural gradients train q(u). For regression the last
natural step has length one and uses all labels, which makes q(u) exact (its likelihood is
conjugate). For classes the network is pretrained with an ordinary last layer, as in the original:
q(u) starts at the prior, where its small steps give an untrained network little gradient.

Differences from the original: tanh squashes the embedding, instead of a rescaling per batch, so
that a draw is one smooth function of x; regression has no pretraining, because its natural steps
are long from the start. GPyTorch does the Gaussian-process mathematics.
"""

from dataclasses import dataclass, field
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpn.core.config import (
    require_counts,
    require_not_negative,
    require_positive,
    require_positive_if_given,
)
from gpn.core.losses import cross_entropy
from gpn.core.networks.encodings import fit_features
from gpn.core.networks.layers import build_sequential, mlp
from gpn.core.networks.trunks import MLPTrunk, ModuleTrunk, Trunk
from gpn.core.task import Signature, Task
from gpn.core.types import Inputs, as_generator
from gpn.methods.dkl.grid import GridProcess, NaturalGradient, interpolation
from gpn.methods.linear_gaussian import CHUNK_ROWS, Features, LinearGaussianPosterior
from gpn.methods.network_method import NetworkConfig, NetworkMethod, Train
from gpn.training.batches import LabelBatches
from gpn.training.config import TrainConfig
from gpn.training.cuda_graphs import TrainStep
from gpn.training.state import Terms
from gpn.training.torch_state import seeded_global_rng

MAX_NODES = 4096


@dataclass(frozen=True, kw_only=True)
class DKLConfig(NetworkConfig):
    """Settings of a deep-kernel process.

    embedding_dim, grid_size
        d, and nodes per axis; the grid has grid_size^d nodes.
    length_scale, noise_std
        Initial values of the kernel's length scale in [−1, 1]^d and of a regression's noise.
    natural_rate
        Length of the natural-gradient steps of q(u) during training. None is 0.1 for regression,
        whose likelihood is conjugate, and 0.003 for classes, where longer steps do not converge.
    alone
        For classes: pretraining steps of the network, as a fraction of `train.steps`.
    """

    embedding_dim: int = 2
    grid_size: int = 16
    length_scale: float = 0.3
    noise_std: float = 0.2
    natural_rate: float | None = None
    alone: float = 1.0
    trunk: Trunk = field(default_factory=MLPTrunk)
    train: TrainConfig = field(
        default_factory=lambda: TrainConfig(learning_rate=1e-3, weight_decay=1e-2)
    )

    def __post_init__(self) -> None:
        require_counts(self, "embedding_dim", "grid_size")
        require_positive(self, "length_scale", "noise_std")
        require_not_negative(self, "alone")
        require_positive_if_given(self, "natural_rate")
        if self.grid_size < 4:
            raise ValueError(f"grid_size must be at least 4 to interpolate, got {self.grid_size}.")
        if self.grid_size**self.embedding_dim > MAX_NODES:
            raise ValueError(
                f"grid_size ** embedding_dim must be at most {MAX_NODES} nodes, got "
                f"{self.grid_size} ** {self.embedding_dim}; use a smaller grid or fewer dimensions."
            )


class DKL(NetworkMethod[DKLConfig, "DKLPosterior"]):
    """The method: `DKL(config).fit(task, rng=0)` returns a posterior."""

    config_class = DKLConfig

    def _fit(self, task: Task, seeds: torch.Generator, train: Train) -> "DKLPosterior":
        """Train embedding and process together; a regression ends with its exact q(u)."""
        config = self.config
        embedding = Embedding(config, task.signature, seeds).to(task.x_obs)
        size, dim, scale = config.grid_size, config.embedding_dim, config.length_scale
        process = GridProcess(size, dim, scale, config.noise_std, task.signature)
        process.to(task.x_obs.device)
        fit_features(embedding.features, lambda: task.x_obs)
        rate = config.natural_rate or (0.003 if task.is_classification else 0.1)
        with seeded_global_rng(seeds) as generators:
            if task.is_classification and config.alone > 0:
                _pretrain(embedding, task, config, seeds, train)
            embedding.spread(task.x_obs[:CHUNK_ROWS])
            batches = LabelBatches(len(task.x_obs), config.train.label_batch, seeds)
            natural = NaturalGradient(process, embedding, task, batches, rate)
            scales = process.hyperparameters
            learnt, streams = [embedding, *scales], [*batches.streams, natural, *generators]
            train(nn.ModuleList(learnt), natural.loss_terms, undecayed=scales, streams=streams)
            if not task.is_classification:
                natural.solve()
        return DKLPosterior(embedding, *process.posterior(), task.signature, config)


def _pretrain(
    embedding: "Embedding", task: Task, config: DKLConfig, seeds: torch.Generator, train: Train
) -> None:
    """Minimise the cross-entropy with an ordinary last layer in place of the embedding's."""
    last = build_sequential(lambda: [nn.Linear(config.trunk.widths[-1], task.n_outputs)], seeds)
    network = nn.Sequential(embedding.features, embedding.layers[:-1], last.to(task.x_obs))
    batches = LabelBatches(len(task.x_obs), config.train.label_batch, seeds)

    def rows() -> tuple[Tensor, Tensor]:
        picked = batches.next().to(task.x_obs.device)
        return task.augmented(task.x_obs[picked], batches.rng), task.y_obs[picked]

    def loss_terms(x: Tensor, y: Tensor) -> Terms:
        return {"pretraining": cross_entropy(network(x)[None], y).mean()}

    steps = max(1, round(config.alone * config.train.steps))
    step = TrainStep(rows, loss_terms, graph_safe=not isinstance(config.trunk, ModuleTrunk))
    with seeded_global_rng(seeds) as generators:
        streams = [*batches.streams, *generators]
        train(network, step, config=config.train.replace(steps=steps), streams=streams)


class Embedding(nn.Module):
    """x → a point of the box (−1, 1)^d."""

    def __init__(self, config: DKLConfig, signature: Signature, rng: torch.Generator) -> None:
        super().__init__()
        trunk = config.trunk
        self.features, size = trunk.features(signature.input_shape, rng)
        sizes = (size, *trunk.widths, config.embedding_dim)
        self.layers = build_sequential(lambda: mlp(sizes, trunk.activation, trunk.dropout), rng)

    def forward(self, x: Inputs) -> Float[Tensor, "n e"]:
        return self.layers(self.features(x)).tanh()

    @torch.no_grad()
    def spread(self, x: Inputs, std: float = 0.5) -> None:
        """Rescale the last layer so that the rows of `x` fill the box before training."""
        last, raw = cast(nn.Linear, self.layers[-1]), self.layers(self.features(x))
        scale = std / raw.std(0, correction=0).clamp_min(1e-6)
        last.weight.mul_(scale[:, None])
        last.bias.sub_(raw.mean(0)).mul_(scale)


class DKLPosterior(LinearGaussianPosterior):
    """Functions x → w(e(x))·u with u ~ q(u)."""

    def __init__(
        self,
        embedding: Embedding,
        grid: Float[Tensor, "g e"],
        grid_mean: Float[Tensor, "o u"],
        grid_root: Float[Tensor, "o u u"],
        noise_std: float | None,
        signature: Signature,
        config: DKLConfig,
    ) -> None:
        super().__init__(embedding, grid_mean.T, grid_root, noise_std, signature, config)
        self.grid = grid

    def features(self, x: Inputs) -> Features:
        return interpolation(self.grid, self.network(x))

    def tensors(self) -> dict[str, Tensor]:
        network = self.network.state_dict(prefix="embedding.")
        grid = {"grid": self.grid, "grid_mean": self.weights.T, "grid_root": self.root}
        noise_std = torch.tensor(self.noise_std or 0.0, dtype=torch.float64)
        return {**network, **grid, "noise_std": noise_std}

    @classmethod
    def restore(
        cls, config: DKLConfig, signature: Signature, tensors: dict[str, Tensor]
    ) -> "DKLPosterior":
        embedding, prefix = Embedding(config, signature, as_generator(0)), "embedding."
        state = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        example = next(value for value in state.values() if value.is_floating_point())
        embedding.to(example).load_state_dict(state)
        q_u = tensors["grid"], tensors["grid_mean"], tensors["grid_root"]
        return cls(embedding, *q_u, float(tensors["noise_std"]) or None, signature, config)
