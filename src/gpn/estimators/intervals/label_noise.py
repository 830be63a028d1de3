"""How labels scatter about the posterior, learnt from labels that it has not seen.

A posterior says N(m, v) of the function and σ² of the noise. What a model misses, noise that
differs from row to row, and long tails all show in the residuals of unseen labels:

    y = m + s(x) · t_ν,        s(x)² = c² h(x) (min(v, v̂) + σ²) + max(v − v̂, 0)

with Student's t, a factor c, and a factor h(x) from boosted trees where held-out likelihood asks
for it: trees for the square of a residual, or for its logarithm, which long tails disturb less.
v̂ is the largest variance among known rows: what exceeds it is never shrunk.

Where predictions have a gate, c and ν are those of the mixture: rows that it doubts have wide
intervals already, and the others need not be wider to make up for them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import betaln, ndtr, stdtr
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import KFold

from gpn.estimators.closed_form.mean import few_threads
from gpn.estimators.closed_form.trees import Trees

Rows = NDArray[np.float64]

FREEDOMS = (2.5, 3.0, 4.0, 6.0, 10.0, 30.0, math.inf)
FACTORS = np.exp(np.linspace(-4.0, 1.0, 161))  # small ones where functions are nearly exact
FACTOR_SPREAD = 0.5  # of the prior of log c, in the place of labels where they are few
MIN_COVERAGE, MAX_COVERAGE = 0.935, 0.955
FEW_LABELS, MIN_COVERAGE_OF_FEW = 300, 0.95
TAIL_PENALTY = 1.0  # nats that a long tail must gain
MIN_VARYING_LABELS = 200
MIN_MANY_LABELS = 5000
MIN_VARYING_GAIN = 0.01  # nats per label
LOG_VARYING_RANGE = -7.0, 4.0
NORMAL_LOG_SQUARE = 1.27  # −E[log e²] of N(0, 1)
KNOWN_SHARE = 0.99


@dataclass(frozen=True)
class LabelNoise:
    """The scatter of one target's labels."""

    noise_variance: float
    factor: float = 1.0
    freedom: float = math.inf
    known_variance: float = math.inf
    varying: Trees | None = None

    def scale(self, x: Rows, variance: Rows) -> Rows:
        """s(x) for the function's variance at the rows."""
        known = np.minimum(variance, self.known_variance)
        total = self.factor**2 * (known + self.noise_variance)
        if self.varying is not None:
            total = total * _factors(self.varying, x)
        return np.sqrt(total + (variance - known))


@dataclass(frozen=True)
class Residuals:
    """y − m of labels that the posterior has not seen, and the function's variance there.

    doubt: 1 − P(known | x) there; None without a gate. prior_variance: v₀, the function's variance
    where rows are unknown. weights: a label of weight c has the noise σ²/c.
    """

    x: Rows
    residuals: Rows
    variance: Rows
    doubt: Rows | None = None
    prior_variance: float = 0.0
    weights: Rows | float = 1.0

    def scaled(self, noise_variance: float) -> Rows:
        return self.residuals / self._deviation(noise_variance)

    def wider(self, noise_variance: float) -> Rows:
        """The deviation of a label where its row is unknown, over that where it is known."""
        unknown = np.maximum(self.variance, self.prior_variance) + noise_variance / self.weights
        ratio: Rows = np.sqrt(unknown) / self._deviation(noise_variance)
        return ratio

    def _deviation(self, noise_variance: float) -> Rows:
        total: Rows = np.maximum(self.variance + noise_variance / self.weights, 1e-12)
        return np.sqrt(total)


@dataclass(frozen=True)
class Gate:
    """(1 − doubt) · t + doubt · N(0, wider²): the distribution of scaled residuals."""

    doubt: Rows
    wider: Rows


