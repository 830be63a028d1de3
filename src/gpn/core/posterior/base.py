"""What a fit returns: a distribution over functions x → g(x, z).

A method supplies `functions(n, rng)`. Draws, moments, intervals and class probabilities follow
from it, in chunks of rows and of functions: moments over 10,000 draws at 100,000 rows hold a few
million numbers at a time. A method that knows its moments in closed form overrides `moments`, and
`mean`, `variance` and `std` follow.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from gpn.core.checks import require_count, require_level
from gpn.core.chunks import chunk_size, join_chunks, map_chunks
from gpn.core.posterior.finite_rows import check_rows
from gpn.core.task import Signature, as_tensor
from gpn.core.types import Draws, Inputs, Outputs, Rng, as_generator, channels_last
from gpn.core.warnings import Diagnostic

FunctionBatch = Callable[[Inputs], Draws]
T = TypeVar("T")

MOMENT_DRAWS = 1000
CHUNK_DRAWS = 100
MIN_NUMBERS_PER_DRAW = 64  # hidden units count, too


class Posterior(ABC):
    """A distribution over functions x → outputs (regression targets, or logits of classes).

    Random results take `rng`; moments default to a fixed seed, so that two calls agree. Inputs may
    be arrays; results are tensors on the posterior's device.

    A class has the probability softmax(g(x, z) / `temperature`) given a function, as a target has
    the noise `noise_std`: both belong to labels, and draws are of functions.
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
        self.temperature = 1.0
        self.checks: dict[str, Diagnostic] = {}

    @property
    def n_outputs(self) -> int:
        return self.signature.n_outputs

    def diagnostics(self) -> dict[str, Diagnostic]:
        """The fit's findings about itself, by name; empty for methods without any."""
        return dict(self.checks)

    @abstractmethod
    def functions(self, n: int, rng: torch.Generator) -> FunctionBatch:
        """`n` functions x → values ``(n, rows, o)``; repeated calls of them are consistent."""

    def sample(self, x: Any, n: int = 100, rng: Rng = None) -> Draws:
        """The values of `n` functions at the rows of `x`."""
        return self.draw_many(n, rng)(x)

    def draw_many(self, n: int = 100, rng: Rng = None) -> Callable[[Any], Draws]:
        """`n` fixed functions; call the result on rows, in as many calls as convenient."""
        batch = self.functions(require_draws(n), as_generator(rng, self.device))

        @torch.no_grad()
        def values(x: Any) -> Draws:
            return self._evaluate(x, lambda rows: join_chunks(self._map(batch, rows, n), dim=1))

        return values

    def draw(self, rng: Rng = None) -> "Function":
        """One fixed function: call it on any x, as often as needed, also under autograd."""
        return Function(self, self.functions(1, as_generator(rng, self.device)))

    @torch.no_grad()
    def moments(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> tuple[Outputs, Outputs]:
        """E[g(x, z)] and the unbiased Var[g(x, z)], over `n` draws.

        Batches of draws are merged as in Chan et al. (1983), exact where the mean is large.
        """
        rows = self._rows(x)
        mean = torch.zeros(len(rows), self.n_outputs, device=self.device, dtype=torch.float64)
        scatter, seen = torch.zeros_like(mean), 0
        for count, chunks in self._reduced(rows, _require_two_draws(n), rng, _mean_and_scatter):
            batch_mean, batch_scatter = join_chunks(chunks, dim=1)
            gap, total = batch_mean - mean, seen + count
            scatter += batch_scatter + gap.square() * (seen * count / total)
            mean += gap * (count / total)
            seen = total
        return mean.to(self.dtype), (scatter / (n - 1)).to(self.dtype)

    def mean(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> Outputs:
        """E[g(x, z)], over `n` draws."""
        return self.moments(x, n, rng)[0]

    def variance(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> Outputs:
        """Var[g(x, z)], over `n` draws."""
        return self.moments(x, n, rng)[1]

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
        return sample_covariance_root(self.sample(x, _require_two_draws(n), rng).double())

    def interval(
        self,
        x: Any,
        level: float = 0.95,
        n: int = MOMENT_DRAWS,
        rng: Rng = 0,
        *,
        observation_noise: bool = False,
    ) -> tuple[Outputs, Outputs]:
        """The quantiles (1 ± level)/2 of the draws at each row and output: lower end, upper end.

        By default of the function (epistemic). With `observation_noise`, of a new label: each draw
        gets noise N(0, noise_std²) on top (total).
        """
        tails, generator = self._tails(level), as_generator(rng, self.device)
        noise_std = self._noise_variance(observation_noise=observation_noise) ** 0.5
        rows, batch = self._rows(x), self.functions(require_draws(n), generator)
        noise = noise_std * _stratified_normal(n, self.n_outputs, generator, rows)

        def ends(chunk: Inputs) -> Float[Tensor, "2 n o"]:
            if len(chunk) == 0:
                return chunk.new_zeros(2, 0, self.n_outputs)
            draws = batch(chunk) + noise
            return draws.quantile(draws.new_tensor(tails), dim=0)

        with torch.no_grad():
            low, high = join_chunks(self._map(ends, rows, n), dim=1)
        return low, high

    def probabilities(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> Float[Tensor, "n o"]:
        """E_z[softmax(g(x, z) / T)]: the class probabilities, averaged over `n` draws."""
        return self._class_moments(x, n, rng)[0]

    def entropy(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> Float[Tensor, "n"]:
        """H[E_z p]: the entropy of the mean class probabilities, in nats."""
        return entropy(self.probabilities(x, n, rng))

    def mutual_information(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> Float[Tensor, "n"]:
        """H[E_z p] − E_z H[p]: how much the draws disagree on the class."""
        probabilities, mean_entropy = self._class_moments(x, n, rng)
        return (entropy(probabilities) - mean_entropy).clamp_min(0.0)

    def _noise_variance(self, *, observation_noise: bool) -> float:
        """σ_ε² if the noise of a label is asked for, else 0."""
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

    def _require_classes(self) -> None:
        if not self.signature.is_classification:
            raise TypeError(
                "class probabilities need a classification task, this posterior is of a "
                "regression; pass integer y to Task for classes."
            )

    @staticmethod
    def _tails(level: float) -> tuple[float, float]:
        require_level(level)
        return (1 - level) / 2, (1 + level) / 2

    def _evaluate(self, x: Any, compute: Callable[[Inputs], T]) -> T:
        """`compute(rows)` for finite rows; a method that takes any number may check them later."""
        return compute(self._rows(x))

    def _rows(self, x: Any) -> Inputs:
        """`x` as finite rows with the shape, dtype and device of the fit."""
        rows = self._shaped(x)
        check_rows(rows)
        return channels_last(rows)

    def _shaped(self, x: Any) -> Inputs:
        rows = as_tensor(x, "x").to(self.device, self.dtype)
        input_shape = self.signature.input_shape
        if tuple(rows.shape[1:]) != input_shape or rows.ndim < 2:
            expected = ", ".join(["n", *map(str, input_shape)])
            raise ValueError(
                f"x must be rows as in the fit, shape ({expected}), got {tuple(rows.shape)}."
            )
        return rows

    def _map(self, compute: Callable[[Inputs], T], rows: Inputs, n: int) -> list[T]:
        """`compute`, which makes values of `n` functions, on chunks of rows that fit in memory."""
        numbers = max(1, n) * max(self.n_outputs, MIN_NUMBERS_PER_DRAW)
        n_pixels = prod(rows.shape[-2:]) if rows.ndim > 2 else 1
        return map_chunks(compute, rows, chunk_size(numbers, self.device, len(rows), n_pixels))

    def _reduced(
        self, rows: Inputs, n: int, rng: Rng, reduce: Callable[[Draws], T]
    ) -> Iterator[tuple[int, list[T]]]:
        """Batches of at most `CHUNK_DRAWS` functions: their number, and `reduce` of their values.

        There is one result per chunk of rows, so that few values are alive at a time.
        """
        generator = as_generator(rng, self.device)
        for start in range(0, require_draws(n), CHUNK_DRAWS):
            count = min(CHUNK_DRAWS, n - start)
            batch = self.functions(count, generator)

            def reduced(chunk: Inputs, batch: FunctionBatch = batch) -> T:
                return reduce(batch(chunk))

            yield count, self._map(reduced, rows, count)

    @torch.no_grad()
    def _class_moments(self, x: Any, n: int, rng: Rng) -> tuple[Outputs, Tensor]:
        """E_z[p] and E_z[H[p]]."""
        rows = self._rows(x)
        self._require_classes()
        mean = torch.zeros(len(rows), self.n_outputs, device=self.device, dtype=torch.float64)
        mean_entropy = torch.zeros(len(rows), device=self.device, dtype=torch.float64)
        sums = partial(_class_sums, temperature=self.temperature)
        for _, chunks in self._reduced(rows, n, rng, sums):
            mean += join_chunks([probabilities for probabilities, _ in chunks]) / n
            mean_entropy += join_chunks([entropies for _, entropies in chunks]) / n
        return mean.to(self.dtype), mean_entropy.to(self.dtype)


class Function:
    """One function of a posterior: the same values and gradients at every call."""

    def __init__(self, posterior: Posterior, batch: FunctionBatch) -> None:
        self._posterior = posterior
        self._batch = batch

    def __call__(self, x: Any) -> Outputs:
        return self._batch(self._posterior._rows(x))[0]


def sample_covariance_root(draws: Draws) -> Float[Tensor, "o s n"]:
    """L with LᵀL the sample covariance of the draws between rows, one for each output."""
    return (draws - draws.mean(0)).permute(2, 0, 1) / (len(draws) - 1) ** 0.5


def entropy(probabilities: Float[Tensor, "*n o"]) -> Float[Tensor, "*n"]:
    """−Σ_c p_c log p_c, in nats."""
    return torch.special.entr(probabilities).sum(-1)


def require_draws(n: int) -> int:
    return require_count("the number of draws", n)


def _require_two_draws(n: int) -> int:
    if n < 2:
        raise ValueError(f"moments need at least 2 draws, got {n}.")
    return require_draws(n)


def _mean_and_scatter(draws: Draws) -> Float[Tensor, "2 n o"]:
    """The mean of one batch of draws, and its scatter Σ(draw − mean)²."""
    wide = draws.double()
    mean = wide.mean(0)
    return torch.stack([mean, (wide - mean).square().sum(0)])


def _class_sums(
    logits: Draws, temperature: float
) -> tuple[Float[Tensor, "n o"], Float[Tensor, "n"]]:
    """Class probabilities and their entropies, summed over the draws."""
    probabilities = (logits / temperature).softmax(-1)
    return probabilities.sum(0, dtype=torch.float64), entropy(probabilities).sum(0)


def _stratified_normal(
    n: int, o: int, rng: torch.Generator, like: Tensor
) -> Float[Tensor, "n 1 o"]:
    """The medians of `n` equally likely strata of N(0, 1), in random order for each output.

    All rows share them, so that chunks do not change a result; their mean and variance are not
    random.
    """
    medians = torch.special.ndtri((torch.arange(n, dtype=torch.float64) + 0.5) / n)
    order = torch.rand(n, 1, o, generator=rng, device=rng.device).argsort(0)
    return medians.to(like)[order]
