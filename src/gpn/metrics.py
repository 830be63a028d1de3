"""How good draws are: pure functions of draws ``(s, n, o)``, of moments, or of probabilities."""

from statistics import NormalDist
from typing import Any

import torch
from jaxtyping import Float, Int
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve
from torch import Tensor

from gpn.core.checks import require_classes, require_count, require_level, require_shapes
from gpn.core.types import Draws, Outputs


def interval_width(draws: Draws, level: float = 0.95) -> Float[Tensor, "n o"]:
    """Width of the middle `level` of the draws (the paper's CI-width, per row)."""
    low, high = _interval(draws, level)
    return high - low


def interval_coverage(draws: Draws, targets: Outputs, level: float = 0.95) -> Float[Tensor, "o"]:
    """Share of targets inside the middle `level` of the draws (the paper's CI-correct)."""
    require_shapes(draws=(draws, "s n o"), targets=(targets, "n o"))
    low, high = _interval(draws, level)
    return ((targets >= low) & (targets <= high)).to(draws.dtype).mean(0)


def _interval(draws: Draws, level: float) -> Float[Tensor, "2 n o"]:
    require_shapes(draws=(draws, "s n o"))
    require_level(level)
    return draws.quantile(draws.new_tensor([(1 - level) / 2, (1 + level) / 2]), dim=0)


def marginal_w2(
    mean: Outputs, std: Outputs, true_mean: Outputs, true_std: Outputs
) -> Float[Tensor, ""]:
    """Root mean square over rows of the 2-Wasserstein distance between Gaussian marginals.

    W2² = (μ − μ*)² + (σ − σ*)² at each row and output.
    """
    _require_moments(mean, std, true_mean, true_std)
    squared = (mean - true_mean).square() + (std - true_std).square()
    return squared.mean().sqrt()


def _require_moments(*moments: Outputs) -> None:
    names = ("mean", "std", "true_mean", "true_std")
    require_shapes(**{name: (part, "n o") for name, part in zip(names, moments, strict=True)})


def draws_w2(draws: Draws, true_mean: Outputs, true_std: Outputs) -> Float[Tensor, ""]:
    """`marginal_w2` with the moments of the draws themselves."""
    require_shapes(draws=(draws, "s n o"), true_mean=(true_mean, "n o"))
    return marginal_w2(draws.mean(0), draws.std(0), true_mean, true_std)


def joint_w2(
    mean: Float[Tensor, "n"],
    covariance: Float[Tensor, "n n"],
    true_mean: Float[Tensor, "n"],
    true_covariance: Float[Tensor, "n n"],
) -> Float[Tensor, ""]:
    """2-Wasserstein distance between two Gaussians over all rows, per root row.

    W2² = ‖μ − μ*‖² + tr(Σ + Σ* − 2 (Σ*^{1/2} Σ Σ*^{1/2})^{1/2}), divided by the number of rows.
    """
    require_shapes(
        mean=(mean, "n"),
        covariance=(covariance, "n n"),
        true_mean=(true_mean, "n"),
        true_covariance=(true_covariance, "n n"),
    )
    root = _matrix_root(true_covariance)
    cross = _matrix_root(root @ covariance @ root)
    spread = covariance.trace() + true_covariance.trace() - 2 * cross.trace()
    squared = (mean - true_mean).square().sum() + spread.clamp_min(0.0)
    return (squared / len(mean)).sqrt()


def _matrix_root(matrix: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values.clamp_min(0.0).sqrt()) @ vectors.mT


def covariance_error(
    covariance: Float[Tensor, "o n n"], true_covariance: Float[Tensor, "o n n"]
) -> Float[Tensor, ""]:
    """‖Σ − Σ*‖_F / ‖Σ*‖_F."""
    require_shapes(covariance=(covariance, "o n n"), true_covariance=(true_covariance, "o n n"))
    return (covariance - true_covariance).norm() / true_covariance.norm()


def band_coverage(
    mean: Outputs, std: Outputs, true_mean: Outputs, true_std: Outputs, level: float = 0.95
) -> Float[Tensor, ""]:
    """Share of the true marginals' probability inside the central `level` band of N(mean, std²)."""
    _require_moments(mean, std, true_mean, true_std)
    require_level(level)
    half = NormalDist().inv_cdf((1 + level) / 2) * std
    scale = true_std * 2**0.5
    low, high = (mean - half - true_mean) / scale, (mean + half - true_mean) / scale
    return 0.5 * (high.erf() - low.erf()).mean()