def learn_label_noise(
    unseen: Residuals,
    noise_variance: float | None,
    *,
    n_parameters: float = 0.0,
    others: Residuals | None = None,
) -> LabelNoise:
    """From residuals of unseen labels; `others`, whose size is less certain, tell all but size.

    `n_parameters` were fitted to these labels all the same, the prior's scales among them, so that
    new residuals are larger: their variance is about 1 + p/n times as large.
    """
    if noise_variance is None:
        noise_variance = _noise_variance(unseen.residuals, unseen.variance)
    every = [unseen] if others is None else [unseen, others]
    x = np.concatenate([each.x for each in every])
    parts = [each.scaled(noise_variance) for each in every]
    scaled = np.concatenate([part * (_size(parts[0]) / _size(part)) for part in parts])
    factors, varying = np.ones(len(x)), None
    if len(x) >= MIN_VARYING_LABELS:
        factors, varying = _learn_varying(x, scaled)
    scaled, n = scaled / np.sqrt(factors), len(unseen.x)
    gate = None
    if unseen.doubt is not None:
        gate = Gate(unseen.doubt, unseen.wider(noise_variance) / np.sqrt(factors[:n]))
    freedoms = FREEDOMS if others is None else (_factor_and_freedom(scaled)[1],)
    factor, freedom = _factor_and_freedom(scaled[:n], gate, freedoms)
    factor *= math.sqrt(1 + n_parameters / n)
    known = max(float(np.quantile(unseen.variance, KNOWN_SHARE)), 1e-12)
    return LabelNoise(noise_variance, factor, freedom, known, varying)


def _size(scaled: Rows) -> float:
    """The geometric mean, which a long tail hardly changes."""
    return float(np.exp(np.log(np.maximum(np.abs(scaled), 1e-6)).mean()))


def _noise_variance(residuals: Rows, variance: Rows) -> float:
    """The likeliest σ² of residuals that are N(0, v + σ²)."""
    grid = np.mean(residuals**2) * np.logspace(-3, 0, 60) + 1e-12
    total = variance[:, None] + grid
    return float(grid[np.argmin((residuals[:, None] ** 2 / total + np.log(total)).mean(0))])


def _factor_and_freedom(
    scaled: Rows, gate: Gate | None = None, freedoms: Sequence[float] = FREEDOMS
) -> tuple[float, float]:
    """c and ν of the largest likelihood, with a mild prior for c = 1 and short tails.

    Residuals that are no Student's t have a likeliest c whose intervals hold too little, or too
    much: only such c are allowed as hold at least `MIN_COVERAGE` of these labels where they promise
    95 %, and at most `MAX_COVERAGE` where labels are many enough to tell. Few labels, which a fit
    flatters most, must be held a little more often.
    """
    best = (math.inf, 1.0, math.inf)
    are_few = len(scaled) <= FEW_LABELS
    least, most = (MIN_COVERAGE_OF_FEW, 1.0) if are_few else (MIN_COVERAGE, MAX_COVERAGE)
    squares = scaled[:, None] ** 2 / FACTORS**2
    for freedom in freedoms:
        losses = _student_losses(squares, freedom)
        losses = losses.sum(0) if gate is None else _gated_losses(losses, scaled, gate)
        losses += 0.5 * (np.log(FACTORS) / FACTOR_SPREAD) ** 2
        losses += 0.0 if math.isinf(freedom) else TAIL_PENALTY
        held = _coverage(scaled, freedom, gate)
        enough = held >= least
        enough[-1] = True
        first = int(enough.argmax())
        allowed = enough & (held <= most)
        allowed[first : first + 2] = True
        losses = np.where(allowed, losses, math.inf)
        lowest = int(losses.argmin())
        best = min(best, (float(losses[lowest]), float(FACTORS[lowest]), freedom))
    return best[1], best[2]


def _coverage(scaled: Rows, freedom: float, gate: Gate | None) -> Rows:
    """The share of residuals in their central 95 % interval, for each of `FACTORS`."""
    sizes = np.abs(scaled)
    if gate is None:
        ends = FACTORS * stats.t.ppf(0.975, freedom)
        inside: Rows = np.searchsorted(np.sort(sizes), ends, side="right") / len(sizes)
        return inside
    within = 2 * _student_cdf(sizes[:, None] / FACTORS, freedom) - 1
    unknown = 2 * ndtr(sizes[:, None] / np.maximum(gate.wider[:, None], FACTORS)) - 1
    doubt = gate.doubt[:, None]
    covered: Rows = ((1 - doubt) * within + doubt * unknown <= 0.95).mean(0)
    return covered


