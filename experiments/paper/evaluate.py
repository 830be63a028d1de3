"""Every column of the tables, from draws alone."""

import torch
from torch import Tensor

from experiments.paper.split import Rows
from gpn import Posterior, metrics
from gpn.core.posterior.base import entropy
from gpn.core.priors.evidence import held_out_noise_std

DRAWS = 100
CHUNK_ROWS = 2000


def evaluate(
    posterior: Posterior,
    rows: Rows,
    unseen: dict[str, Tensor] | None = None,
    draws: int = DRAWS,
    noise_std: float | None = None,
) -> dict[str, float]:
    """The paper's columns and ours; `draws` functions stand for the posterior.

    The likelihood of targets needs the noise of labels, for all methods by one rule: the likeliest
    σ_ε beside the draws' variances, on these rows unless it is given.
    """
    if posterior.signature.is_classification:
        return _classes(posterior, rows, unseen or {}, draws)
    return _targets(posterior, rows, draws, noise_std)


def scores_of(posterior: Posterior, x: Tensor, draws: int) -> Tensor:
    """The score behind `ood_auc`: the variance of targets, or of class probabilities."""
    if posterior.signature.is_classification:
        return _class_scores(posterior, x, draws)["variance"]
    return _drawn(posterior, x, draws).var(0).sum(-1)


def _targets(posterior: Posterior, rows: Rows, n: int, noise_std: float | None) -> dict[str, float]:
    assert rows.y_ood is not None
    inside, outside = (_drawn(posterior, x, n) for x in (rows.x_id, rows.x_ood))
    scores = [draws.var(0).sum(-1) for draws in (inside, outside)]
    noise_std = _likeliest(inside, rows.y_id) if noise_std is None else noise_std
    return {
        "id_loss": float((inside.mean(0) - rows.y_id).square().mean()),
        "id_width": float(metrics.interval_width(inside).mean()),
        "id_coverage": float(metrics.interval_coverage(inside, rows.y_id).mean()),
        "ood_coverage": float(metrics.interval_coverage(outside, rows.y_ood).mean()),
        "ece": float(metrics.interval_calibration_error(inside, rows.y_id)),
        "nll": float(metrics.gaussian_nll(inside, rows.y_id, noise_std)),
        "noise_std": noise_std,
        **detection("", *scores),
    }


def _likeliest(draws: Tensor, y: Tensor) -> float:
    """argmax_σ Σ log N(y; mean f, Var f + σ²)."""
    return held_out_noise_std((draws.mean(0) - y).square(), draws.var(0))


def _drawn(posterior: Posterior, x: Tensor, n: int) -> Tensor:
    return posterior.sample(x, n, rng=1).cpu()


def _classes(
    posterior: Posterior, rows: Rows, unseen: dict[str, Tensor], n: int
) -> dict[str, float]:
    inside, outside = (_class_scores(posterior, x, n) for x in (rows.x_id, rows.x_ood))
    probabilities, classes = inside.pop("probabilities"), rows.y_id
    measured = {
        "accuracy": float((probabilities.argmax(1) == classes).double().mean()),
        "nll": float(metrics.class_nll(probabilities, classes)),
        "ece": float(metrics.calibration_error(probabilities, classes)),
        "id_entropy": float(inside["entropy"].mean()),
        "ood_entropy": float(outside["entropy"].mean()),
    }
    others = {"": outside} | {
        f"_unseen_{name}": _class_scores(posterior, x, n) for name, x in unseen.items()
    }
    for where, scores in others.items():
        for name, own in inside.items():
            by = "" if name == "variance" else f"_{name}"
            measured |= detection(by + where, own, scores[name])
    return measured


def _class_scores(posterior: Posterior, x: Tensor, n: int) -> dict[str, Tensor]:
    """Scores that grow with doubt, from the same `n` functions at all rows."""
    batch = posterior.functions(n, torch.Generator(posterior.device).manual_seed(1))
    parts = []
    with torch.no_grad():
        for part in x.split(CHUNK_ROWS):
            logits = batch(part.to(posterior.device, posterior.dtype))
            parts.append({name: v.cpu() for name, v in _scores_of(logits).items()})
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _scores_of(logits: Tensor) -> dict[str, Tensor]:
    each = logits.softmax(-1)
    mean = each.mean(0)
    doubt = entropy(mean)
    return {
        "variance": metrics.probability_variance(logits),
        "entropy": doubt,
        "mutual_information": doubt - entropy(each).mean(0),
        "logit_variance": logits.var(0).sum(-1),
        "probabilities": mean,
    }


def detection(suffix: str, scores_id: Tensor, scores_ood: Tensor) -> dict[str, float]:
    """How well a score tells the strangers."""
    return {
        f"ood_auc{suffix}": metrics.ood_auc(scores_id, scores_ood),
        f"ood_aupr{suffix}": metrics.ood_aupr(scores_id, scores_ood),
        f"ood_fpr95{suffix}": metrics.ood_fpr95(scores_id, scores_ood),
    }
