"""The prior over the weights of an ensemble's members: θ_j ~ N(0, Σ_prior), Σ_prior diagonal."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from gpn.core.types import normal
from gpn.methods.ensemble.members import Members

Variances = float | tuple[float, ...]


@dataclass(frozen=True)
class ParameterGaussian:
    """A stacked parameter ``(m, ...)`` with prior N(centre, variance); anchors spread by `std`."""

    parameter: nn.Parameter
    centre: Tensor
    variance: float
    std: float

    def sample(self, rng: torch.Generator) -> Tensor:
        return self.centre + self.std * normal(tuple(self.centre.shape), rng, self.centre)


class ParameterPrior:
    """A layer's weights ~ N(0, v / fan-in) and its biases ~ N(0, v_bias), for every member.

    A parameter without prior variance is fixed at 0. The scales of normalisation layers are
    anchored where they start, and whatever is frozen is left alone.
    """

    def __init__(self, members: Members, weights: Variances, biases: Variances) -> None:
        named = [(n, p) for n, p in members.named_parameters() if p.requires_grad]
        layers = sum(parameter.ndim > 2 for _, parameter in named)
        self.laws = _laws(named, _per_layer(weights, layers), _per_layer(biases, layers))

    @torch.no_grad()
    def start(self, rng: torch.Generator) -> None:
        """Set the members to a draw of the prior; what cannot vary is no longer trained."""
        for law in self.laws:
            law.parameter.copy_(law.sample(rng)).requires_grad_(law.variance > 0)

    def sample(self, rng: torch.Generator) -> list[Tensor]:
        """One draw of every member's parameters."""
        return [law.sample(rng) for law in self.laws]

    def distance(self, anchors: list[Tensor]) -> Float[Tensor, ""]:
        """Σ_j ‖Σ_prior^−½ (θ_j − θ_anc,j)‖²."""
        pairs = zip(self.laws, anchors, strict=True)
        gaps = [
            functional.mse_loss(law.parameter, anchor, reduction="sum") / law.variance
            for law, anchor in pairs
            if law.variance > 0
        ]
        return torch.stack(gaps).sum()


def _laws(
    named: list[tuple[str, nn.Parameter]], weights: tuple[float, ...], biases: tuple[float, ...]
) -> list[ParameterGaussian]:
    """v / fan-in at each weight, v_bias at what follows it; a layer begins with its weight."""
    laws, layer = [], -1
    for name, parameter in named:
        zero = torch.zeros_like(parameter)
        if parameter.ndim > 2:
            layer += 1
            variance = weights[layer] / parameter[0, 0].numel()
            laws.append(ParameterGaussian(parameter, zero, variance, variance**0.5))
        elif name.endswith("weight"):
            laws.append(ParameterGaussian(parameter, parameter.detach().clone(), 1.0, 0.0))
        else:
            variance = biases[max(layer, 0)]
            laws.append(ParameterGaussian(parameter, zero, variance, variance**0.5))
    return laws


def _per_layer(values: Variances, layers: int) -> tuple[float, ...]:
    every = values if isinstance(values, tuple) else (values,) * layers
    if len(every) != layers or min(every) < 0:
        raise ValueError(
            "prior_variance and bias_variance must be one non-negative number, or one per layer, "
            f"{layers} here, got {values}."
        )
    return every
