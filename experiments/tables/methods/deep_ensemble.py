"""Five networks with a mean and a variance each (Lakshminarayanan et al. 2017).

Member k is trained by Gaussian likelihood without fold k of the training rows, on which it stops:
every row trains four of the five. The prediction is the Gaussian with the mixture's two moments.
"""

import itertools
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.tables.data import Rows, Targets
from experiments.tables.methods.base import Machine, Predict, Standardiser
from experiments.tables.predictive import Prediction, gaussian, prediction

SMALLEST_VARIANCE = 1e-6  # in units of the target's variance
Of = Float[Tensor, "k n"]  # one number per member and row


@dataclass(frozen=True)
class DeepEnsemble:
    """Settings that were good on small tables of this suite.

    batches
        A batch has a 64th of the rows, within these limits.
    patience
        Evaluations without any better member until the rate falls; after `decays` falls, the end.
    """

    members: int = 5
    widths: tuple[int, ...] = (128, 128, 128)
    learning_rate: float = 4e-3
    weight_decay: float = 0.1
    batches: tuple[int, int] = (16, 256)
    max_steps: int = 10_000
    evaluate_every: int = 100
    patience: int = 8
    decays: int = 2
    uses_gpu: ClassVar[bool] = True
    packages: ClassVar[tuple[str, ...]] = ()

    def fit(self, x: Rows, y: Targets, *, seed: int, machine: Machine) -> Predict:
        of_x, of_y = Standardiser.of(x), Standardiser.of(y)
        rng = torch.Generator(machine.device).manual_seed(seed)
        x_all, y_all = (_tensor(part, machine.device) for part in (of_x(x), of_y(y)))
        networks = Networks(self.members, (x.shape[1], *self.widths, 2), rng)
        self._train(networks, x_all, y_all, rng)

        def predict(x_new: Rows) -> Prediction:
            mean, variance = networks.moments(_tensor(of_x(x_new), machine.device))
            std = np.sqrt(variance)
            return prediction(gaussian(of_y.centre + of_y.scale * mean, of_y.scale * std))

        return predict

    def _train(self, networks: "Networks", x: Tensor, y: Tensor, rng: torch.Generator) -> None:
        rows, rest = folds(len(y), self.members, rng)
        smallest, largest = self.batches
        shape = (self.members, min(max(len(y) // 64, smallest), largest))
        optimiser = torch.optim.AdamW(
            networks.parameters(), self.learning_rate, weight_decay=self.weight_decay, fused=True
        )
        best, waited, decays = Best(networks), 0, 0
        for step in range(1, self.max_steps + 1):
            drawn = torch.randint(rows.shape[1], shape, generator=rng, device=x.device)
            picked = rows.gather(1, drawn)
            loss = networks.nll(x[picked], y[picked]).sum()  # a sum keeps members independent
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            if step % self.evaluate_every == 0:
                waited = 0 if best.update(networks.nll(x[rest], y[rest])) else waited + 1
                if waited == self.patience:
                    best.restore()
                    waited, decays = 0, decays + 1
                    optimiser.param_groups[0]["lr"] *= 0.2
                if decays > self.decays:
                    break
        best.restore()


class Networks(nn.Module):
    """k networks as one tensor axis."""

    def __init__(self, members: int, sizes: tuple[int, ...], rng: torch.Generator) -> None:
        super().__init__()
        shapes = list(itertools.pairwise(sizes))

        def normal(rows: int, columns: int) -> nn.Parameter:
            draw = torch.randn(members, rows, columns, generator=rng, device=rng.device)
            return nn.Parameter(draw * math.sqrt(2 / rows))

        self.weights = nn.ParameterList(normal(*shape) for shape in shapes)
        self.biases = nn.ParameterList(
            torch.zeros(members, 1, columns, device=rng.device) for _, columns in shapes
        )

    def forward(self, x: Float[Tensor, "k n d"]) -> tuple[Of, Of]:
        """Mean and variance of each member."""
        *hidden, last = zip(self.weights, self.biases, strict=True)
        for weight, bias in hidden:
            x = torch.baddbmm(bias, x, weight).relu()
        mean, raw = torch.baddbmm(last[1], x, last[0]).unbind(-1)
        return mean, F.softplus(raw) + SMALLEST_VARIANCE

    def nll(self, x: Float[Tensor, "k n d"], y: Of) -> Float[Tensor, "k"]:
        mean, variance = self(x)
        return F.gaussian_nll_loss(mean, y, variance, reduction="none", eps=1e-12).mean(1)

    @torch.no_grad()
    def moments(self, x: Float[Tensor, "n d"]) -> tuple[np.ndarray, np.ndarray]:
        """μ = mean of μ_k, σ² = mean of σ_k² + μ_k² − μ²."""
        means, variances = self(x.expand(len(self.weights[0]), *x.shape))
        total = variances.mean(0) + means.var(0, correction=0)
        return means.mean(0).double().cpu().numpy(), total.double().cpu().numpy()


class Best:
    """The weights of each member at its lowest validation loss."""

    def __init__(self, networks: Networks) -> None:
        self.parameters = list(networks.parameters())
        self.weights = [p.detach().clone() for p in self.parameters]
        self.losses = self.weights[0].new_full((len(self.weights[0]),), math.inf)

    @torch.no_grad()
    def update(self, losses: Float[Tensor, "k"]) -> bool:
        """Keep members that got better; whether there are any."""
        better = losses < self.losses
        self.losses = torch.where(better, losses, self.losses)
        for kept, now in zip(self.weights, self.parameters, strict=True):
            kept.copy_(torch.where(better[:, None, None], now, kept))
        return bool(better.any())

    @torch.no_grad()
    def restore(self) -> None:
        for now, kept in zip(self.parameters, self.weights, strict=True):
            now.copy_(kept)


def folds(
    n: int, count: int, rng: torch.Generator
) -> tuple[Int[Tensor, "k m"], Int[Tensor, "k r"]]:
    """For each member the rows it trains on, and the fold it is tested on."""
    order = torch.randperm(n, generator=rng, device=rng.device)
    rest = order[: n // count * count].view(count, -1)
    rows = [torch.cat([*rest[:k], *rest[k + 1 :], order[rest.numel() :]]) for k in range(count)]
    return torch.stack(rows), rest


def _tensor(values: Float[np.ndarray, "..."], device: torch.device) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float32, device=device)
