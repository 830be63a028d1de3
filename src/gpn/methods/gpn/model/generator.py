"""The generator g(x, z): for each code z, one function."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import islice

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from gpn.core.networks.layers import activation_layers, build_sequential, initialise, mlp
from gpn.core.networks.trunks import Trunk
from gpn.core.types import Codes, Functions, Inputs, Outputs

Columns = Float[Tensor, "c n o"]

Network = Callable[[Tensor], Tensor]
GPU_CALL_PRODUCTS = 10**9  # what a GPU multiplies in the time of the additional calls


def all_rows(network: Network, x: Inputs) -> Tensor:
    """`network(x)`, in this process."""
    return network(x)


class Generator(nn.Module, ABC):
    """g(x, z) on top of a trunk's features of x.

    `row_gather(network, x)` is `network(x)`; a group of processes may share out the rows.
    """

    code_dim: int
    features: nn.Module
    row_gather: Callable[[Network, Tensor], Tensor] = staticmethod(all_rows)

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
        if not trunk.widths:
            raise ValueError(
                "codes join a hidden layer, so that widths must name one, got (); "
                "use generator='affine'."
            )
        self.code_dim = code_dim
        self.features, size = trunk.features(input_shape, rng)
        width = trunk.widths[0]
        self.join = initialise(nn.Linear(size + code_dim, width, device="meta"), rng)
        self.tail = build_sequential(lambda: _tail(trunk, n_outputs), rng)

    def forward(self, x: Inputs, codes: Codes) -> Functions:
        def network(rows: Inputs) -> Functions:
            from_x, from_codes = self._joined(rows, codes)
            return self.tail(from_x[None, :, :] + from_codes[:, None, :])

        return self.row_gather(network, x)

    def paired(self, x: Inputs, codes: Float[Tensor, "n q"]) -> Outputs:
        from_x, from_codes = self._joined(x, codes)
        return self.tail(from_x + from_codes)

    def _joined(self, x: Inputs, codes: Codes) -> tuple[Tensor, Tensor]:
        """W_x φ(x) + bias, and W_z z."""
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
        self.tail = build_sequential(lambda: mlp(sizes, trunk.activation, trunk.dropout), rng)

    @property
    def _last(self) -> nn.Linear:
        layer = self.tail[-1]
        assert isinstance(layer, nn.Linear)
        return layer

    def _hidden(self, x: Inputs) -> Tensor:
        """What the last layer sees."""
        hidden = self.features(x)
        for layer in islice(self.tail, len(self.tail) - 1):
            hidden = layer(hidden)
        return hidden

    def columns(self, x: Inputs) -> Columns:
        """b(x) and then A(x), column by column, from one pass through the trunk."""
        flat = self.row_gather(lambda rows: self.tail(self.features(rows)), x)
        return flat.reshape(len(x), self.n_outputs, self.n_columns).permute(2, 0, 1)

    def moments(self, x: Inputs) -> tuple[Outputs, Outputs]:
        """b(x) and Σ_c A_c(x)²: mean and variance over z ~ N(0, I).

        Two products in place of one, so that the columns of A lie in memory as they are summed.
        """
        hidden = self._hidden(x)
        mean, loadings = (functional.linear(hidden, *part) for part in self._last_parts())
        norms = torch.linalg.vector_norm(loadings.unflatten(1, (self.n_outputs, -1)), dim=2)
        return mean, norms.square()

    def _last_parts(self) -> list[tuple[Tensor, Tensor]]:
        """Weight and bias of the last layer for b, and for A."""
        weight, bias = (
            parameter.unflatten(0, (self.n_outputs, self.n_columns))
            for parameter in (self._last.weight, self._last.bias)
        )
        return [(weight[:, 0], bias[:, 0]), (weight[:, 1:].flatten(0, 1), bias[:, 1:].flatten())]

    def combine(self, columns: Columns, codes: Codes) -> Functions:
        """b + A z for every code, from columns already computed."""
        return self._combined(columns.permute(2, 0, 1), codes).permute(1, 2, 0)

    def _combined(self, columns: Float[Tensor, "o c n"], codes: Codes) -> Float[Tensor, "o s n"]:
        parts = codes.reshape(len(codes), self.blocks, self.n_columns - 1).transpose(0, 1)
        return torch.baddbmm(columns[:, :1], parts.expand(self.n_outputs, -1, -1), columns[:, 1:])

    def forward(self, x: Inputs, codes: Codes) -> Functions:
        if self._heads_cost_less(len(x), len(codes), x.device):
            return self._by_heads(x, codes)
        return self.combine(self.columns(x), codes)

    def _by_heads(self, x: Inputs, codes: Codes) -> Functions:
        """W(z) h + c(z): the last layer is linear, so that each code has a layer of its own.

        Its weight and bias are b + A z of the last layer's, as the outputs are.
        """
        hidden, last = self._hidden(x), self._last
        shape = self.n_outputs, self.n_columns, -1
        weight, bias = (self._combined(p.view(shape), codes) for p in (last.weight, last.bias))
        values = functional.linear(hidden, weight.flatten(0, 1), bias.flatten())
        return values.view(len(x), self.n_outputs, len(codes)).permute(2, 0, 1)

    def _heads_cost_less(self, n: int, s: int, device: torch.device) -> bool:
        """Products per output: s heads, then n s values, or n rows of columns, then n s values.

        Heads take more calls, in whose time a GPU multiplies a lot. Training uses columns, which
        several processes share out.
        """
        if self.training:
            return False
        width, q = self._last.in_features, self.n_columns - 1
        heads, columns = s * q * width + n * s * width, n * (1 + q) * width + n * s * q
        more_calls = GPU_CALL_PRODUCTS if device.type == "cuda" else 0
        return (columns - heads) * self.n_outputs > more_calls

    def paired(self, x: Inputs, codes: Float[Tensor, "n q"]) -> Outputs:
        columns = self.columns(x)
        parts = codes.reshape(len(codes), self.blocks, self.n_columns - 1)
        parts = parts.expand(-1, self.n_outputs, -1)
        return columns[0] + torch.einsum("cno,noc->no", columns[1:], parts)


def _tail(trunk: Trunk, n_outputs: int) -> list[nn.Module]:
    """What follows the first hidden layer."""
    hidden = trunk.activation, trunk.dropout
    return [*activation_layers(*hidden), *mlp((*trunk.widths, n_outputs), *hidden)]
