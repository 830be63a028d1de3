"""Metrics on draws for which their values are known."""

import math

import pytest
import torch

from gpn.metrics import (
    band_coverage,
    calibration_error,
    class_nll,
    covariance_error,
    coverage_curve,
    draws_w2,
    gaussian_nll,
    interval_calibration_error,
    interval_coverage,
    interval_width,
    joint_w2,
    marginal_w2,
    mutual_information,
    ood_auc,
    ood_aupr,
    ood_fpr95,
    ood_missed,
    ood_roc,
    probability_variance,
    reliability,
    risk_coverage,
    total_variation,
)

# 101 evenly spaced draws on [0, 1] at each of three rows: the middle p of them is p wide.
EVEN = torch.linspace(0, 1, 101, dtype=torch.float64)[:, None, None].expand(-1, 3, 1)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9])
def test_width_of_even_draws_is_the_level(level: float) -> None:
    torch.testing.assert_close(interval_width(EVEN, level), torch.full_like(EVEN[0], level))


def test_width_scales_and_does_not_shift() -> None:
    draws = torch.randn(200, 4, 2, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(interval_width(3 * draws + 7), 3 * interval_width(draws))


def test_coverage_counts_what_lies_inside() -> None:
    """The middle 80 % is [0.1, 0.9]: one target below, one on the edge, one inside."""
    targets = torch.tensor([[0.05], [0.9], [0.5]], dtype=torch.float64)
    assert float(interval_coverage(EVEN, targets, level=0.8)) == pytest.approx(2 / 3)
    assert float(interval_coverage(EVEN, targets, level=0.95)) == 1.0


def test_coverage_is_per_output() -> None:
    draws = EVEN.expand(-1, 3, 2)
    targets = torch.tensor([[0.5, 2.0]] * 3, dtype=torch.float64)
    assert interval_coverage(draws, targets).tolist() == [1.0, 0.0]


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_draws_of_the_truth_are_calibrated(level: float) -> None:
    rng = torch.Generator().manual_seed(0)
    draws = torch.randn(500, 4000, 1, generator=rng)
    coverage = float(interval_coverage(draws, torch.randn(4000, 1, generator=rng), level))
    error = math.sqrt(level * (1 - level) / 4000)
    assert abs(coverage - level) < 5 * error


def test_w2_is_zero_for_equal_laws_and_the_shift_otherwise() -> None:
    rng = torch.Generator().manual_seed(0)
    mean, std = torch.randn(20, 2, generator=rng), torch.rand(20, 2, generator=rng) + 0.1
    assert float(marginal_w2(mean, std, mean, std)) == 0.0
    assert float(marginal_w2(mean + 0.3, std, mean, std)) == pytest.approx(0.3, rel=1e-5)
    assert float(marginal_w2(mean, std + 0.4, mean, std)) == pytest.approx(0.4, rel=1e-5)
    assert float(marginal_w2(mean + 0.3, std - 0.4, mean, std)) == pytest.approx(0.5, rel=1e-5)


def test_w2_is_a_root_mean_square_over_rows() -> None:
    zero, one = torch.zeros(4, 1), torch.ones(4, 1)
    shifted = torch.tensor([[2.0], [0.0], [0.0], [0.0]])
    assert float(marginal_w2(shifted, one, zero, one)) == pytest.approx(1.0)


def test_w2_is_what_transport_of_sorted_draws_costs() -> None:
    """Between N(0, 1) and N(1, 2²), the optimal plan pairs the quantiles."""
    levels = (torch.arange(100_000, dtype=torch.float64) + 0.5) / 100_000
    quantiles = torch.special.ndtri(levels)
    transport = (quantiles - (1 + 2 * quantiles)).square().mean().sqrt()
    one = torch.ones(1, 1, dtype=torch.float64)
    distance = marginal_w2(0 * one, one, one, 2 * one)
    assert float(distance) == pytest.approx(float(transport), rel=1e-3)


def test_draws_w2_uses_the_moments_of_the_draws() -> None:
    draws = torch.randn(50, 6, 2, generator=torch.Generator().manual_seed(0)).double()
    mean, std = draws.mean(0), draws.std(0)
    assert float(draws_w2(draws, mean, std)) == 0.0
    assert float(draws_w2(draws, mean - 2.0, std)) == pytest.approx(2.0)


def test_probability_variance_is_zero_for_agreement_and_one_for_two_sure_opposites() -> None:
    """p ∈ {(1, 0), (0, 1)}, one draw each: the unbiased variance is ½ per class."""
    sure = torch.tensor([[50.0, -50.0], [-50.0, 50.0]])
    agreeing = sure[:1].expand(2, -1)
    logits = torch.stack([sure, agreeing], dim=1)
    assert probability_variance(logits).tolist() == pytest.approx([1.0, 0.0])


def test_mutual_information_is_zero_for_agreement_and_log_two_for_two_sure_opposites() -> None:
    sure = torch.tensor([50.0, -50.0]).double()
    logits = torch.stack([torch.stack([sure, sure]), torch.stack([sure, -sure])])
    assert mutual_information(logits).tolist() == pytest.approx([0.0, math.log(2)], abs=1e-9)


def test_mutual_information_sees_improbable_classes_that_variance_hardly_sees() -> None:
    """Draws with p = (1 − ε)/ε of a class: the variance is of order ε², the information of ε."""
    rare = torch.tensor([0.0, -20.0]), torch.tensor([0.0, math.log(1e-3)])
    logits = torch.stack(rare)[:, None].double()
    assert float(probability_variance(logits)) < 2e-6
    assert float(mutual_information(logits)) == pytest.approx(0.5e-3 * math.log(2), rel=0.01)


def test_probability_variance_ignores_what_softmax_ignores() -> None:
    logits = torch.randn(40, 5, 3, generator=torch.Generator().manual_seed(0))
    shift = torch.randn(40, 5, 1, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(probability_variance(logits + shift), probability_variance(logits))
    by_hand = logits.softmax(-1).sub(logits.softmax(-1).mean(0)).square().sum((0, 2)) / 39
    torch.testing.assert_close(probability_variance(logits), by_hand)


def spd(seed: int, n: int = 5) -> torch.Tensor:
    """A random covariance matrix."""
    root = torch.randn(n, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return root @ root.T + 0.1 * torch.eye(n, dtype=torch.float64)


def test_joint_w2_is_zero_for_equal_laws_and_the_shift_otherwise() -> None:
    mean, covariance = torch.arange(5, dtype=torch.float64), spd(0)
    assert float(joint_w2(mean, covariance, mean, covariance)) == pytest.approx(0.0, abs=1e-6)
    assert float(joint_w2(mean + 0.3, covariance, mean, covariance)) == pytest.approx(0.3)


def test_joint_w2_of_independent_rows_is_the_marginal_one() -> None:
    """And it is symmetric, and never less than the marginals ask for."""
    mean, other = torch.zeros(5, dtype=torch.float64), torch.arange(5, dtype=torch.float64)
    left, right = spd(0), spd(1)
    diagonal = left.diagonal().diag(), right.diagonal().diag()
    marginal = marginal_w2(
        mean[:, None],
        left.diagonal().sqrt()[:, None],
        other[:, None],
        right.diagonal().sqrt()[:, None],
    )
    assert float(joint_w2(mean, diagonal[0], other, diagonal[1])) == pytest.approx(float(marginal))
    forth, back = joint_w2(mean, left, other, right), joint_w2(other, right, mean, left)
    assert float(forth) == pytest.approx(float(back))
    assert float(forth) > float(marginal)


def test_covariance_error_is_relative() -> None:
    true = torch.stack([spd(0), spd(1)])
    assert float(covariance_error(true, true)) == 0.0
    assert float(covariance_error(1.1 * true, true)) == pytest.approx(0.1)
    assert float(covariance_error(torch.zeros_like(true), true)) == pytest.approx(1.0)


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_band_coverage_is_the_level_for_the_truth(level: float) -> None:
    mean = torch.arange(4, dtype=torch.float64)[:, None]
    std = mean + 0.5
    assert float(band_coverage(mean, std, mean, std, level)) == pytest.approx(level)
    assert float(band_coverage(mean, 0.5 * std, mean, std, level)) < level
    assert float(band_coverage(mean, 2.0 * std, mean, std, level)) > level
    assert float(band_coverage(mean + 9 * std, std, mean, std, level)) < 1e-6


def test_band_coverage_by_counting() -> None:
    """N(0.4, 0.8²) against N(0, 1): the share of true draws inside the band."""
    one = torch.ones(1, 1, dtype=torch.float64)
    draws = torch.randn(100_000, generator=torch.Generator().manual_seed(0))
    share = float(((draws - 0.4).abs() <= 1.959964 * 0.8).double().mean())
    assert float(band_coverage(0.4 * one, 0.8 * one, 0 * one, one)) == pytest.approx(
        share, abs=5e-3
    )


def test_total_variation_lies_between_agreement_and_disjointness() -> None:
    p = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.2, 0.8]])
    assert float(total_variation(p, p)) == 0.0
    assert float(total_variation(p[:1], p[:1].flip(1))) == 1.0
    assert float(total_variation(p, p.flip(1))) == pytest.approx((1.0 + 0.0 + 0.6) / 3)


