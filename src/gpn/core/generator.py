"""The generator g(x, z): for each code z, one function."""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

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

    @property
    def _last(self) -> nn.Linear:
        layer = self.tail[-1]
        assert isinstance(layer, nn.Linear)
        return layer

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
        if self._heads_cost_less(len(x), len(codes)):
            return self._by_heads(x, codes)
        return self.combine(self.columns(x), codes)

    def _by_heads(self, x: Inputs, codes: Codes) -> Functions:
        """W(z) h + c(z): the last layer is linear, so that each code has a layer of its own."""
        hidden, last = self.tail[:-1](self.features(x)), self._last
        heads = self._heads(last.weight, codes), self._heads(last.bias[:, None], codes)[:, 0]
        return functional.linear(hidden, *heads).unflatten(1, (len(codes), -1)).movedim(1, 0)

    def _heads(self, parameter: Float[Tensor, "p h"], codes: Codes) -> Float[Tensor, "so h"]:
        """A parameter of the last layer for every code and output: b + A z, as the output is."""
        by_column = parameter.reshape(self.n_outputs, self.n_columns, -1).permute(1, 2, 0)
        return self.combine(by_column, codes).movedim(2, 1).flatten(0, 1)

    def _heads_cost_less(self, n: int, s: int) -> bool:
        """Products per output: s heads, then n s values, or n rows of columns, then n s values."""
        width, q = self._last.in_features, self.n_columns - 1
        return s * q * width + n * s * width < n * (1 + q) * width + n * s * q

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