def total_variation(
    probabilities: Float[Tensor, "n o"], true_probabilities: Float[Tensor, "n o"]
) -> Float[Tensor, ""]:
    """½ Σ_c |p_c − p*_c|, averaged over rows."""
    require_shapes(
        probabilities=(probabilities, "n o"), true_probabilities=(true_probabilities, "n o")
    )
    return 0.5 * (probabilities - true_probabilities).abs().sum(-1).mean()


def probability_variance(logits: Draws) -> Float[Tensor, "n"]:
    """Σ_c Var_s[softmax(logits)_c]: the paper's "posterior variance" for classes, an OOD score."""
    require_shapes(logits=(logits, "s n o"))
    return logits.softmax(-1).var(0).sum(-1)


def mutual_information(logits: Draws) -> Float[Tensor, "n"]:
    """H[E_s p] − E_s H[p] in nats, p = softmax(logits): of class and function, an OOD score.

    It counts what draws say of improbable classes, too, which variance hardly sees.
    """
    require_shapes(logits=(logits, "s n o"))
    each = logits.softmax(-1)
    mean = torch.special.entr(each.mean(0)).sum(-1)
    return (mean - torch.special.entr(each).sum(-1).mean(0)).clamp_min(0.0)


CLASS_OOD_SCORES = {
    "variance": probability_variance,
    "mutual information": mutual_information,
}


def ood_auc(scores_id: Float[Tensor, "n"], scores_ood: Float[Tensor, "m"]) -> float:
    """AUROC: the probability that an OOD row scores above an in-distribution one."""
    return float(roc_auc_score(*_labels_and_scores(scores_id, scores_ood)))


def ood_roc(
    scores_id: Float[Tensor, "n"], scores_ood: Float[Tensor, "m"]
) -> tuple[Float[Tensor, "k"], Float[Tensor, "k"]]:
    """False positive and true positive rates (OOD is positive) as the threshold falls."""
    false, true, _ = roc_curve(*_labels_and_scores(scores_id, scores_ood))
    return torch.from_numpy(false), torch.from_numpy(true)


def ood_aupr(scores_id: Float[Tensor, "n"], scores_ood: Float[Tensor, "m"]) -> float:
    """Average precision of calling the highest scores out of distribution."""
    return float(average_precision_score(*_labels_and_scores(scores_id, scores_ood)))


def ood_fpr95(scores_id: Float[Tensor, "n"], scores_ood: Float[Tensor, "m"]) -> float:
    """False positive rate at the threshold that 95 % of the OOD rows reach."""
    _labels_and_scores(scores_id, scores_ood)
    threshold = scores_ood.double().quantile(0.05, interpolation="lower")
    return float((scores_id.double() >= threshold).double().mean())


def ood_missed(
    scores_id: Float[Tensor, "n"], scores_ood: Float[Tensor, "m"], fpr: float = 0.05
) -> float:
    """The share of OOD rows that are missed where a share `fpr` of known rows is flagged.

    With 0.05 it is what OpenOOD and WOODS call FPR95: their positive rows are the known ones.
    """
    _labels_and_scores(scores_id, scores_ood)
    if not 0 < fpr < 1:
        raise ValueError(f"fpr must lie strictly between 0 and 1, got {fpr}; 0.05 is usual.")
    threshold = scores_id.double().quantile(1 - fpr, interpolation="higher")
    return float((scores_ood.double() <= threshold).double().mean())


def _labels_and_scores(scores_id: Tensor, scores_ood: Tensor) -> tuple[Any, Any]:
    """The arguments of scikit-learn's metrics: labels (1 is OOD), then scores."""
    require_shapes(scores_id=(scores_id, "n"), scores_ood=(scores_ood, "m"))
    for name, scores in (("scores_id", scores_id), ("scores_ood", scores_ood)):
        if not bool(scores.isfinite().all()):
            raise ValueError(f"{name} must be finite, got NaN or infinity among {len(scores)}.")
    labels = torch.cat([torch.zeros(len(scores_id)), torch.ones(len(scores_ood))])
    return labels.numpy(), torch.cat([scores_id, scores_ood]).double().cpu().numpy()


