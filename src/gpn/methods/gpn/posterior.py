"""The posterior of a fitted GPN: functions x → g(x, z), z ~ N(0, I)."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from gpn.core.chunks import chunk_size, join_chunks, map_chunks
from gpn.core.networks.trunks import MLPTrunk, ModuleTrunk, Trunk
from gpn.core.posterior.base import MOMENT_DRAWS, FunctionBatch, Posterior, require_draws
from gpn.core.posterior.finite_rows import deferred_check
from gpn.core.posterior.gaussian import GaussianPosterior
from gpn.core.posterior.softmax import softmax_moments
from gpn.core.priors.ard import ARDPrior
from gpn.core.priors.cholesky import cholesky
from gpn.core.priors.laplace import laplace_root
from gpn.core.task import Signature
from gpn.core.types import Draws, Inputs, Outputs, Rng, as_generator, channels_last, normal
from gpn.methods.gpn.config import GPNConfig, ResolvedConfig
from gpn.methods.gpn.fit_report import FitReport, diagnose
from gpn.methods.gpn.model.generator import AffineGenerator, ConcatGenerator, Generator
from gpn.methods.gpn.model.kernel_generator import KernelGenerator, exact_root

T = TypeVar("T")

MAX_EXACT_ROWS = 1000
SAMPLE_JITTER = 1e-8
CPU_CHUNK_ROWS = 1024


class GPNPosterior(Posterior):
    """A trained generator, its configuration as it was resolved, and what the fit found out."""

    def __init__(
        self,
        generator: Generator,
        signature: Signature,
        config: GPNConfig,
        noise_std: float | None = None,
        fit_report: FitReport | None = None,
    ) -> None:
        example = next(generator.parameters())
        super().__init__(signature, example.device, example.dtype, noise_std)
        self._like = example.detach()
        self.generator = generator.eval().requires_grad_(False)  # noqa: FBT003
        self.config = config
        self.fit_report = fit_report or FitReport()
        self.temperature = self.fit_report.temperature or 1.0
        self.checks = diagnose(config, self.fit_report)

    def functions(self, n: int, rng: torch.Generator) -> FunctionBatch:
        return partial(self.generator, codes=normal((n, self.generator.code_dim), rng, self._like))

    def tensors(self) -> dict[str, Tensor]:
        """The generator's state, the size of its codes, and the temperature unless it is 1."""
        known = {"code_dim": torch.tensor(self.generator.code_dim)}
        if self.temperature != 1:
            known["temperature"] = torch.tensor(self.temperature, dtype=torch.float64)
        return {**self.generator.state_dict(), **known}

    @staticmethod
    def restore(
        config: GPNConfig, signature: Signature, tensors: dict[str, Tensor]
    ) -> "GPNPosterior":
        """The posterior whose `tensors` these are."""
        if config.generator == "closed-form":
            return _restored_closed_form(config, signature, tensors)
        state = dict(tensors)
        temperature = state.pop("temperature", torch.tensor(1.0))
        if temperature.ndim or not 0 < float(temperature) < math.inf:
            raise ValueError(f"the temperature must be a positive number, got {temperature}.")
        generator = build_generator(config, signature, int(state.pop("code_dim")), as_generator(0))
        example = next(value for name, value in state.items() if name.endswith("weight"))
        generator.to(example.device, example.dtype).load_state_dict(state)
        posterior = make_posterior(generator, signature, config)
        posterior.temperature = float(temperature)
        return posterior


def build_generator(
    config: GPNConfig,
    signature: Signature,
    code_dim: int,
    rng: torch.Generator,
    trunk: Trunk | None = None,
) -> Generator:
    """The generator that `config` names, on `trunk` or on the configuration's own."""
    trunk = trunk or config.trunk or MLPTrunk()
    shapes = trunk, signature.input_shape, signature.n_outputs, code_dim, rng
    if config.generator == "concat":
        return ConcatGenerator(*shapes)
    return AffineGenerator(*shapes, blocks=code_blocks(config, signature))


def code_blocks(config: GPNConfig, signature: Signature) -> int:
    """Number of blocks in the code: one for each output, or one that all outputs share.

    Targets are independent, a priori and given the labels. Logits are so a priori only: where the
    labels decide, a softmax ties them, which joint anchors follow and independent ones ignore.
    """
    tied = signature.is_classification and (config.anchor == "joint" or config.target_noise)
    return signature.n_outputs if config.codes == "spectral" and not tied else 1


def make_posterior(
    generator: Generator,
    signature: Signature,
    config: GPNConfig,
    fit_report: FitReport | None = None,
) -> GPNPosterior:
    """The posterior of a trained generator."""
    config = config.public() if isinstance(config, ResolvedConfig) else config
    make = AffinePosterior if isinstance(generator, AffineGenerator) else ConcatPosterior
    return make(generator, signature, config, config.noise_std, fit_report)


