"""Features of a network in a file, and posteriors in closed form on them."""

from pathlib import Path

import numpy as np
import pytest
import torch

from experiments import frozen_features as frozen
from experiments import harness
from experiments import modern_images as modern
from tests.experiments.test_modern_images import SMALL, small_split


def test_principal_components_keep_distances() -> None:
    """Of features in a space of few dimensions, where nothing is left out."""
    rng = torch.Generator().manual_seed(0)
    basis = torch.randn(5, 80, generator=rng)
    features = {name: torch.randn(30, 5, generator=rng) @ basis for name in ("train", "id")}
    reduced = frozen.principal(features, "train")
    assert reduced["id"].shape == (30, frozen.COMPONENTS)
    found = torch.cdist(*(torch.from_numpy(reduced[name]).double() for name in ("train", "id")))
    wanted = torch.cdist(features["train"].double(), features["id"].double())
    assert (found - wanted).abs().max() < 0.02


def test_as_many_labels_of_each_class() -> None:
    y = np.array([0] * 50 + [1] * 20 + [2] * 30)
    assert np.bincount(y[frozen.some_of_each(y, 10)]).tolist() == [10, 10, 10]
    assert sorted(frozen.some_of_each(y, None)) == list(range(100))


def test_from_images_to_results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    monkeypatch.setattr(modern, "cifar10", small_split)
    monkeypatch.setattr(modern, "CONFIG", SMALL)
    monkeypatch.setattr(frozen, "PER_CLASS", {"few": 10})
    file = str(tmp_path / "features.npz")
    frozen.main(["extract", "--file", file])
    frozen.main(["fit", "--file", file])
    found = harness.load(tmp_path / frozen.TASK / "few.json")
    assert found is not None
    assert found["metrics"]["labels"]["mean"] == 40
    assert {"accuracy", "ood_auc_unseen_textures", "network_nll"} < found["metrics"].keys()
