"""What a fitted method gives back: functions, and what many functions say together.

A method supplies `functions(n, rng)`; everything else here follows from it, in chunks, so that
moments over 10,000 draws at 100,000 rows never hold more than a few million numbers at once.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from math import isfinite, prod
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from gpn.core.checks import require_count, require_level
from gpn.core.chunks import chunk_size, joined, map_chunks
from gpn.core.pools.base import check_finite
from gpn.core.task import Signature, as_tensor
from gpn.core.types import Draws, Inputs, Outputs, Rng, as_generator, as_stored, laid_out
from gpn.core.warnings import Diagnostic

FunctionBatch = Callable[[Inputs], Draws]

T = TypeVar("T")

MOMENT_DRAWS = 1000


class Posterior(ABC):
    """A law over functions x → outputs (regression targets, or logits for classes).

    Whatever is random takes `rng`; moments default to a fixed seed, so that asking twice gives
    the same answer. Inputs may be arrays; results are tensors on the posterior's device.
    """

    def __init__(
        self,
        signature: Signature,
        device: torch.device,
        dtype: torch.dtype,
        noise_std: float | None = None,
    ) -> None:
        self.signature = signature
        self.device = device
        self.dtype = dtype
        self.noise_std = None if noise_std is None else float(noise_std)
        self.checks: dict[str, Diagnostic] = {}

    @property
    def n_outputs(self) -> int:
        return self.signature.n_outputs

    def diagnostics(self) -> dict[str, Diagnostic]:
        """What the fit found out about itself; of methods that look at nothing, nothing."""
        return dict(self.checks)

    @abstractmethod
    def functions(self, n: int, rng: torch.Generator) -> FunctionBatch:
        """`n` functions at once: the same object gives consistent values wherever it is called."""

    def sample(self, x: Any, n: int = 100, rng: Rng = None) -> Draws:
        """`n` functions at the rows of `x`."""
        return self.draw_many(n, rng)(x)

    def draw_many(self, n: int = 100, rng: Rng = None) -> Callable[[Any], Draws]:
        """`n` functions, for ever: call the result on rows, piece by piece where they are many."""
        batch = self.functions(positive(n), as_generator(rng, self.device))

        @torch.no_grad()
        def values(x: Any) -> Draws:
            return self._of_rows(x, lambda rows: joined(self._parts(batch, rows, n), dim=1))

        return values

    def draw(self, rng: Rng = None) -> "Function":
        """One function, for ever: call it on any x, again and again, also under autograd."""
        return Function(self, self.functions(1, as_generator(rng, self.device)))

    def mean(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> Outputs:
        """E[g(x, z)], over `n` draws."""
        return self.moments(x, n, rng)[0]

    def variance(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> Outputs:
        """Var[g(x, z)], over `n` draws."""
        return self.moments(x, n, rng)[1]

    def moments(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> tuple[Outputs, Outputs]:
        """`mean` and `variance` together, for the price of one of them."""
        return self._moments(self._rows(x), n, rng)

    def std(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> Outputs:
        """The square root of `variance`."""
        return self.variance(x, n, rng).sqrt()

    def covariance(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> Float[Tensor, "o n n"]:
        """Cov[g(x, z), g(x', z)] between the rows of `x`, one matrix per output."""
        root = self.covariance_root(x, n, rng)
        return (root.mT @ root).to(self.dtype)

    def covariance_root(
        self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0
    ) -> Float[Tensor, "o s n"]:
        """L with LᵀL the covariance between rows: `n` centred draws, unless it is known exactly."""
        return root_of(self.sample(x, _at_least_two(n), rng).double())

    def interval(
        self,
        x: Any,
        level: float = 0.95,
        n: int = MOMENT_DRAWS,
        rng: Rng = 0,
        *,
        observation_noise: bool = False,
    ) -> tuple[Outputs, Outputs]:
        """The middle `level` of the draws: its lower and upper ends at each row and output.

        By default that of the function (epistemic). With `observation_noise`, that of a new
        label: each draw gets N(0, noise_std²) on top (total).
        """
        tails, generator = self._tails(level), as_generator(rng, self.device)
        noise_std = self._noise_variance(observation_noise=observation_noise) ** 0.5
        rows, batch = self._rows(x), self.functions(positive(n), generator)
        noise = noise_std * _spread_out(n, self.n_outputs, generator, rows)

        def ends(part: Inputs) -> Float[Tensor, "2 n o"]:
            if len(part) == 0:
                return part.new_zeros(2, 0, self.n_outputs)
            draws = batch(part) + noise
            return draws.quantile(draws.new_tensor(tails), dim=0)

        with torch.no_grad():
            low, high = joined(self._parts(ends, rows, n), dim=1)
        return low, high

    def probabilities(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> Float[Tensor, "n o"]:
        """E_z[softmax(g(x, z))]: the class probabilities, averaged over `n` draws."""
        return self._class_moments(self._rows(x), n, rng)[0]

    def entropy(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> Float[Tensor, "n"]:
        """H[E_z p]: the entropy of the mean class probabilities, in nats."""
        return entropy(self.probabilities(x, n, rng))

    def mutual_information(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> Float[Tensor, "n"]:
        """H[E_z p] − E_z H[p]: how much the draws disagree on the class."""
        probabilities, own_entropy = self._class_moments(self._rows(x), n, rng)
        return (entropy(probabilities) - own_entropy).clamp_min(0.0)

    def _noise_variance(self, *, observation_noise: bool) -> float:
        """σ_ε² where the noise of a label is asked for, else 0."""
        if not observation_noise:
            return 0.0
        if self.signature.is_classification:
            raise TypeError(
                "observation_noise belongs to regression, this posterior is of classes: its draws "
                "are logits; use probabilities(x), or observation_noise=False."
            )
        if self.noise_std is None:
            raise ValueError(
                "observation_noise needs a posterior that knows its labels' noise, this one has "
                "noise_std=None; set posterior.noise_std, or use observation_noise=False."
            )
        return self.noise_std**2

    @staticmethod
    def _tails(level: float) -> tuple[float, float]:
        require_level(level)
        return (1 - level) / 2, (1 + level) / 2

    def _rows(self, x: Any) -> Inputs:
        rows = self._shaped(x)
        if not isfinite(as_stored(rows.detach()).sum()):  # one quick look
            check_finite(rows, "x")
        return laid_out(rows)

    def _of_rows(self, x: Any, compute: Callable[[Inputs], T]) -> T:
        """`compute(rows)`, if all rows are finite."""
        return compute(self._rows(x))

    def _shaped(self, x: Any) -> Inputs:
        rows = as_tensor(x, "x").to(self.device, self.dtype)
        input_shape = self.signature.input_shape
        if tuple(rows.shape[1:]) != input_shape or rows.ndim < 2:
            wanted = ", ".join(["n", *map(str, input_shape)])
            raise ValueError(
                f"x must be rows as in the fit, shape ({wanted}), got {tuple(rows.shape)}."
            )
        return rows

    def _parts(self, compute: Callable[[Inputs], T], rows: Inputs, n: int) -> list[T]:
        """`compute`, which makes `n` functions' values, on as many rows at a time as fit."""
        numbers, n_pixels = max(1, n) * max(self.n_outputs, 64), prod(rows.shape[-2:])
        n_pixels = n_pixels if rows.ndim > 2 else 1
        size = chunk_size(numbers, self.device, len(rows), n_pixels)
        return map_chunks(compute, rows, size)

    def _batches(self, n: int, rng: Rng) -> Iterator[tuple[int, FunctionBatch]]:
        """`n` functions in batches of at most a hundred."""
        generator = as_generator(rng, self.device)
        for start in range(0, positive(n), 100):
            count = min(100, n - start)
            yield count, self.functions(count, generator)

    @torch.no_grad()
    def _moments(self, rows: Inputs, n: int, rng: Rng) -> tuple[Outputs, Outputs]:
        """Mean and unbiased variance over `n` draws, merged batch by batch (Chan et al. 1983)."""
        shape = (len(rows), self.n_outputs)
        mean = torch.zeros(shape, device=self.device, dtype=torch.float64)
        scatter, seen = torch.zeros_like(mean), 0
        for count, batch in self._batches(_at_least_two(n), rng):
            draws = joined(self._parts(_summed(batch, _sums), rows, count), dim=1)
            gap = draws[0] - mean
            total = seen + count
            scatter += draws[1] + gap.square() * (seen * count / total)
            mean += gap * (count / total)
            seen = total
        return mean.to(self.dtype), (scatter / (n - 1)).to(self.dtype)

    @torch.no_grad()
    def _class_moments(self, rows: Inputs, n: int, rng: Rng) -> tuple[Outputs, Tensor]:
        """E_z[p] and E_z[H[p]]."""
        if not self.signature.is_classification:
            raise TypeError(
                "class probabilities need a classification task, this posterior is of a "
                "regression; pass integer y to Task for classes."
            )
        mean = torch.zeros(len(rows), self.n_outputs, device=self.device, dtype=torch.float64)
        own_entropy = torch.zeros(len(rows), device=self.device, dtype=torch.float64)
        for count, batch in self._batches(n, rng):
            parts = self._parts(_summed(batch, _class_sums), rows, count)
            mean += joined([sums for sums, _ in parts]) / n
            own_entropy += joined([entropies for _, entropies in parts]) / n
        return mean.to(self.dtype), own_entropy.to(self.dtype)


class Function:
    """One function of a posterior: the same values and gradients whenever it is called."""

    def __init__(self, posterior: Posterior, batch: FunctionBatch) -> None:
        self._posterior = posterior
        self._batch = batch

    def __call__(self, x: Any) -> Outputs:
        return self._batch(self._posterior._rows(x))[0]


def root_of(draws: Draws) -> Float[Tensor, "o s n"]:
    """L with LᵀL the covariance of the draws between rows, one for each output."""
    return (draws - draws.mean(0)).permute(2, 0, 1) / (len(draws) - 1) ** 0.5


def entropy(probabilities: Float[Tensor, "*n o"]) -> Float[Tensor, "*n"]:
    """−Σ_c p_c log p_c, in nats."""
    return torch.special.entr(probabilities).sum(-1)


def _spread_out(n: int, o: int, rng: torch.Generator, like: Tensor) -> Float[Tensor, "n 1 o"]:
    """The middles of `n` equally likely parts of N(0, 1), dealt out to the draws at random.

    The same at every row, whose ends are found one by one, so that rows in parts get the same; its
    own mean and deviation are no matter of chance.
    """
    middles = torch.special.ndtri((torch.arange(n, dtype=torch.float64) + 0.5) / n)
    order = torch.rand(n, 1, o, generator=rng, device=rng.device).argsort(0)
    return middles.to(like)[order]


def _summed(batch: FunctionBatch, sums: Callable[[Draws], T]) -> Callable[[Inputs], T]:
    """What is kept of a batch of functions at some rows."""
    return lambda rows: sums(batch(rows))


def _class_sums(logits: Draws) -> tuple[Float[Tensor, "n o"], Float[Tensor, "n"]]:
    """Class probabilities and their entropies, summed over the draws."""
    probabilities = logits.softmax(-1)
    return probabilities.sum(0, dtype=torch.float64), entropy(probabilities).sum(0)


def _sums(draws: Draws) -> Float[Tensor, "2 n o"]:
    """Mean and scatter Σ(draw − mean)² of one batch of draws."""
    wide = draws.double()
    mean = wide.mean(0)
    return torch.stack([mean, (wide - mean).square().sum(0)])


def positive(n: int) -> int:
    return require_count("the number of draws", n)


def _at_least_two(n: int) -> int:
    if n < 2:
        raise ValueError(f"moments need at least 2 draws, got {n}.")
    return positive(n)
