"""The problems of the Neural Testbed (Osband et al. 2022): random networks and Gaussian processes.

Classification has two classes, rows x ~ N(0, I_d) and labels y ~ softmax(f(x)) of a random network

    f(x) = W₃ relu(W₂ relu(W₁ x + b₁)) / ρ,     hidden layers of 50 units

whose weights are normal with variance 1/fan-in, cut off at two standard deviations, and
b₁ ~ N(0, 1/d). A test draws two anchors from N(0, I), τ rows from the two with replacement, and a
label for each of these rows.

Regression has y = f(x) + σ ε, where f is a Gaussian process: an infinitely wide network of two
hidden layers of ReLU units, with unit variances.
"""

import itertools
import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gpn import MLPPrior
from gpn.core.priors.cholesky import jittered_cholesky

WIDTH, N_CLASSES, N_TESTS, N_ROWS = 50, 2, 1000, 1000
INPUTS, RATIOS, TEMPERATURES, TAUS = (2, 10, 100), (1, 10, 100, 1000), (0.01, 0.1, 0.5), (1, 10)
SEEDS = tuple(range(5))
REGRESSION_INPUTS, REGRESSION_RATIOS, NOISES = (1, 10, 100), (1, 10, 100), (0.01, 0.1, 1.0)
REGRESSION_SEEDS = tuple(range(10))
CUT = 2.0  # standard deviations at which the weights' normal distribution ends
WEIGHT_VARIANCE = 0.7737413  # of a normal variable of unit variance that is cut off there

Layers = list[tuple[Float[Tensor, "i o"], Float[Tensor, "o"]]]


@dataclass(frozen=True, order=True)
class Setting:
    """What an agent is told: inputs d, labels per input n/d, and the logits' temperature ρ."""

    n_inputs: int
    ratio: int
    temperature: float
    seed: int

    @property
    def n_labels(self) -> int:
        return self.n_inputs * self.ratio

    def generator(self, stream: int) -> torch.Generator:
        """A random stream of its own for each setting and purpose."""
        place = (
            INPUTS.index(self.n_inputs),
            RATIOS.index(self.ratio),
            TEMPERATURES.index(self.temperature),
        )
        return _generator(1, *place, self.seed, stream)


@dataclass(frozen=True)
class AnchorTests:
    """Pairs of anchors, how often each class was drawn at each of them, and log p* of labels."""

    anchors: Float[Tensor, "s 2 d"]
    counts: Float[Tensor, "s 2 c"]
    log_likelihood: Float[Tensor, "s"]


