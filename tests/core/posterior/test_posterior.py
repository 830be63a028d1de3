"""Posteriors whose moments, quantiles and entropies have a closed form."""

import gc
import math

import numpy as np
import pytest
import torch
from torch import Tensor

import gpn
from gpn.core import chunks
from gpn.core.posterior.base import FunctionBatch, Posterior
from gpn.core.task import Signature
from gpn.core.types import normal

X = torch.linspace(-1, 2, 7, dtype=torch.float64)[:, None]


def live_numbers() -> int:
    """How many numbers all tensors hold that Python can reach."""
    return sum(part.numel() for part in gc.get_objects() if type(part) is Tensor)


class Lines(Posterior):
    """f_c(x) = a_c + b_c x with a ~ N(1, 0.5²) and b ~ N(−2, 0.8²), independent.

    It remembers every (a, b) that was drawn, how many numbers each call asked for, and how many
    were alive then.
    """

    def __init__(self, n_outputs: int = 1, *, is_classification: bool = False) -> None:
        signature = Signature((1,), n_outputs, is_classification)
        super().__init__(signature, torch.device("cpu"), torch.float64)
        self.drawn: list[tuple[Tensor, Tensor]] = []
        self.asked: list[int] = []
        self.alive: list[int] | None = None

    def functions(self, n: int, rng: torch.Generator) -> FunctionBatch:
        noise = normal((2, n, 1, self.n_outputs), rng, X)
        start, slope = 1 + 0.5 * noise[0], -2 + 0.8 * noise[1]
        self.drawn.append((start, slope))

        def batch(x: Tensor) -> Tensor:
            values = start + slope * x
            self.asked.append(values.numel())
            if self.alive is not None:
                self.alive.append(live_numbers())
            return values

        return batch

    def stacked(self, x: Tensor) -> Tensor:
        """Every function drawn so far at `x`, all at once."""
        return torch.cat([start + slope * x for start, slope in self.drawn])


MEAN = 1 - 2 * X
VARIANCE = 0.5**2 + 0.8**2 * X**2


def test_draws_are_sample_first_and_seeded() -> None:
    lines = Lines(n_outputs=3)
    draws = lines.sample(X, 5, rng=0)
    assert draws.shape == (5, 7, 3)
    assert torch.equal(draws, lines.sample(X, 5, rng=0))
    assert not torch.equal(draws, lines.sample(X, 5, rng=1))
    assert not torch.equal(lines.sample(X, 5), lines.sample(X, 5)), (
        "no seed: another draw each time"
    )


def test_a_generator_moves_on_and_global_state_does_not() -> None:
    lines, rng = Lines(), torch.Generator().manual_seed(0)
    before = torch.get_rng_state()
    first, second = lines.sample(X, 5, rng=rng), lines.sample(X, 5, rng=rng)
    lines.mean(X)
    lines.sample(X, 5)
    assert not torch.equal(first, second)
    assert torch.equal(first, lines.sample(X, 5, rng=torch.Generator().manual_seed(0)))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_flag_is_not_a_seed() -> None:
    with pytest.raises(TypeError, match=r"an integer seed or None, got True; try rng=0"):
        Lines().sample(X, 5, rng=True)


def test_one_function_is_fixed() -> None:
    """The same values on every call, on any rows, in any order, and straight lines at that."""
    f = Lines(n_outputs=2).draw(rng=3)
    values = f(X)
    assert values.shape == (7, 2)
    assert torch.equal(f(X), values)
    assert torch.equal(f(X.flip(0)), values.flip(0))
    torch.testing.assert_close(f(X[2:3]), values[2:3])
    torch.testing.assert_close(values.diff(dim=0).diff(dim=0), torch.zeros(5, 2).double())
    assert torch.equal(Lines(n_outputs=2).draw(rng=3)(X), values)


def test_arrays_and_integers_are_rows_too() -> None:
    f = Lines().draw(rng=0)
    rows = torch.tensor([[0.0], [1.0], [2.0]])
    for same in (rows, rows.long(), rows.numpy(), rows.tolist(), np.array([[0], [1], [2]])):
        assert torch.equal(f(same), f(rows))


def test_gradient_of_a_line_is_its_slope() -> None:
    lines = Lines()
    f = lines.draw(rng=0)
    x = X.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(f(x).sum(), x)
    torch.testing.assert_close(gradient, lines.drawn[0][1][0].expand(7, 1))


