"""Posteriors that are linear in features of x with Gaussian weights: those of SNGP and DKL."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpn.core.config import Config
from gpn.core.posterior.base import MOMENT_DRAWS, FunctionBatch, Posterior
from gpn.core.task import Signature
from gpn.core.types import Inputs, Outputs, Rng, normal

CHUNK_ROWS = 1024
Features = Float[Tensor, "n f"]


class LinearGaussianPosterior(Posterior):
    """Functions x → φ(x)·w_o, w_o ~ N(m_o, R_o R_oᵀ) for each output o; moments in closed form.

    `weights` is m, `root` is R (one for each output, or one for all), `network` is part of φ.
    """

    def __init__(
        self,
        network: nn.Module,
        weights: Float[Tensor, "f o"],
        root: Float[Tensor, "c f f"],
        noise_std: float | None,
        signature: Signature,
        config: Config,
    ) -> None:
        example = next(network.parameters())
        super().__init__(signature, example.device, example.dtype, noise_std)
        self.network = network.eval().requires_grad_(False)  # noqa: FBT003
        self.weights, self.root, self.config = weights.contiguous(), root.contiguous(), config

    @abstractmethod
    def features(self, x: Inputs) -> Features:
        """φ(x)."""

    def functions(self, n: int, rng: torch.Generator) -> FunctionBatch:
        noise = normal((n, self.n_outputs, len(self.weights), 1), rng, self.weights)
        weights = self.weights + (self.root @ noise)[..., 0].mT
        return lambda x: (self.features(x) @ weights).to(self.dtype)

    @torch.no_grad()
    def mean(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> Outputs:
        """φ(x)·m."""
        means = [features @ self.weights for features in self._feature_chunks(x)]
        return torch.cat(means).to(self.dtype)

    @torch.no_grad()
    def moments(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> tuple[Outputs, Outputs]:
        """φ(x)·m and ‖Rᵀφ(x)‖²."""
        chunks = [
            (features @ self.weights, (features @ self.root).square().sum(-1).T)
            for features in self._feature_chunks(x)
        ]
        mean, variance = (torch.cat(part).to(self.dtype) for part in zip(*chunks, strict=True))
        return mean, variance.expand(-1, self.n_outputs)

    @torch.no_grad()
    def covariance(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> Float[Tensor, "o n n"]:
        """φ(x)ᵀ R Rᵀ φ(x') for every pair of rows."""
        half = torch.cat(list(self._feature_chunks(x))) @ self.root
        return (half @ half.mT).to(self.dtype).expand(self.n_outputs, -1, -1)

    def _feature_chunks(self, x: Any) -> Iterator[Features]:
        return (self.features(chunk) for chunk in self._rows(x).split(CHUNK_ROWS))
