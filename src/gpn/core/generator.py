"""The generator g(x, z): for each code z, one function."""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpn.core.networks import Trunk, activated, fresh, initialise, mlp
from gpn.core.types import Codes, Functions, Inputs, Outputs

Columns = Float[Tensor, "c n o"]


class Generator(nn.Module, ABC):
    """g(x, z) on top of a trunk's features of x."""

    code_dim: int
    features: nn.Module

    @abstractmethod
    def forward(self, x: Inputs, codes: Codes) -> Functions:
        """Every code at every row."""

    @abstractmethod
    def paired(self, x: Inputs, codes: Float[Tensor, "n q"]) -> Outputs:
        """Each row with a code of its own: one ordinary network's work."""


class ConcatGenerator(Generator):
    """The paper's generator: the code joins the features at the first hidden layer.

    W [φ(x); z] is written as W_x φ(x) + W_z z: the same mathematics, but x is multiplied once
    and not once per code.
    """

    def __init__(
        self,
        trunk: Trunk,
        input_shape: tuple[int, ...],
        n_outputs: int,
        code_dim: int,
        rng: torch.Generator,
    ) -> None:
        super().__init__()
        self.code_dim = code_dim
        self.features, size = trunk.features(input_shape, rng)
        width = trunk.widths[0]
        self.join = initialise(nn.Linear(size + code_dim, width, device="meta"), rng)
        self.tail = fresh(lambda: _tail(trunk, n_outputs), rng)

    def forward(self, x: Inputs, codes: Codes) -> Functions:
        from_x, from_codes = self._joined(x, codes)
        return self.tail(from_x[None, :, :] + from_codes[:, None, :])

    def paired(self, x: Inputs, codes: Float[Tensor, "n q"]) -> Outputs:
        from_x, from_codes = self._joined(x, codes)
        return self.tail(from_x + from_codes)

    def _joined(self, x: Inputs, codes: Codes) -> tuple[Tensor, Tensor]:
        sizes = [self.join.in_features - self.code_dim, self.code_dim]
        weight_x, weight_codes = self.join.weight.split(sizes, dim=1)
        return self.features(x) @ weight_x.T + self.join.bias, codes @ weight_codes.T


class AffineGenerator(Generator):
    """g(x, z) = b(x) + A(x) z, with b and A from one trunk: the paper's MAP function is affine.

    `columns` are b, then the columns of A. With `blocks` = 1 every code axis moves every output;
    with `blocks` = o the code falls into o equal parts, one for each output alone, which is exact
    where the outputs are independent (regression) and o times smaller.
    """

    def __init__(
        self,
        trunk: Trunk,
        input_shape: tuple[int, ...],
        n_outputs: int,
        code_dim: int,
        rng: torch.Generator,
        blocks: int = 1,
    ) -> None:
        super().__init__()
        self.code_dim = code_dim
        self.n_outputs = n_outputs
        self.blocks = blocks
        self.features, size = trunk.features(input_shape, rng)
        self.n_columns = 1 + code_dim // blocks
        sizes = (size, *trunk.widths, n_outputs * self.n_columns)
        self.tail = fresh(lambda: mlp(sizes, trunk.activation, trunk.dropout), rng)

    def columns(self, x: Inputs) -> Columns:
        """b(x) and then A(x), column by column, from one pass through the trunk."""
        flat = self.tail(self.features(x))
        return flat.reshape(len(x), self.n_outputs, self.n_columns).permute(2, 0, 1)

    def combine(self, columns: Columns, codes: Codes) -> Functions:
        """b + A z for every code, from columns already computed."""
        parts = codes.reshape(len(codes), self.blocks, self.n_columns - 1).movedim(1, 0)
        slopes = columns[1:].permute(2, 0, 1)
        return columns[0] + (parts @ slopes).permute(1, 2, 0)

    def forward(self, x: Inputs, codes: Codes) -> Functions:
        return self.combine(self.columns(x), codes)

    def paired(self, x: Inputs, codes: Float[Tensor, "n q"]) -> Outputs:
        columns = self.columns(x)
        parts = codes.reshape(len(codes), self.blocks, self.n_columns - 1)
        parts = parts.expand(-1, self.n_outputs, -1)
        return columns[0] + torch.einsum("cno,noc->no", columns[1:], parts)


def _tail(trunk: Trunk, n_outputs: int) -> list[nn.Module]:
    """What follows the first hidden layer."""
    sizes = (*trunk.widths, n_outputs)
    how = trunk.activation, trunk.dropout
    return [*activated(*how), *mlp(sizes, *how)]
