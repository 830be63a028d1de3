"""Epinets (Osband et al. 2023): a small network of an index z makes one network a distribution.

With the last hidden layer h(x) of a base network b, a learnt e and q prior functions p_i that stay
as they were drawn,

    f(x; z) = b(x) + e(x, h(x), z)·z + scale Σ_i z_i p_i(x),        z ~ N(0, I_q)

and training minimises the data term averaged over indices. No gradient of e reaches h: the base
network learns as if it were alone. At z = 0 the function is b.

Differences from the original: λ is set directly, as is the scale of the prior functions, and the
network e itself has no prior function beside the p_i.
"""

import itertools
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from gpn.core.config import require_counts, require_not_negative, require_sizes
from gpn.core.losses import data_loss
from gpn.core.networks.layers import ACTIVATIONS, build_sequential, mlp
from gpn.core.networks.trunks import MLPTrunk, Trunk, require_plain_trunk
from gpn.core.posterior.base import FunctionBatch, Posterior
from gpn.core.priors.prior import FixedFunctions, MLPPrior, PriorSpec
from gpn.core.task import Signature, Task
from gpn.core.types import Codes, Draws, Inputs, as_generator, normal
from gpn.methods.network_method import NetworkConfig, NetworkMethod, Train
from gpn.training.batches import LabelBatches
from gpn.training.config import TrainConfig
from gpn.training.state import History, Terms


def small_networks() -> MLPPrior:
    """Prior functions of the original: two hidden layers of five ReLU units."""
    return MLPPrior(
        widths=(5, 5),
        prior_variance=(1.0, 1.0, 1.0),
        bias_variance=(0.0, 0.0, 0.0),
        activation="relu",
    )


@dataclass(frozen=True, kw_only=True)
class EpinetConfig(NetworkConfig):
    """Settings of an epinet.

    index_dim
        q, the number of dimensions of z, and of prior functions.
    index_draws
        Indices that a training step averages over.
    widths
        Hidden layers of e.
    prior, prior_scale
        The distribution of the prior functions, and their factor.
    weight_decay
        λ, the weight of ‖θ‖² in the loss, over all learnt parameters.
    """

    index_dim: int = 8
    index_draws: int = 8
    widths: tuple[int, ...] = (15, 15)
    prior: PriorSpec = field(default_factory=small_networks)
    prior_scale: float = 1.0
    weight_decay: float = 1e-4
    trunk: Trunk = field(default_factory=lambda: MLPTrunk(activation="relu"))
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        require_counts(self, "index_dim", "index_draws")
        require_sizes(self.widths)
        require_not_negative(self, "prior_scale", "weight_decay")


class Epinet(NetworkMethod[EpinetConfig, "EpinetPosterior"]):
    """The method: `Epinet(config).fit(task, rng=0)` returns a posterior."""

    config_class = EpinetConfig

    def _fit(self, task: Task, seeds: torch.Generator, train: Train) -> "EpinetPosterior":
        """Train base network and epinet together; the pool is not used."""
        config = self.config
        network = EpinetNetwork(config, task.signature, seeds).to(task.x_obs)
        generator = as_generator(seeds, task.x_obs.device)
        trained = [p for p in network.parameters() if p.requires_grad]
        batches = LabelBatches(len(task.x_obs), config.train.label_batch, generator)

        def loss_terms() -> Terms:
            rows = batches.next()
            z = normal((config.index_draws, config.index_dim), generator, task.x_obs)
            fitted = network(task.augmented(task.x_obs[rows], generator), z)
            decay = config.weight_decay * torch.stack([p.square().sum() for p in trained]).sum()
            return {"data": data_loss(fitted, task.y_obs[rows]).mean(), "decay": decay}

        history = train(network, loss_terms, streams=batches.streams)
        return EpinetPosterior(network, task.signature, config, history)


class EpinetNetwork(nn.Module):
    """f(x; z) for every index z."""

    def __init__(self, config: EpinetConfig, signature: Signature, rng: torch.Generator) -> None:
        super().__init__()
        trunk, outputs, q = config.trunk, signature.n_outputs, config.index_dim
        require_plain_trunk(trunk, "an epinet")
        self.features, size = trunk.features(signature.input_shape, rng)
        sizes = (size, *trunk.widths)
        self.hidden = build_sequential(lambda: hidden_layers(sizes, trunk.activation), rng)
        self.head = build_sequential(lambda: [nn.Linear(sizes[-1], outputs)], rng)
        epinet_sizes = (q + size + sizes[-1], *config.widths, outputs * q)
        self.epinet = build_sequential(lambda: mlp(epinet_sizes, "relu"), rng)
        drawn = config.prior.sample(signature.input_shape, outputs, q, rng)
        self.prior, self.prior_scale = FixedFunctions(drawn), config.prior_scale

    def forward(self, x: Inputs, z: Codes) -> Draws:
        features = self.features(x)
        hidden = self.hidden(features)
        base = self.head(hidden)
        seen = torch.cat([features, hidden], dim=1)
        seen = seen.detach() if self.training else seen
        repeated = z[:, None].expand(-1, len(x), -1), seen.expand(len(z), -1, -1)
        learnt = self.epinet(torch.cat(repeated, dim=2)).unflatten(2, (base.shape[1], -1))
        terms = torch.einsum("snoq,sq->sno", learnt, z)
        prior = torch.einsum("qno,sq->sno", self.prior(x), z)
        return base + terms + self.prior_scale * prior


def hidden_layers(sizes: tuple[int, ...], activation: str) -> list[nn.Module]:
    """Linear layers between `sizes`, each followed by its activation."""
    pairs = itertools.pairwise(sizes)
    return [layer for pair in pairs for layer in (nn.Linear(*pair), ACTIVATIONS[activation]())]


class EpinetPosterior(Posterior):
    """Functions x → f(x; z) with z ~ N(0, I)."""

    def __init__(
        self,
        network: EpinetNetwork,
        signature: Signature,
        config: EpinetConfig,
        history: History | None = None,
    ) -> None:
        example = next(network.head.parameters())
        super().__init__(signature, example.device, example.dtype)
        self.network = network.eval().requires_grad_(False)  # noqa: FBT003
        self.config, self.history = config, history

    def functions(self, n: int, rng: torch.Generator) -> FunctionBatch:
        z = normal((n, self.config.index_dim), rng, next(self.network.head.parameters()))
        return lambda x: self.network(x, z)

    def tensors(self) -> dict[str, Tensor]:
        return dict(self.network.state_dict())

    @classmethod
    def restore(
        cls, config: EpinetConfig, signature: Signature, tensors: dict[str, Tensor]
    ) -> "EpinetPosterior":
        network = EpinetNetwork(config, signature, as_generator(0))
        network.to(tensors["head.0.weight"]).load_state_dict(tensors)
        return cls(network, signature, config)
