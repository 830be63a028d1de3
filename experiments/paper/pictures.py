"""What the figures need of a run: its ROC curve, and the draws at one image of each kind.

`results/<task>/pictures/<method>.json`, and `images.json` beside it. The images are the first of
each test set, whatever the methods make of them.
"""

from typing import Any

import torch
from torch import Tensor

from experiments import results
from experiments.paper.evaluate import scores_of
from experiments.paper.place import Place
from experiments.paper.split import Rows
from gpn import Posterior
from gpn.metrics import ood_roc

POINTS = 200


def save_pictures(
    posterior: Posterior, rows: Rows, draws: int, task: str, method: str, place: Place
) -> None:
    report: dict[str, Any] = {"roc": _roc(posterior, rows, draws)}
    if posterior.signature.is_classification:
        report["draws"] = {
            kind: _probabilities(posterior, x[:1], draws) for kind, x in _kinds(rows).items()
        }
        shown = {kind: _pixels(x[0]) for kind, x in _kinds(rows).items()}
        results.save(place.file(task, "pictures/images"), shown, indent=None)
    results.save(place.file(task, f"pictures/{method}"), report, indent=None)


def _kinds(rows: Rows) -> dict[str, Tensor]:
    return {"id": rows.x_id, "ood": rows.x_ood}


def _roc(posterior: Posterior, rows: Rows, draws: int) -> dict[str, list[float]]:
    """The curve of `ood_auc`, at no more than some two hundred points."""
    scores = (scores_of(posterior, x, draws) for x in (rows.x_id, rows.x_ood))
    false, true = ood_roc(*scores)
    at = torch.linspace(0, len(false) - 1, POINTS).round().long().unique()
    curve = {"false": false[at], "true": true[at]}
    return {name: values.round(decimals=5).tolist() for name, values in curve.items()}


def _probabilities(posterior: Posterior, x: Tensor, draws: int) -> list[list[float]]:
    """Class probabilities of every draw at one image."""
    logits = posterior.sample(x, draws, rng=1).cpu()
    return [[round(p, 4) for p in row] for row in logits[:, 0].softmax(-1).tolist()]


def _pixels(image: Tensor) -> list[Any]:
    """The image from 0 to 1, channels last."""
    level = (image - image.min()) / (image.max() - image.min()).clamp_min(1e-12)
    return level.movedim(0, -1).double().round(decimals=3).tolist()
