"""Features of a network that is not trained."""

import torch
from torch import Tensor, nn

from gpn.core.types import Inputs

CHUNK_ROWS = 1024


class FrozenFeatures(nn.Module):
    """(φ(x) − shift) / scale of a module φ that neither gradients nor `train()` change.

    `fit` brings each feature to mean 0 and standard deviation 1, as priors expect their inputs.
    """

    shift: Tensor
    scale: Tensor

    def __init__(self, module: nn.Module, size: int) -> None:
        super().__init__()
        self.module = module.requires_grad_(False)  # noqa: FBT003
        self.register_buffer("shift", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))
        self.train()

    def train(self, mode: bool = True) -> "FrozenFeatures":  # noqa: FBT001
        """Stay in eval mode: dropout is off, and batch norm keeps its statistics."""
        return super().train(False)  # noqa: FBT003

    @torch.no_grad()
    def fit(self, x: Inputs) -> Tensor:
        """Set shift and scale from the features of `x`, and return these features.

        A constant feature becomes 0.
        """
        features = torch.cat([self.module(chunk) for chunk in x.split(CHUNK_ROWS)])
        spread = features.std(0, correction=0)
        self.shift.copy_(features.mean(0))
        self.scale.copy_(torch.where(spread > 1e-6 * features.abs().amax(0), spread, 1.0))
        return (features - self.shift) / self.scale

    @torch.no_grad()
    def forward(self, x: Inputs) -> Tensor:
        return (self.module(x) - self.shift) / self.scale
