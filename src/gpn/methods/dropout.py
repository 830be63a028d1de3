"""MC dropout (Gal and Ghahramani 2016): dropout during training *and* sampling.

A draw is one network under one set of masks m, which keep a hidden unit with probability 1 − p:

    loss = (1/N) Σ_i data(f(x_i; W, m_i), y_i) + λ ‖W‖²,        m_i ~ Bernoulli(1 − p) / (1 − p)

This is variational inference with length scale l and noise σ_ε if λ = (1 − p) l² σ_ε² / N.

Differences from the original: a draw uses *one* mask for all rows, so that it is a function
(`masks="row"` is the original's new mask per row); λ is set directly; masks apply to the features
that a trunk learns, not to raw inputs or inside convolutions; draws have no label noise.
"""

import itertools
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from gpn.core.config import require_not_negative, require_one_of, require_positive
from gpn.core.losses import data_loss
from gpn.core.networks.layers import ACTIVATIONS, build_sequential
from gpn.core.networks.trunks import MLPTrunk, Trunk, require_plain_trunk
from gpn.core.posterior.base import FunctionBatch, Posterior
from gpn.core.task import Signature, Task
from gpn.core.types import Draws, Inputs, as_generator
from gpn.methods.network_method import NetworkConfig, NetworkMethod, Train
from gpn.training.batches import LabelBatches
from gpn.training.config import TrainConfig
from gpn.training.state import History, Terms


@dataclass(frozen=True, kw_only=True)
class DropoutConfig(NetworkConfig):
    """Settings of MC dropout.

    rate
        p, the probability that a hidden unit is dropped.
    weight_decay
        λ, the weight of ‖W‖² in the loss.
    masks
        "function": a draw is one mask for all rows. "row": each row of a draw has its own.
    """

    rate: float = 0.1
    weight_decay: float = 1e-4
    masks: str = "function"
    trunk: Trunk = field(default_factory=lambda: MLPTrunk(activation="relu"))
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        require_positive(self, "rate")
        require_not_negative(self, "weight_decay")
        require_one_of(self, "masks", ("function", "row"))
        if self.rate >= 1:
            raise ValueError(f"rate must be below 1, got rate={self.rate}; try 0.1.")


class Dropout(NetworkMethod[DropoutConfig, "DropoutPosterior"]):
    """The method: `Dropout(config).fit(task, rng=0)` returns a posterior."""

    config_class = DropoutConfig

    def _fit(self, task: Task, seeds: torch.Generator, train: Train) -> "DropoutPosterior":
        """Train one network under random masks; the pool is not used."""
        config = self.config
        network = DropoutNetwork(config.trunk, task.signature, seeds).to(task.x_obs)
        generator = as_generator(seeds, task.x_obs.device)
        trained = [p for p in network.parameters() if p.requires_grad]
        batches = LabelBatches(len(task.x_obs), config.train.label_batch, generator)

        def loss_terms() -> Terms:
            rows = batches.next()
            masks = network.masks(1, len(rows), config.rate, generator)
            fitted = network(task.augmented(task.x_obs[rows], generator), masks)
            decay = config.weight_decay * torch.stack([p.square().sum() for p in trained]).sum()
            return {"data": data_loss(fitted, task.y_obs[rows]).mean(), "decay": decay}

        history = train(network, loss_terms, streams=batches.streams)
        return DropoutPosterior(network, task.signature, config, history)


class DropoutNetwork(nn.Module):
    """A trunk and an output layer, with a mask on the inputs of each linear layer."""

    def __init__(self, trunk: Trunk, signature: Signature, rng: torch.Generator) -> None:
        super().__init__()
        require_plain_trunk(trunk, "a dropout network, which has its own rate,")
        self.features, size = trunk.features(signature.input_shape, rng)
        pairs = itertools.pairwise((size, *trunk.widths, signature.n_outputs))
        self.layers = build_sequential(lambda: [nn.Linear(*pair) for pair in pairs], rng)
        self.activation = ACTIVATIONS[trunk.activation]()
        learnt = next(self.features.parameters(), None) is not None
        self.mask_sizes = (size if learnt else 0, *trunk.widths)

    def masks(self, s: int, n: int, rate: float, rng: torch.Generator) -> list[Tensor]:
        """Bernoulli(1 − p) / (1 − p) of shape (s, n, h) for each layer; ones over raw inputs."""
        like = next(self.layers.parameters())
        masks = [
            torch.rand(s, n, size, generator=rng, device=rng.device) >= rate
            if size
            else torch.full((1, 1, 1), 1 - rate, device=rng.device)
            for size in self.mask_sizes
        ]
        return [mask.to(like.device, like.dtype) / (1 - rate) for mask in masks]

    def forward(self, x: Inputs, masks: list[Tensor]) -> Draws:
        first, *others = self.layers
        hidden = first(self.features(x)[None] * masks[0])
        for layer, mask in zip(others, masks[1:], strict=True):
            hidden = layer(self.activation(hidden) * mask)
        return hidden


class DropoutPosterior(Posterior):
    """Functions x → f(x; W, m) with random masks m."""

    def __init__(
        self,
        network: DropoutNetwork,
        signature: Signature,
        config: DropoutConfig,
        history: History | None = None,
    ) -> None:
        example = next(network.layers.parameters())
        super().__init__(signature, example.device, example.dtype)
        self.network = network.eval().requires_grad_(False)  # noqa: FBT003
        self.config, self.history = config, history

    def functions(self, n: int, rng: torch.Generator) -> FunctionBatch:
        if self.config.masks == "function":
            return partial(self.network, masks=self.network.masks(n, 1, self.config.rate, rng))
        generator = as_generator(rng, self.device)
        start = generator.get_state()

        def batch(x: Inputs) -> Draws:
            generator.set_state(start)  # the same masks at every call
            return self.network(x, self.network.masks(n, len(x), self.config.rate, generator))

        return batch

    def tensors(self) -> dict[str, Tensor]:
        return dict(self.network.state_dict())

    @classmethod
    def restore(
        cls, config: DropoutConfig, signature: Signature, tensors: dict[str, Tensor]
    ) -> "DropoutPosterior":
        network = DropoutNetwork(config.trunk, signature, as_generator(0))
        network.to(tensors["layers.0.weight"]).load_state_dict(tensors)
        return cls(network, signature, config)
