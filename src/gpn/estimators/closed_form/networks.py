"""Networks of a mean model: one for each fold of the labels, all of them one tensor axis."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from gpn.core.types import as_generator
from gpn.methods.ensemble.members import StackedLinear
from gpn.training.batches import LabelBatches
from gpn.training.config import TrainConfig
from gpn.training.cuda_graphs import TrainStep
from gpn.training.loop import train
from gpn.training.progress import OnProgress, no_progress
from gpn.training.state import Terms

Rows = NDArray[np.float64]

WIDTHS = (128, 128, 128, 128)
GAIN = 2.0  # of initial weights: torch's own are so small that the signal of x fades with depth
STEPS_PER_LABEL, MIN_STEPS, MAX_STEPS = 0.12, 1500, 3000
CHUNK_ROWS = 16_384


class FoldNetworks(nn.Module):
    """`networks(x)[k]` are the predictions of network k, which has not seen fold k."""

    def __init__(self, folds: int, sizes: Sequence[int], rng: torch.Generator) -> None:
        super().__init__()
        pairs = itertools.pairwise(sizes)
        self.layers = nn.ModuleList(StackedLinear(folds, *pair, rng) for pair in pairs)
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if name.endswith("weight"):
                    parameter.mul_(GAIN)

    def forward(self, x: Float[Tensor, "#k n d"]) -> Float[Tensor, "k n o"]:
        *hidden, last = self.layers
        for layer in hidden:
            x = nn.functional.silu(layer(x))
        return last(x)

    @torch.no_grad()
    def predict(self, x: Rows) -> NDArray[np.float64]:
        """Every network at every row: ``(k, n, o)``."""
        weight = next(self.parameters())
        chunks = [
            self(torch.from_numpy(x[start : start + CHUNK_ROWS]).to(weight)[None]).cpu()
            for start in range(0, max(len(x), 1), CHUNK_ROWS)
        ]
        return torch.cat(chunks, dim=1).double().numpy()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All parameters, by name."""
        return {name: value.cpu().numpy() for name, value in self.state_dict().items()}

    @classmethod
    def from_arrays(
        cls, arrays: dict[str, NDArray[Any]], columns: int, targets: int
    ) -> "FoldNetworks":
        """The networks whose `arrays()` these are; others are refused."""
        weights = [arrays[f"layers.{number}.weight"] for number in range(len(arrays) // 2)]
        sizes = [columns, *(len(weight[0]) for weight in weights[:-1]), targets]
        networks = cls(len(weights[0]), sizes, as_generator(0))
        networks.load_state_dict({name: torch.from_numpy(a) for name, a in arrays.items()})
        if not all(bool(p.isfinite().all()) for p in networks.parameters()):
            raise ValueError("the networks of a mean must have finite parameters")
        return networks.requires_grad_(False)  # noqa: FBT003


def fit_networks(
    x: Rows, y: Rows, rests: Sequence[NDArray[np.int64]], on_progress: OnProgress = no_progress
) -> FoldNetworks:
    """A network for each of `rests`, the rows that it learns from, by squared errors."""
    count = min(map(len, rests))
    rows = torch.from_numpy(np.stack([rest[:count] for rest in rests]))
    inputs, targets = torch.from_numpy(x).float(), torch.from_numpy(y).float()
    rng = as_generator(0)
    networks = FoldNetworks(len(rests), (x.shape[1], *WIDTHS, y.shape[1]), rng)
    steps = int(np.clip(STEPS_PER_LABEL * len(x), MIN_STEPS, MAX_STEPS))
    config = TrainConfig(
        steps=steps, label_batch=128, learning_rate=1e-2, weight_decay=1e-2, device="cpu"
    )
    batches = LabelBatches(count, config.label_batch, rng)

    def draw() -> tuple[Tensor, Tensor]:
        picked = rows[:, batches.next()]
        return inputs[picked], targets[picked]

    def terms(x: Tensor, y: Tensor) -> Terms:
        return {"data": (networks(x) - y).square().sum((0, 2)).mean()}

    train(networks, TrainStep(draw, terms, graph_safe=False), config, on_progress)
    return networks.eval().requires_grad_(False)  # noqa: FBT003