def test_detection_when_scores_separate_when_they_do_not_and_when_they_are_reversed() -> None:
    low, high = torch.linspace(0, 1, 50), torch.linspace(2, 3, 30)
    measured = ood_auc(low, high), ood_aupr(low, high), ood_fpr95(low, high)
    assert measured == pytest.approx((1.0, 1.0, 0.0))
    assert ood_auc(high, low) == 0.0
    assert ood_fpr95(high, low) == 1.0
    assert ood_auc(low, low) == pytest.approx(0.5)
    assert ood_aupr(low, low[:10]) < 0.2


def test_auc_is_the_share_of_pairs_in_the_right_order() -> None:
    rng = torch.Generator().manual_seed(0)
    inside, outside = torch.randn(40, generator=rng), torch.randn(25, generator=rng) + 1
    pairs = (outside[:, None] > inside[None, :]).double().mean()
    assert ood_auc(inside, outside) == pytest.approx(float(pairs))


def test_a_roc_runs_through_every_threshold() -> None:
    """Scores 1, 2, 3 against 2, 4: alarms at 4, 3, 2 and 1."""
    false, found = ood_roc(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 4.0]))
    assert false.tolist() == pytest.approx([0, 0, 1 / 3, 2 / 3, 1])
    assert found.tolist() == pytest.approx([0, 0.5, 0.5, 1, 1])