def _student_cdf(values: Rows, freedom: float) -> Rows:
    found: Rows = ndtr(values) if math.isinf(freedom) else stdtr(freedom, values)
    return found


def _gated_losses(losses: Rows, scaled: Rows, gate: Gate) -> Rows:
    """−log density of the mixture, for each of `FACTORS`, by that of its first part."""
    wider = np.maximum(gate.wider[:, None], FACTORS)
    unknown = -0.5 * (scaled[:, None] / wider) ** 2 - np.log(wider * math.sqrt(2 * math.pi))
    doubt = np.clip(gate.doubt[:, None], 1e-12, 1 - 1e-12)
    both = np.logaddexp(np.log1p(-doubt) - losses, np.log(doubt) + unknown)
    total: Rows = -both.sum(0)
    return total


def _student_losses(squares: Rows, freedom: float) -> Rows:
    """−log density of each residual, for each of `FACTORS`, by their scaled squares."""
    scale = np.log(FACTORS)
    if math.isinf(freedom):
        return scale + 0.5 * (squares + math.log(2 * math.pi))
    constant = betaln(freedom / 2, 0.5) + math.log(freedom) / 2
    return scale + (freedom + 1) / 2 * np.log1p(squares / freedom) + constant


def _learn_varying(x: Rows, scaled: Rows) -> tuple[Rows, Trees | None]:
    """Trees for h(x), and their factors out of fold; none where these do not help."""
    found = [_variance_trees(x, scaled), _log_variance_trees(x, scaled)]
    losses = [student_loss(scaled / np.sqrt(f)) + np.log(f).mean() / 2 for f, _ in found]
    best = int(np.argmin(losses))
    if student_loss(scaled) - losses[best] < MIN_VARYING_GAIN:
        return np.ones(len(x)), None
    return found[best]


def _variance_trees(x: Rows, scaled: Rows) -> tuple[Rows, Trees]:
    """Trees for log E[e² | x], by the gamma likelihood."""
    return _cross_fit(x, np.maximum(scaled**2, 1e-4), "gamma")


def _log_variance_trees(x: Rows, scaled: Rows) -> tuple[Rows, Trees]:
    """Trees for E[log e² | x], by least squares; that of N(0, 1) is −1.27."""
    squares = np.maximum(scaled**2, 1e-6)
    return _cross_fit(x, np.log(squares) + NORMAL_LOG_SQUARE, "squared_error")


def _cross_fit(x: Rows, targets: Rows, loss: str) -> tuple[Rows, Trees]:
    """Factors of each row by trees that have not seen it, and the mean of all trees."""
    factors, models = np.ones(len(x)), []
    for rest, fold in KFold(5, shuffle=True, random_state=0).split(x):
        with few_threads(len(x)):
            models.append(_trees(len(x), loss).fit(x[rest], targets[rest]))
        factors[fold] = _factors(Trees.of(models[-1:]), x[fold])
    return factors, Trees.of(models)


def student_loss(scaled: Rows) -> float:
    """The mean negative log likelihood of the best Student's t."""
    factor, freedom = _factor_and_freedom(scaled)
    return float(np.log(factor) - stats.t.logpdf(scaled / factor, freedom).mean())


def _trees(n: int, loss: str) -> HistGradientBoostingRegressor:
    """Smaller trees, and fewer, where residuals are few."""
    are_many = n > MIN_MANY_LABELS
    return HistGradientBoostingRegressor(
        loss=loss,
        learning_rate=0.05,
        max_iter=120 if are_many else 60,
        max_leaf_nodes=16 if are_many else 8,
        min_samples_leaf=50 if are_many else max(20, n // 50),
        early_stopping=False,
        random_state=0,
    )


def _factors(trees: Trees, x: Rows) -> Rows:
    return np.exp(np.clip(trees.predict(x), *LOG_VARYING_RANGE))
