"""A prior for tables: an infinitely wide network with a scale for each column, and a linear part.

With a = x / scales (automatic relevance determination: a large scale makes a column irrelevant),

    Cov[f(x), f(x')] = height · E[φ(u) φ(u')] + linear · a·a'/d,      Cov[u, u'] = bias + a·a'
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpn.core.config import require_counts, require_not_negative, require_one_of, require_positive
from gpn.core.priors.kernel import EXPECTATIONS as NETWORK_EXPECTATIONS
from gpn.core.priors.kernel import Entries
from gpn.core.priors.prior import MLPPrior, PriorSpec
from gpn.core.types import Inputs, Outputs

TAIL = 5  # degrees of freedom of "matern": twice the smoothness of its kernel
PHASE_VARIANCE = 100.0  # phases of so large a variance are uniform, up to exp(−200)


def cosine_expectation(cross: Entries, left: Entries, right: Entries) -> Entries:
    """E[2 cos(u + c) cos(u' + c)] = exp(−Var[u − u'] / 2) over uniform phases c: the RBF kernel."""
    return (cross - (left + right) / 2).clamp_max(0.0).exp()


def matern_expectation(cross: Entries, left: Entries, right: Entries) -> Entries:
    """(1 + s + s²/3) exp(−s) with s² = 5 Var[u − u']: the Matérn kernel of smoothness 5/2.

    It is E[2 cos(t u + c) cos(t u' + c)] with one stretch t for each hidden unit, 5/t² ~ χ²₅.
    """
    squares = 5 * (left + right - 2 * cross)
    lengths = squares.clamp_min(1e-20).sqrt()  # the root has no slope at 0
    return (1 + lengths + lengths.square() / 3) * (-lengths).exp()


def _cosine(u: Tensor) -> Tensor:
    return 2**0.5 * torch.cos(u)


EXPECTATIONS = {
    **NETWORK_EXPECTATIONS,
    "cos": cosine_expectation,
    "matern": matern_expectation,
}
FUNCTIONS = {
    "erf": torch.erf,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "cos": _cosine,
    "matern": _cosine,
}
STATIONARY = ("cos", "matern")  # kernels of the difference of two rows alone


MIN_SCALE = 1e-150  # the square of a row over its scale must be a number


@dataclass(frozen=True, kw_only=True)
class ARDPrior(PriorSpec):
    """A random two-layer network of x / column_scales, plus a random linear function of it.

    height, bias, linear
        Variances of the last layer's weights (times its width), of the hidden units' biases, and
        of the linear part at a row of length √d.
    mean_columns
        So many of the last columns are the prior's mean, one for each output: predictions of
        another model. 0 is a mean of zero.
    activation
        φ: "erf" (arc-sine kernel), "tanh", "relu" (arc-cosine kernel), or "cos" with random phases
        in the place of biases: the RBF kernel, which is the same everywhere. "matern" is "cos" with
        hidden weights of Student's t distribution: the Matérn kernel of rougher functions.
    width
        Hidden units of the functions that `sample` draws; the kernel has infinitely many.
    """

    column_scales: tuple[float, ...]
    height: float = 1.0
    bias: float = 1.0
    linear: float = 0.0
    mean_columns: int = 0
    activation: str = "erf"
    width: int = 4096

    def __post_init__(self) -> None:
        require_one_of(self, "activation", tuple(EXPECTATIONS))
        require_positive(self, "height")
        require_not_negative(self, "bias", "linear")
        require_counts(self, "width")
        scales = self.column_scales
        if not scales or not all(MIN_SCALE <= scale < math.inf for scale in scales):
            raise ValueError(
                f"column_scales must be positive numbers, {MIN_SCALE:g} at least, got "
                f"{scales!r:.200}."
            )
        if not 0 <= self.mean_columns < len(scales):
            raise ValueError(
                f"mean_columns must be some of the {len(scales)} columns, got {self.mean_columns}."
            )

    @classmethod
    def of(cls, prior: MLPPrior, n_columns: int) -> "ARDPrior":
        """The same process as that of an `MLPPrior` with one hidden layer."""
        (first, last), (bias, last_bias) = prior.prior_variance, prior.bias_variance
        if last_bias:
            raise ValueError(f"the last layer must have no bias, got a variance of {last_bias}.")
        scales = ((n_columns / first) ** 0.5,) * n_columns
        return cls(column_scales=scales, height=last, bias=bias, activation=prior.activation)

    @property
    def has_kernel(self) -> bool:
        return True

    def kernel(self, left: Inputs, right: Float[Tensor, "m *d"]) -> Float[Tensor, "n m"]:
        return self.batch_kernel(left.flatten(1), right.flatten(1))

    def batch_kernel(
        self, left: Float[Tensor, "*b n d"], right: Float[Tensor, "*b m d"]
    ) -> Float[Tensor, "*b n m"]:
        """`kernel` within each batch of rows."""
        a, b = self._scaled(left), self._scaled(right)
        return ard_kernel(a, b, self.height, self.bias, self.linear, self.activation)

    def variance(self, x: Inputs) -> Float[Tensor, "n"]:
        squares = self._scaled(x.flatten(1)).square().sum(1)
        hidden = squares + self.bias
        nonlinear = EXPECTATIONS[self.activation](hidden, hidden, hidden)
        return self.height * nonlinear + self.linear / len(self.column_scales) * squares

    def mean(self, x: Inputs, n_outputs: int) -> Outputs:
        """E[f(x)]."""
        if self.mean_columns == 0:
            return x.new_zeros(len(x), n_outputs)
        return x[:, -self.mean_columns :]

    def network(self, input_shape: tuple[int, ...], n_outputs: int) -> nn.Module:
        with torch.device("meta"):
            return _Network(input_shape[0], self.width, n_outputs, self.activation)

    def variances(self, network: nn.Module) -> dict[str, float | Tensor]:
        by_column = torch.tensor(self.column_scales).pow(-2)
        return {
            "hidden.weight": by_column,
            "hidden.bias": self.hidden_bias,
            "tail": 1.0,
            "last.weight": self.height / self.width,
            "linear.weight": by_column * (self.linear / len(self.column_scales)),
        }

    @property
    def hidden_bias(self) -> float:
        """The variance of a hidden unit's bias, or of its phase."""
        return PHASE_VARIANCE if self.activation in STATIONARY else self.bias

    def _scaled(self, x: Float[Tensor, "*b n d"]) -> Float[Tensor, "*b n d"]:
        return x / x.new_tensor(self.column_scales)


class RandomFeatures:
    """Features with Cov[f(x), f(x')] ≈ h(x)·h(x'), from one hidden layer W, c that is drawn once:

    h(x) = [√(height/width) φ(W a + c), √(linear/d) a]
    """

    def __init__(self, prior: ARDPrior, rng: torch.Generator, like: Tensor) -> None:
        d = len(prior.column_scales)
        drawn = torch.randn(prior.width, d + 1, generator=rng, dtype=torch.float64)
        weight = drawn[:, :d]
        if prior.activation == "matern":
            tail = torch.randn(prior.width, TAIL, generator=rng, dtype=torch.float64)
            weight = weight * _stretch(tail)
        self.prior = prior
        self.weight = weight.to(like)
        self.bias = (drawn[:, d] * prior.hidden_bias**0.5).to(like)
        self.size = prior.width + d

    def __call__(self, x: Inputs) -> Float[Tensor, "n F"]:
        prior, a = self.prior, self.prior._scaled(x)
        hidden = FUNCTIONS[prior.activation](a @ self.weight.T + self.bias)
        linear = a * (prior.linear / a.shape[1]) ** 0.5
        return torch.cat([hidden * (prior.height / prior.width) ** 0.5, linear], dim=1)


class _Network(nn.Module):
    """last · φ(hidden x) + linear · x; with "matern" each hidden unit has a stretch of its own."""

    def __init__(self, inputs: int, width: int, outputs: int, activation: str) -> None:
        super().__init__()
        self.hidden = nn.Linear(inputs, width)
        self.last = nn.Linear(width, outputs, bias=False)
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.activation = FUNCTIONS[activation]
        if activation == "matern":
            self.tail = nn.Parameter(torch.empty(width, TAIL))

    def forward(self, x: Inputs) -> Tensor:
        rows = x.flatten(1)
        return self.last(self.activation(self._units(rows))) + self.linear(rows)

    def _units(self, rows: Tensor) -> Tensor:
        if "tail" not in self._parameters:
            return self.hidden(rows)
        return rows @ (self.hidden.weight * _stretch(self.tail)).T + self.hidden.bias


def _stretch(tail: Float[Tensor, "width k"]) -> Float[Tensor, "width 1"]:
    """√(k / Σ z²), which makes normal weights those of Student's t distribution."""
    return (tail.shape[1] / tail.square().sum(1, keepdim=True)).sqrt()


def ard_kernel(
    a: Float[Tensor, "*b n d"],
    b: Float[Tensor, "*b m d"],
    height: float | Tensor,
    bias: float | Tensor,
    linear: float | Tensor,
    activation: str,
) -> Float[Tensor, "*b n m"]:
    """The covariance between rows that were divided by the scales; differentiable in everything."""
    if activation == "erf":
        cosines = _directions(a, bias) @ _directions(b, bias).mT
        if cosines.requires_grad or torch.is_tensor(height):
            arcsine = cosines.clamp(-1.0, 1.0).asin()
            return (2 / math.pi * height) * arcsine + a @ (linear / a.shape[-1] * b).mT
        arcsine = cosines.clamp_(-1.0, 1.0).asin_().mul_(2 / math.pi * height)
        return arcsine.add_(a @ (linear / a.shape[-1] * b).mT)
    products = a @ b.mT
    on_left = a.square().sum(-1)[..., :, None] + bias
    on_right = b.square().sum(-1)[..., None, :] + bias
    nonlinear = EXPECTATIONS[activation](products + bias, on_left, on_right)
    return height * nonlinear + linear / a.shape[-1] * products


def _directions(a: Float[Tensor, "*b n d"], bias: float | Tensor) -> Float[Tensor, "*b n d1"]:
    """[a, √bias] / √(a·a + bias + ½): the arc-sine kernel is a function of their products alone."""
    lengths = (a.square().sum(-1, keepdim=True) + bias + 0.5).rsqrt()
    last = torch.as_tensor(bias, dtype=a.dtype, device=a.device).sqrt() * lengths
    return torch.cat([a * lengths, last], dim=-1)