def gaussian_nll(draws: Draws, targets: Outputs, noise_std: float = 0.0) -> Float[Tensor, ""]:
    """−log N(y; mean, variance + noise_std²) of the draws' moments, averaged over the targets."""
    require_shapes(draws=(draws, "s n o"), targets=(targets, "n o"))
    if not noise_std >= 0:
        raise ValueError(f"noise_std must not be negative, got {noise_std}.")
    variance = (draws.var(0) + noise_std**2).clamp_min(torch.finfo(draws.dtype).tiny)
    squared = (targets - draws.mean(0)).square()
    return 0.5 * ((2 * torch.pi * variance).log() + squared / variance).mean()


def class_nll(probabilities: Float[Tensor, "n o"], classes: Int[Tensor, "n"]) -> Float[Tensor, ""]:
    """−log p(class), averaged over rows."""
    _require_probabilities(probabilities, classes)
    likelihood = probabilities.gather(1, classes[:, None])[:, 0]
    return -likelihood.clamp_min(torch.finfo(likelihood.dtype).tiny).log().mean()


def calibration_error(
    probabilities: Float[Tensor, "n o"], classes: Int[Tensor, "n"], bins: int = 15
) -> Float[Tensor, ""]:
    """ECE: Σ_b (n_b/n) |accuracy_b − confidence_b| over equal bins (Guo et al. 2017)."""
    confidence, accuracy, share = reliability(probabilities, classes, bins)
    return (share * (accuracy - confidence).abs()).sum()


def reliability(
    probabilities: Float[Tensor, "n o"], classes: Int[Tensor, "n"], bins: int = 15
) -> tuple[Float[Tensor, "b"], Float[Tensor, "b"], Float[Tensor, "b"]]:
    """Mean confidence, accuracy and share of rows in equal bins of confidence; none is empty."""
    _require_probabilities(probabilities, classes)
    require_count("bins", bins)
    confidence, predicted = probabilities.max(1)
    correct = (predicted == classes).to(confidence.dtype)
    index = (confidence * bins).long().clamp_max(bins - 1)
    rows = torch.stack([confidence, correct, torch.ones_like(correct)])
    sums = rows.new_zeros(3, bins).index_add_(1, index, rows)
    confidences, corrects, counts = sums[:, sums[2] > 0]
    return confidences / counts, corrects / counts, counts / len(classes)


def _require_probabilities(probabilities: Float[Tensor, "n o"], classes: Int[Tensor, "n"]) -> None:
    require_shapes(probabilities=(probabilities, "n o"), classes=(classes, "n"))
    require_classes(classes, probabilities.shape[1])


def interval_calibration_error(draws: Draws, targets: Outputs) -> Float[Tensor, ""]:
    """Mean of |coverage − level| over levels 5 % .. 95 %: 0 for calibrated intervals."""
    levels, coverage = coverage_curve(draws, targets)
    return (coverage - levels).abs().mean()


def coverage_curve(draws: Draws, targets: Outputs) -> tuple[Float[Tensor, "l"], Float[Tensor, "l"]]:
    """Levels from 5 % to 95 %, and `interval_coverage` at each, averaged over outputs."""
    require_shapes(draws=(draws, "s n o"), targets=(targets, "n o"))
    levels = torch.arange(1, 20, dtype=draws.dtype, device=draws.device) / 20
    shares = [interval_coverage(draws, targets, float(level)).mean() for level in levels]
    return levels, torch.stack(shares)


def risk_coverage(
    errors: Float[Tensor, "n"], scores: Float[Tensor, "n"]
) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"]]:
    """Coverage k/n, and the risk: the mean error of the k rows with the lowest scores.

    Rows with equal scores have no order: each counts with their mean error.
    """
    require_shapes(errors=(errors, "n"), scores=(scores, "n"))
    _, rank, counts = scores.unique(return_inverse=True, return_counts=True)
    sums = errors.new_zeros(len(counts)).index_add_(0, rank, errors)
    k = torch.arange(1, len(errors) + 1, device=errors.device)
    return k / len(errors), (sums / counts).repeat_interleave(counts).cumsum(0) / k
