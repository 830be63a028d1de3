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
        results.save(place.file(task, "pictures/images"), _images(rows), indent=None)
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


def _images(rows: Rows) -> dict[str, list[Any]]:
    """The first image of each kind as it was before it was standardised."""
    black, white = _black_and_white(rows)
    return {
        kind: _pixels((x[:1] - black) / (white - black).clamp_min(1e-12))
        for kind, x in _kinds(rows).items()
    }


def _black_and_white(rows: Rows) -> tuple[Tensor, Tensor]:
    """What 0 and 255 have become in each channel: the least and the most of all test images."""
    each = _kinds(rows).values()
    low = torch.stack([x.amin((0, 2, 3), keepdim=True) for x in each]).amin(0)
    high = torch.stack([x.amax((0, 2, 3), keepdim=True) for x in each]).amax(0)
    return low, high


def _pixels(image: Tensor) -> list[Any]:
    """From 0 to 1, channels last."""
    return image[0].movedim(0, -1).double().round(decimals=3).tolist()