def _restored_closed_form(
    config: GPNConfig, signature: Signature, tensors: dict[str, Tensor]
) -> "ClosedFormPosterior":
    """From landmarks and weights; the root is computed again where landmarks are the labels."""
    landmarks, weights = tensors["landmarks"].clone(), tensors["weights"].clone()
    assert isinstance(config.prior, ARDPrior)
    is_exact, precision = "root" not in tensors, tensors.get("precision")
    if precision is not None:
        precision = precision.clone()
        root = laplace_root(config.prior.kernel(landmarks, landmarks), precision)
    elif is_exact:
        root = exact_root(config.prior, landmarks, config.noise_std or 0.0)
    else:
        root = tensors["root"].clone()
    generator = KernelGenerator(
        config.prior, landmarks, weights, root, is_exact=is_exact, precision=precision
    )
    return ClosedFormPosterior(generator, signature, config, config.noise_std)


class ConcatPosterior(GPNPosterior):
    """Of the paper's generator: moments are taken over draws."""


class AffinePosterior(GaussianPosterior, GPNPosterior):
    """Of an affine generator: a Gaussian with mean b(x) and covariance A(x) A(x')ᵀ, exactly.

    Moments need one pass through the trunk; the number of draws asked for plays no part.
    """

    generator: AffineGenerator

    def moments(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> tuple[Outputs, Outputs]:
        """b(x), and the row sums of A(x)²."""
        means, variances = zip(*self._computed(self.generator.moments, x), strict=True)
        return join_chunks(list(means)), join_chunks(list(variances))

    def covariance(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> Float[Tensor, "o n n"]:
        root = self.covariance_root(x)
        return root.mT @ root

    def covariance_root(
        self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0
    ) -> Float[Tensor, "o s n"]:
        """A(x) itself, one line per code axis."""
        columns = join_chunks(self._computed(self.generator.columns, x), dim=1)
        return columns[1:].permute(2, 0, 1)

    def _evaluate(self, x: Any, compute: Callable[[Inputs], T]) -> T:
        """A GPU may begin before it is known whether all rows are finite: our own layers take any
        number. A user's module might not."""
        if isinstance(self.config.trunk, ModuleTrunk):
            return super()._evaluate(x, compute)
        rows = self._shaped(x)
        check = deferred_check(rows)
        result = compute(channels_last(rows))
        check()
        return result

    @torch.no_grad()
    def _computed(self, compute: Callable[[Inputs], T], x: Any) -> list[T]:
        """`compute` of each chunk of the rows; the generator's columns of a chunk fit in memory."""
        n_columns = self.generator.n_columns
        return self._evaluate(x, lambda rows: self._map(compute, rows, n_columns))


class ClosedFormPosterior(GaussianPosterior, GPNPosterior):
    """Of a kernel conditioned on labels: moments in closed form, draws by Matheron's rule."""

    generator: KernelGenerator

    def moments(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> tuple[Outputs, Outputs]:
        """In closed form; `n` and `rng` play no part."""
        rows = self._rows(x)
        with torch.no_grad():
            chunks = map_chunks(self.generator.moments, rows, self._chunk_rows(len(rows)))
        means, variances = zip(*chunks, strict=True)
        return join_chunks(list(means)), join_chunks(list(variances))

    def mean(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> Outputs:
        """The mean alone, at a fraction of the variance's cost."""
        rows = self._rows(x)
        with torch.no_grad():
            chunks = map_chunks(self.generator.mean, rows, self._chunk_rows(len(rows)))
        return join_chunks(chunks)

    def _chunk_rows(self, n_rows: int) -> int:
        """So many that, on a CPU, what belongs to them and to all landmarks stays in its caches."""
        size = chunk_size(len(self.generator.landmarks), self.device, n_rows)
        return size if self.device.type == "cuda" else min(size, CPU_CHUNK_ROWS)

    @torch.no_grad()
    def covariance(self, x: Any, n: int = MOMENT_DRAWS, rng: Rng = 0) -> Float[Tensor, "o n n"]:
        return self.generator.covariance(self._rows(x)).expand(self.n_outputs, -1, -1)

    @torch.no_grad()
    def sample(self, x: Any, n: int = 100, rng: Rng = None) -> Draws:
        """Joint draws at the rows of `x`: exact ones, where their covariance can be factored."""
        rows, generator = self._rows(x), as_generator(rng, self.device)
        if not 0 < len(rows) <= MAX_EXACT_ROWS:
            return super().sample(rows, n, rng)
        matrix = self.generator.covariance(rows)
        matrix.diagonal().add_(SAMPLE_JITTER * float(matrix.diagonal().max()) + 1e-12)
        noise = normal((require_draws(n), len(rows), self.n_outputs), generator, rows)
        return self.generator.mean(rows) + cholesky(matrix, "the covariance at the rows") @ noise

    @torch.no_grad()
    def _class_moments(self, x: Any, n: int, rng: Rng) -> tuple[Outputs, Tensor]:
        """E_z[p] and E_z[H[p]] of each row's Gaussian, by fixed draws."""
        self._require_classes()
        return softmax_moments(*self.moments(x))

    def tensors(self) -> dict[str, Tensor]:
        """Landmarks and weights; and the root of the reduction, where it is not theirs alone."""
        state = self.generator.state_dict()
        if self.generator.is_exact:
            del state["root"]
        return state
