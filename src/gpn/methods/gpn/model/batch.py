"""One step's rows."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gpn.core.types import Inputs


@dataclass(frozen=True)
class Batch:
    """Labeled rows (numbers `rows` of the task) and pool rows (numbers `pool_rows`, if stored)."""

    x_obs: Inputs
    y_obs: Tensor
    rows: Int[Tensor, "n"]
    x_pool: Float[Tensor, "m *d"]
    pool_rows: Int[Tensor, "m"] | None = None

    @property
    def x(self) -> Tensor:
        """Labeled rows, then pool rows: they share one forward pass (and batch statistics)."""
        return torch.cat([self.x_obs, self.x_pool])

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All of it: `Batch(*batch.tensors)` is the batch again."""
        known = (self.x_obs, self.y_obs, self.rows, self.x_pool)
        return known if self.pool_rows is None else (*known, self.pool_rows)

    @property
    def n_labels(self) -> int:
        return len(self.x_obs)