@dataclass(frozen=True)
class Classification:
    """One problem: labels, and tests for each τ. Both values of τ share function and labels."""

    setting: Setting
    layers: Layers
    x: Float[Tensor, "n d"]
    y: Int[Tensor, "n"]

    def logits(self, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n c"]:
        """f(x)."""
        for weight, bias in self.layers[:-1]:
            x = torch.relu(x @ weight + bias)
        weight, bias = self.layers[-1]
        return (x @ weight + bias) / self.setting.temperature

    def tests(self, tau: int) -> AnchorTests:
        rng, d = self.setting.generator(1 + tau), self.setting.n_inputs
        anchors = torch.randn(N_TESTS, 2, d, generator=rng)
        log_p = self.logits(anchors).log_softmax(-1).double()
        which = torch.randint(2, (N_TESTS, tau), generator=rng)
        picked = torch.gather(log_p, 1, which[..., None].expand(-1, -1, N_CLASSES))
        uniform = torch.rand(N_TESTS, tau, generator=rng, dtype=torch.float64)
        labels = (uniform > picked[..., 0].exp()).long()
        counts = torch.zeros(N_TESTS, 2 * N_CLASSES)
        counts.scatter_add_(1, N_CLASSES * which + labels, torch.ones_like(uniform).float())
        log_likelihood = picked.gather(2, labels[..., None])[..., 0].sum(1)
        return AnchorTests(anchors, counts.reshape(N_TESTS, 2, N_CLASSES), log_likelihood)


def classification(setting: Setting) -> Classification:
    """The problem of a setting."""
    rng, d = setting.generator(0), setting.n_inputs
    layers = random_layers(d, rng)
    x = torch.randn(setting.n_labels, d, generator=rng)
    problem = Classification(setting, layers, x, torch.zeros(len(x), dtype=torch.long))
    first = problem.logits(x).double().softmax(-1)[:, 0]
    y = (torch.rand(len(x), generator=rng, dtype=torch.float64) > first).long()
    return Classification(setting, layers, x, y)


def random_layers(d: int, rng: torch.Generator) -> Layers:
    """The layers of one network of the problems' prior, before division by ρ."""
    bias = torch.randn(WIDTH, generator=rng) / d**0.5
    return [
        (truncated_normal((d, WIDTH), d, rng), bias),
        (truncated_normal((WIDTH, WIDTH), WIDTH, rng), torch.zeros(WIDTH)),
        (truncated_normal((WIDTH, N_CLASSES), WIDTH, rng), torch.zeros(N_CLASSES)),
    ]


def truncated_normal(shape: tuple[int, ...], fan_in: int, rng: torch.Generator) -> Tensor:
    """Normal weights of variance 1/fan-in, cut off at two standard deviations."""
    end = 0.5 * (1 + math.erf(CUT / 2**0.5))
    uniform = torch.rand(shape, generator=rng, device=rng.device, dtype=torch.float64)
    normal = torch.special.ndtri(1 - end + (2 * end - 1) * uniform)
    return (normal / fan_in**0.5).float()


def classification_settings(seeds: tuple[int, ...] = SEEDS) -> list[Setting]:
    """The sweep, with the seeds of one configuration next to each other."""
    return [Setting(*row) for row in itertools.product(INPUTS, RATIOS, TEMPERATURES, seeds)]


@dataclass(frozen=True, order=True)
class RegressionSetting:
    """What an agent is told: inputs d, labels per input n/d, and the noise's standard deviation."""

    n_inputs: int
    ratio: int
    noise_std: float
    seed: int

    @property
    def n_labels(self) -> int:
        return self.n_inputs * self.ratio

    @property
    def prior(self) -> MLPPrior:
        """The process that functions are drawn from."""
        return deep_relu(self.n_inputs, 1.0)


@dataclass(frozen=True)
class Regression:
    """One problem: labels, test rows, and the posterior's moments there."""

    setting: RegressionSetting
    x: Float[Tensor, "n d"]
    y: Float[Tensor, "n 1"]
    x_test: Float[Tensor, "m d"]
    mean: Float[Tensor, "m"]
    std: Float[Tensor, "m"]


def regression(setting: RegressionSetting, device: str = "cpu") -> Regression:
    """The problem of a setting, in float64; large ones are faster to make on a GPU."""
    place = (
        REGRESSION_INPUTS.index(setting.n_inputs),
        REGRESSION_RATIOS.index(setting.ratio),
        NOISES.index(setting.noise_std),
    )
    rng, n = _generator(2, *place, setting.seed, 0), setting.n_labels
    shape = (n + N_ROWS, setting.n_inputs)
    x = torch.randn(shape, generator=rng, dtype=torch.float64).to(device)
    normal = torch.randn(2, n, 1, generator=rng, dtype=torch.float64).to(device)
    gram = process_covariance(x[:n], x[:n])
    root, _ = jittered_cholesky(gram, "the process at the labels")
    y = root @ normal[0] + setting.noise_std * normal[1]
    gram.diagonal().add_(setting.noise_std**2)
    cross = process_covariance(x[:n], x[n:])
    solved = torch.linalg.solve(gram, torch.cat([y, cross], dim=1))
    mean = (cross * solved[:, :1]).sum(0)
    prior = process_covariance(x[n:], x[n:]).diagonal()
    variance = prior - (cross * solved[:, 1:]).sum(0)
    return Regression(setting, x[:n], y, x[n:], mean, variance.clamp_min(0.0).sqrt())


def process_covariance(left: Float[Tensor, "n d"], right: Float[Tensor, "m d"]) -> Tensor:
    """K₂, with K₀ = (1 + x·x')/d and K_{l+1} = √(K_l K_l') (sin θ + (π − θ) cos θ) / 2π."""
    d = left.shape[1]
    cross = (1 + left @ right.T) / d
    on_left, on_right = ((1 + x.square().sum(1)) / d for x in (left, right))
    for _ in range(2):
        scale = (on_left[:, None] * on_right).sqrt()
        cosine = (cross / scale).clamp(-1.0, 1.0)
        angle = cosine.acos()
        cross = scale * (angle.sin() + (math.pi - angle) * cosine) / (2 * math.pi)
        on_left, on_right = on_left / 2, on_right / 2
    return cross


def regression_settings(seeds: tuple[int, ...] = REGRESSION_SEEDS) -> list[RegressionSetting]:
    rows = itertools.product(REGRESSION_INPUTS, REGRESSION_RATIOS, NOISES, seeds)
    return [RegressionSetting(*row) for row in rows]


def deep_relu(d: int, variance: float, height: float = 1.0) -> MLPPrior:
    """Two hidden layers of ReLU units: weights of `variance` per fan-in, and b₁ ~ N(0, 1/d).

    `height` multiplies the covariance of the functions.
    """
    return MLPPrior(
        widths=(WIDTH, WIDTH),
        prior_variance=(variance, variance, variance * height),
        bias_variance=(1 / d, 0.0, 0.0),
        activation="relu",
    )


def _generator(*numbers: int) -> torch.Generator:
    """A generator whose seed is one number for these few."""
    seed = 0
    for number in numbers:
        seed = seed * 1009 + number
    return torch.Generator().manual_seed(seed)