def test_fpr95_by_hand() -> None:
    """Nineteen of twenty OOD rows score 1 or more; three of ten others do."""
    outside = torch.cat([torch.zeros(1), torch.ones(19)])
    inside = torch.cat([torch.full((7,), 0.5), torch.ones(3)])
    assert ood_fpr95(inside, torch.cat([outside, torch.ones(1)])) == pytest.approx(0.3)
    assert ood_fpr95(inside, torch.zeros(20)) == 1.0


def test_missed_rows_by_hand() -> None:
    """A threshold of 19 lets five in a hundred known rows through; 8 of 10 OOD rows exceed it."""
    inside, outside = torch.arange(20.0).repeat(5), torch.tensor([0.0, 18.0] + [19.5] * 8)
    assert ood_missed(inside, outside) == pytest.approx(0.2)
    assert ood_missed(inside, outside, fpr=0.5) == pytest.approx(0.1)
    assert ood_missed(outside, outside, fpr=0.1) == 1.0


def test_gaussian_nll_is_that_of_the_moments() -> None:
    draws = torch.randn(50, 6, 2, generator=torch.Generator().manual_seed(0)).double()
    targets = torch.zeros(6, 2).double()
    normal = torch.distributions.Normal(draws.mean(0), (draws.var(0) + 0.25).sqrt())
    torch.testing.assert_close(gaussian_nll(draws, targets, 0.5), -normal.log_prob(targets).mean())


def test_class_nll_and_calibration_by_hand() -> None:
    p = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.4, 0.6]])
    classes = torch.tensor([0, 1, 1, 1])
    by_hand = -(math.log(0.9) + math.log(0.1) + 2 * math.log(0.6)) / 4
    assert float(class_nll(p, classes)) == pytest.approx(by_hand)
    assert float(calibration_error(p, classes)) == pytest.approx((2 * 0.4 + 2 * 0.4) / 4)
    sure = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert float(calibration_error(sure, torch.tensor([0, 1]))) == 0.0


def test_calibrated_intervals_have_no_calibration_error() -> None:
    targets = torch.linspace(0, 1, 1001, dtype=torch.float64)[:, None]
    draws = torch.linspace(0, 1, 101, dtype=torch.float64)[:, None, None].expand(-1, 1001, 1)
    assert float(interval_calibration_error(draws, targets)) < 0.002
    sure = torch.zeros_like(draws)
    assert float(interval_calibration_error(sure, targets)) == pytest.approx(0.5, abs=0.01)
    levels, coverage = coverage_curve(sure, targets)
    torch.testing.assert_close(levels, torch.arange(1, 20).double() / 20)
    assert coverage.tolist() == pytest.approx([1 / 1001] * 19)


def test_reliability_is_bin_by_bin() -> None:
    p = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.0, 1.0]])
    confidence, accuracy, share = reliability(p, torch.tensor([0, 1, 0, 1]), bins=10)
    torch.testing.assert_close(confidence, torch.tensor([0.6, 2.8 / 3]))
    torch.testing.assert_close(accuracy, torch.tensor([0.0, 2 / 3]))
    torch.testing.assert_close(share, torch.tensor([0.25, 0.75]))


def test_rows_with_equal_scores_count_with_their_mean_risk() -> None:
    """First error 0; then 2 and 4 with equal scores, 3 each in either order; then 6."""
    errors, scores = torch.tensor([2.0, 0.0, 6.0, 4.0]), torch.tensor([1.0, 0.0, 5.0, 1.0])
    share, risk = risk_coverage(errors, scores)
    assert share.tolist() == [0.25, 0.5, 0.75, 1.0]
    assert risk.tolist() == [0.0, 1.5, 2.0, 3.0]
    torch.testing.assert_close(risk_coverage(errors.flip(0), scores.flip(0))[1], risk)
