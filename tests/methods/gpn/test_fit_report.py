"""What a fit reports: typed, ready for a model file, and without the rows of the pool."""

import json
import pickle
from typing import Any

import pytest
import torch

import gpn
from gpn.methods.gpn.fit_report import FitReport, Trial
from gpn.methods.gpn.pool.mixture import PoolComposition
from gpn.training.state import History
from tests.methods.gpn.small import fit, rows

N_POOL, DIM = 20_000, 4
VARIANTS: dict[str, dict[str, Any]] = {
    "independent": {"anchor": "independent", "beta": 0.1, "n_axes": 8},
    "joint": {"anchor": "joint", "noise_std": 0.1},
    "conditioned": {"anchor": "conditioned", "noise_std": 0.1, "n_axes": 8},
    "learnt": {
        "codes": "learnt",
        "anchor": "independent",
        "beta": 0.1,
        "n_anchors": 20,
        "code_dim": 3,
        "train": gpn.TrainConfig(steps=80, pool_batch=256, label_batch=16),
    },
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.filterwarnings("ignore::gpn.GPNWarning")
def test_a_fit_does_not_keep_the_pool_in_memory(variant: str) -> None:
    """Neither its rows, nor a number for each of them: less than a byte per row."""
    x = rows(30, DIM)
    task = gpn.Task(x, x[:, :1].sin(), pool=torch.cat([x, 3 * rows(N_POOL, DIM, seed=1)]))
    posterior = fit(task, **VARIANTS[variant])
    assert len(pickle.dumps(posterior.fit_report)) < N_POOL
    smaller = gpn.Task(x, task.y_obs, pool=task.pool.rows[:100])
    sizes = [len(pickle.dumps(each)) for each in (posterior, fit(smaller, **VARIANTS[variant]))]
    assert abs(sizes[0] - sizes[1]) < N_POOL, "the posterior does not grow with the pool"


def test_a_model_file_records_numbers_that_are_known() -> None:
    assert FitReport().to_dict() == {}
    history = History(steps=7, seconds=1.234)
    report = FitReport(
        history=history,
        beta_search=(Trial(0.1, 0.5, 0.01, 0.95, None),),
        explained_variance=0.9,
        pool=PoolComposition(0.5, 0.2, 30, 90, 10),
    )
    recorded = json.loads(json.dumps(report.to_dict()))
    assert recorded["beta_search"] == [
        {"beta": 0.1, "score": 0.5, "error": 0.01, "coverage": 0.95, "noise_std": None}
    ]
    expected = {"explained_variance": 0.9, "labeled_share": 0.5, "n_duplicates": 10}
    expected |= {"steps": 7, "training_seconds": 1.23}
    assert {name: recorded[name] for name in expected} == expected
    assert "jitter" not in recorded
