"""The prior over the parameters of an ensemble's members: θ_j ~ N(0, Σ_prior), Σ_prior diagonal."""

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
    """A stacked parameter ``(m, ...)`` with prior N(centre, variance); its anchors have `std`."""

    parameter: nn.Parameter
    centre: Tensor
    variance: float
    std: float

    def sample(self, rng: torch.Generator) -> Tensor:
        return self.centre + self.std * normal(tuple(self.centre.shape), rng, self.centre)


class ParameterPrior:
    """A layer's weights ~ N(0, v / fan-in) and its biases ~ N(0, v_bias), for every member.

    A parameter with zero prior variance is fixed at 0. The scales of normalisation layers are
    anchored at their initial values. Frozen parameters have no prior.
    """

    def __init__(self, members: Members, weights: Variances, biases: Variances) -> None:
        named = [(n, p) for n, p in members.named_parameters() if p.requires_grad]
        n_layers = sum(parameter.ndim > 2 for _, parameter in named)
        weights, biases = _per_layer(weights, n_layers), _per_layer(biases, n_layers)
        layer, self.gaussians = -1, []
        for name, parameter in named:
            layer += parameter.ndim > 2  # a layer begins with its weight
            variances = weights[max(layer, 0)], biases[max(layer, 0)]
            self.gaussians.append(_gaussian(name, parameter, *variances))

    @torch.no_grad()
    def initialise(self, rng: torch.Generator) -> None:
        """Set the members to a draw of the prior; parameters without variance stop training."""
        for gaussian in self.gaussians:
            gaussian.parameter.copy_(gaussian.sample(rng)).requires_grad_(gaussian.variance > 0)

    def sample(self, rng: torch.Generator) -> list[Tensor]:
        """One draw of every member's parameters."""
        return [gaussian.sample(rng) for gaussian in self.gaussians]

    def distance(self, anchors: list[Tensor]) -> Float[Tensor, ""]:
        """Σ_j ‖Σ_prior^−½ (θ_j − θ_anc,j)‖²."""
        gaps = [
            functional.mse_loss(gaussian.parameter, anchor, reduction="sum") / gaussian.variance
            for gaussian, anchor in zip(self.gaussians, anchors, strict=True)
            if gaussian.variance > 0
        ]
        return torch.stack(gaps).sum()


def _gaussian(
    name: str, parameter: nn.Parameter, weight_variance: float, bias_variance: float
) -> ParameterGaussian:
    if parameter.ndim == 2 and name.endswith("weight"):  # the scale of a normalisation layer
        return ParameterGaussian(parameter, parameter.detach().clone(), variance=1.0, std=0.0)
    is_weight = parameter.ndim > 2
    variance = weight_variance / parameter[0, 0].numel() if is_weight else bias_variance
    return ParameterGaussian(parameter, torch.zeros_like(parameter), variance, variance**0.5)


def _per_layer(values: Variances, n_layers: int) -> tuple[float, ...]:
    every = values if isinstance(values, tuple) else (values,) * n_layers
    if len(every) != n_layers or min(every) < 0:
        raise ValueError(
            "prior_variance and bias_variance must be one non-negative number, or one per layer, "
            f"{n_layers} here, got {values}."
        )
    return every