def test_gradients_of_a_gpn_equal_finite_differences(quick: gpn.GPNConfig) -> None:
    rows = torch.randn(12, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    f = gpn.GPN(quick).fit(gpn.Task(rows, rows.sin(), pool=rows), rng=0).draw(rng=1)
    x = rows[:4].clone().requires_grad_()
    assert torch.autograd.gradcheck(f, (x,), eps=1e-6, atol=1e-7, rtol=1e-5)


@pytest.mark.parametrize("n", [2, 100, 101, 250])
@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_chunked_moments_are_the_moments_of_all_draws(
    n: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_NUMBERS", rows * 64 * min(n, 100))
    lines = Lines(n_outputs=2)
    mean = lines.mean(X, n)
    draws = lines.stacked(X)
    assert len(draws) == n
    torch.testing.assert_close(mean, draws.mean(0))
    torch.testing.assert_close(lines.variance(X, n), draws.var(0))
    torch.testing.assert_close(lines.std(X, n), draws.std(0))
    assert all(map(torch.equal, lines.moments(X, n), (mean, lines.variance(X, n))))
    assert max(lines.asked) <= rows * min(n, 100) * 2


def test_variance_survives_a_large_mean() -> None:
    """Merging centred sums loses nothing where Σx² − (Σx)²/n would lose everything."""
    lines, far = Lines(), X + 1e9
    mean = lines.mean(far, 300)
    draws = lines.stacked(far)
    torch.testing.assert_close(mean, draws.mean(0), rtol=1e-12, atol=0.0)
    torch.testing.assert_close(lines.variance(far, 300), draws.var(0), rtol=1e-9, atol=0.0)


def test_moments_are_exact_in_the_limit_and_two_calls_agree() -> None:
    lines, n = Lines(), 20_000
    mean, variance = lines.mean(X, n), lines.variance(X, n)
    assert ((mean - MEAN).abs() < 5 * (VARIANCE / n).sqrt()).all()
    assert ((variance - VARIANCE).abs() < 5 * VARIANCE * math.sqrt(2 / n)).all()
    assert torch.equal(lines.mean(X, n), mean)
    assert not torch.equal(lines.mean(X, n, rng=1), mean)


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_intervals_are_the_gaussian_quantiles(level: float) -> None:
    lines, n = Lines(), 20_000
    tail = (1 - level) / 2
    z = float(torch.special.ndtri(torch.tensor(1 - tail, dtype=torch.float64)))
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    error = 5 * VARIANCE.sqrt() * math.sqrt(tail * (1 - tail) / n) / density
    low, high = lines.interval(X, level, n)
    assert ((low - (MEAN - z * VARIANCE.sqrt())).abs() < error).all()
    assert ((high - (MEAN + z * VARIANCE.sqrt())).abs() < error).all()


def test_intervals_are_the_quantiles_of_all_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_NUMBERS", 2 * 64 * 150)
    lines = Lines(n_outputs=2)
    low, high = lines.interval(X, 0.8, 150)
    levels = torch.tensor([0.1, 0.9], dtype=torch.float64)
    torch.testing.assert_close(torch.stack([low, high]), lines.stacked(X).quantile(levels, dim=0))


def test_covariance_is_the_closed_form() -> None:
    """Cov[f(x), f(x')] = 0.25 + 0.64 x x', one matrix per output, variance on its diagonal."""
    lines, n = Lines(n_outputs=2), 20_000
    covariance = lines.covariance(X, n)
    exact = 0.5**2 + 0.8**2 * X @ X.T
    error = ((VARIANCE @ VARIANCE.T + exact.square()) / n).sqrt()
    assert covariance.shape == (2, 7, 7)
    assert ((covariance - exact).abs() < 5 * error).all()
    torch.testing.assert_close(
        covariance.diagonal(dim1=1, dim2=2).T, lines.sample(X, n, rng=0).var(0)
    )


def test_class_scores_are_their_formulas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_NUMBERS", 2 * 64 * 100)
    lines = Lines(n_outputs=3, is_classification=True)
    probabilities = lines.probabilities(X, 250)
    each = lines.stacked(X).softmax(-1)
    torch.testing.assert_close(probabilities, each.mean(0))
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(7).double())
    of_mean = -(each.mean(0) * each.mean(0).log()).sum(-1)
    torch.testing.assert_close(lines.entropy(X, 250), of_mean)
    mean_of = -(each * each.log()).sum(-1).mean(0)
    torch.testing.assert_close(lines.mutual_information(X, 250), of_mean - mean_of)


def test_entropy_bounds_hold_even_for_sure_logits() -> None:
    """0 ≤ I ≤ H ≤ log o, where logits run from 0 to thousands."""
    lines = Lines(n_outputs=4, is_classification=True)
    x = torch.tensor([[0.0], [1.0], [30.0], [3000.0]])
    entropy, information = lines.entropy(x), lines.mutual_information(x)
    assert (information >= 0).all()
    assert (information <= entropy + 1e-12).all()
    assert (entropy <= math.log(4) + 1e-12).all()
    # far away each line is sure of one of four exchangeable classes: all is disagreement
    assert float(information[3]) == pytest.approx(math.log(4), abs=0.02)
    assert float(information[0]) < 0.2


def test_many_draws_at_many_rows_in_small_chunks() -> None:
    """2·10⁷ numbers are computed, and never more than CHUNK_NUMBERS at a time."""
    lines, rows = Lines(), torch.linspace(-1, 1, 20_000, dtype=torch.float64)[:, None]
    mean = lines.mean(rows, 1000)
    assert sum(lines.asked) == 1000 * 20_000
    assert max(lines.asked) <= chunks.CHUNK_NUMBERS
    assert (mean - (1 - 2 * rows)).abs().max() < 5 * math.sqrt(0.89 / 1000)


@pytest.mark.parametrize(
    "score", ["mean", "variance", "interval", "probabilities", "entropy", "mutual_information"]
)
def test_chunks_are_freed(score: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the 300,000 numbers at 1,000 rows, at most three chunks of 60,000 are alive at a time."""
    monkeypatch.setattr(chunks, "CHUNK_NUMBERS", 200 * 100 * 64)
    lines = Lines(n_outputs=3, is_classification=True)
    rows = torch.zeros(1000, 1, dtype=torch.float64)
    lines.alive, before = [], live_numbers()
    getattr(lines, score)(rows, n=100)
    assert len(lines.alive) == 5
    assert max(lines.alive) - before < 3 * 60_000


@pytest.mark.parametrize("shape", [(3,), (3, 2), (3, 1, 1)])
def test_rows_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    lines, wrong = Lines(), torch.zeros(shape)
    message = r"as in the fit, shape \(n, 1\), got \(3,.*\)"
    for call in (
        lines.sample,
        lines.mean,
        lines.interval,
        lines.covariance,
        lines.draw(rng=0),
    ):
        with pytest.raises(ValueError, match=message):
            call(wrong)


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0, -0.5])
def test_a_level_lies_between_zero_and_one(level: float) -> None:
    with pytest.raises(ValueError, match=rf"strictly between 0 and 1, got {level}; try 0\.95"):
        Lines().interval(X, level)


@pytest.mark.parametrize("n", [0, -3])
def test_some_draws_are_needed(n: int) -> None:
    lines = Lines(n_outputs=2, is_classification=True)
    for call in (lines.sample, lines.probabilities, lines.entropy):
        with pytest.raises(
            ValueError, match=rf"draws must be a whole number of at least 1, got {n}"
        ):
            call(X, n)
    for call in (lines.mean, lines.variance, lines.covariance):
        with pytest.raises(ValueError, match=rf"at least 2 draws, got {n}"):
            call(X, n)


@pytest.mark.parametrize("score", ["sample", "mean", "variance", "covariance", "interval"])
def test_no_rows_give_no_answers(score: str) -> None:
    answer = getattr(Lines(), score)(X[:0])
    assert all(part.numel() == 0 for part in (answer if score == "interval" else [answer]))


def test_a_regression_has_no_probabilities() -> None:
    for call in (Lines().probabilities, Lines().entropy, Lines().mutual_information):
        with pytest.raises(TypeError, match=r"classification task.*regression; pass integer y"):
            call(X)


def test_ends_of_a_new_label_do_not_depend_on_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = Lines(n_outputs=2)
    lines.noise_std = 0.7
    whole = lines.interval(X, observation_noise=True)
    monkeypatch.setattr(chunks, "CHUNK_NUMBERS", 3 * 64_000)
    for end, wanted in zip(lines.interval(X, observation_noise=True), whole, strict=True):
        assert torch.equal(end, wanted)


def test_the_width_of_a_new_labels_interval_does_not_depend_on_its_seed() -> None:
    """At one row the noise dominates, and its quantiles are known."""
    lines = Lines()
    lines.noise_std = 100.0
    for seed in range(5):
        low, high = lines.interval(X[:1], rng=seed, observation_noise=True)
        assert float(high - low) == pytest.approx(2 * 1.96 * 100.0, rel=0.01)
