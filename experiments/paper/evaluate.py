"""Every column of the tables and the data of the figures, from draws alone."""

from typing import Any

import torch
from torch import Tensor

from experiments.paper.tasks.split import Rows
from gpn import Posterior, metrics
from gpn.core.posterior.base import entropy
from gpn.core.priors.evidence import held_out_noise_std

N_DRAWS = 100
CHUNK_ROWS = 2000
MAX_ROC_POINTS = 200


def evaluate(
    posterior: Posterior,
    rows: Rows,
    unseen: dict[str, Tensor] | None = None,
    n_draws: int = N_DRAWS,
    noise_std: float | None = None,
) -> dict[str, float]:
    """The paper's metrics and ours, of `n_draws` functions.

    The likelihood of targets needs the label noise: `noise_std`, or the one of maximum likelihood
    on these rows.
    """
    if posterior.signature.is_classification:
        return _class_metrics(posterior, rows, unseen or {}, n_draws)
    return _target_metrics(posterior, rows, n_draws, noise_std)


def _target_metrics(
    posterior: Posterior, rows: Rows, n_draws: int, noise_std: float | None
) -> dict[str, float]:
    assert rows.y_ood is not None
    known, ood = (_sample(posterior, x, n_draws) for x in (rows.x_id, rows.x_ood))
    noise_std = likely_noise_std(known, rows.y_id) if noise_std is None else noise_std
    return {
        "id_loss": float((known.mean(0) - rows.y_id).square().mean()),
        "id_width": float(metrics.interval_width(known).mean()),
        "id_coverage": float(metrics.interval_coverage(known, rows.y_id).mean()),
        "ood_coverage": float(metrics.interval_coverage(ood, rows.y_ood).mean()),
        "ece": float(metrics.interval_calibration_error(known, rows.y_id)),
        "nll": float(metrics.gaussian_nll(known, rows.y_id, noise_std)),
        "noise_std": noise_std,
        **detection("", *(draws.var(0).sum(-1) for draws in (known, ood))),
    }


def likely_noise_std(draws: Tensor, y: Tensor) -> float:
    """argmax_σ Σ log N(y; mean f, Var f + σ²)."""
    return held_out_noise_std((draws.mean(0) - y).square(), draws.var(0))


def _sample(posterior: Posterior, x: Tensor, n_draws: int) -> Tensor:
    return posterior.sample(x, n_draws, rng=1).cpu()


def _class_metrics(
    posterior: Posterior, rows: Rows, unseen: dict[str, Tensor], n_draws: int
) -> dict[str, float]:
    known, ood = (_class_scores(posterior, x, n_draws) for x in (rows.x_id, rows.x_ood))
    probabilities, classes = known.pop("probabilities"), rows.y_id
    measured = {
        "accuracy": float((probabilities.argmax(1) == classes).double().mean()),
        "nll": float(metrics.class_nll(probabilities, classes)),
        "ece": float(metrics.calibration_error(probabilities, classes)),
        "id_entropy": float(known["entropy"].mean()),
        "ood_entropy": float(ood["entropy"].mean()),
    }
    sets = {"": ood} | {
        f"_unseen_{name}": _class_scores(posterior, x, n_draws) for name, x in unseen.items()
    }
    for suffix, scores in sets.items():
        for name, known_scores in known.items():
            score = "" if name == "variance" else f"_{name}"
            measured |= detection(score + suffix, known_scores, scores[name])
    return measured


def _class_scores(posterior: Posterior, x: Tensor, n_draws: int) -> dict[str, Tensor]:
    """OOD scores and mean probabilities, from the same `n_draws` functions at all rows.

    Probabilities have the posterior's temperature; scores are of softmax(g) without it.
    """
    functions = posterior.functions(n_draws, torch.Generator(posterior.device).manual_seed(1))
    chunks = []
    with torch.no_grad():
        for chunk in x.split(CHUNK_ROWS):
            logits = functions(chunk.to(posterior.device, posterior.dtype))
            each = logits.softmax(-1)
            mean = each.mean(0)
            scores = {
                "variance": metrics.probability_variance(logits),
                "entropy": entropy(mean),
                "mutual_information": entropy(mean) - entropy(each).mean(0),
                "logit_variance": logits.var(0).sum(-1),
                "probabilities": (logits / posterior.temperature).softmax(-1).mean(0),
            }
            chunks.append({name: values.cpu() for name, values in scores.items()})
    return {name: torch.cat([chunk[name] for chunk in chunks]) for name in chunks[0]}


def detection(suffix: str, scores_id: Tensor, scores_ood: Tensor) -> dict[str, float]:
    """How well a score detects OOD rows."""
    return {
        f"ood_auc{suffix}": metrics.ood_auc(scores_id, scores_ood),
        f"ood_aupr{suffix}": metrics.ood_aupr(scores_id, scores_ood),
        f"ood_fpr95{suffix}": metrics.ood_fpr95(scores_id, scores_ood),
        f"ood_missed{suffix}": metrics.ood_missed(scores_id, scores_ood),
    }


def plot_data(posterior: Posterior, rows: Rows, n_draws: int) -> dict[str, Any]:
    """What the figures need: the ROC curve, and draws at the first image of each kind."""
    kinds, classes = {"id": rows.x_id, "ood": rows.x_ood}, posterior.signature.is_classification
    if classes:
        scores = [_class_scores(posterior, x, n_draws)["variance"] for x in kinds.values()]
    else:
        scores = [_sample(posterior, x, n_draws).var(0).sum(-1) for x in kinds.values()]
    false, true = metrics.ood_roc(*scores)
    at = torch.linspace(0, len(false) - 1, MAX_ROC_POINTS).round().long().unique()
    curve = {"false": false[at], "true": true[at]}
    data: dict[str, Any] = {
        "roc": {name: values.round(decimals=5).tolist() for name, values in curve.items()}
    }
    if classes:
        draws = {kind: _sample(posterior, x[:1], n_draws) for kind, x in kinds.items()}
        data["draws"] = {
            kind: [[round(p, 4) for p in row] for row in logits[:, 0].softmax(-1).tolist()]
            for kind, logits in draws.items()
        }
    return data


def first_images(rows: Rows) -> dict[str, list[Any]]:
    """The first image of each kind with pixels from 0 to 1, channels last.

    The least and the most of all test images stand for what 0 and 255 became by standardisation.
    """
    kinds = {"id": rows.x_id, "ood": rows.x_ood}
    low = torch.stack([x.amin((0, 2, 3)) for x in kinds.values()]).amin(0)
    high = torch.stack([x.amax((0, 2, 3)) for x in kinds.values()]).amax(0)
    pixels = {
        kind: (x[0].movedim(0, -1) - low) / (high - low).clamp_min(1e-12)
        for kind, x in kinds.items()
    }
    return {kind: image.double().round(decimals=3).tolist() for kind, image in pixels.items()}
