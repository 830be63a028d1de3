"""A temperature of labels by held-out ones: it is found, and functions stay as they are."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gpn
from gpn import metrics
from gpn.core.types import as_generator
from gpn.methods.gpn.defaults import resolve
from gpn.methods.gpn.fitting.context import FitContext
from gpn.methods.gpn.fitting.temperature import hold_out, likeliest_temperature

SETTINGS: dict[str, Any] = {
    "anchor": "independent",
    "beta": 0.01,
    "synthetic_ood": 0.0,
    "trunk": gpn.MLPTrunk(widths=(32, 32)),
    "train": gpn.TrainConfig(steps=200, label_batch=64, pool_batch=32, learning_rate=3e-3),
}


def blobs(n: int, seed: int) -> gpn.Task:
    """Three classes that overlap: no network can be certain of them."""
    rng = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    angle = 2 * torch.pi * y / 3
    centres = torch.stack([angle.cos(), angle.sin()], 1)
    x = centres + 0.5 * torch.randn(n, 2, generator=rng)
    return gpn.Task(x, y, pool=gpn.box([-4.0, -4.0], [4.0, 4.0]), n_classes=3)


def context_of(**changes: Any) -> FitContext:
    config = gpn.GPNConfig(**{**SETTINGS, **changes})
    task = blobs(600, 0)
    return FitContext(resolve(config, task), task, as_generator(0))


@pytest.mark.parametrize("truth", [0.5, 1.0, 2.0])
def test_the_temperature_of_drawn_labels_is_found(truth: float) -> None:
    """Labels from softmax(b / T): the likeliest temperature is T, up to the noise of 20,000."""
    rng = torch.Generator().manual_seed(0)
    mean = 2 * torch.randn(20_000, 5, generator=rng)
    y = torch.multinomial((mean / truth).softmax(-1), 1, generator=rng)[:, 0]
    assert likeliest_temperature(mean.expand(3, -1, -1), y) == pytest.approx(truth, rel=0.05)


def test_draws_of_the_spread_take_part() -> None:
    """Labels from E_z softmax((b + a z) / T), where the spread alone makes labels uncertain."""
    rng = torch.Generator().manual_seed(0)
    draws = 3 * torch.randn(10_000, 4, generator=rng) + 2 * torch.randn(100, 1, 4, generator=rng)
    y = torch.multinomial((draws / 0.7).softmax(-1).mean(0), 1, generator=rng)[:, 0]
    assert likeliest_temperature(draws, y) == pytest.approx(0.7, rel=0.05)


def test_held_out_labels_are_not_trained_on() -> None:
    whole = context_of(calibration_share=0.1)
    rest, held_out = hold_out(whole)
    assert held_out is not None
    assert (len(rest.task.x_obs), len(held_out.x_obs)) == (540, 60)
    both = torch.cat([rest.task.x_obs, held_out.x_obs])
    assert torch.equal(both.sort(0).values, whole.task.x_obs.sort(0).values)
    assert torch.equal(
        rest.task.y_obs.bincount() + held_out.y_obs.bincount(), torch.tensor([200] * 3)
    )


def test_without_a_share_nothing_changes() -> None:
    whole = context_of()
    before = whole.seeds.get_state()
    rest, held_out = hold_out(whole)
    assert rest is whole
    assert held_out is None
    assert torch.equal(whole.seeds.get_state(), before), "other fits draw what they drew"


def test_functions_stay_and_probabilities_change(tmp_path: Path) -> None:
    """In a file, too: p = E_z softmax(g(x, z) / T) for the same draws of g."""
    config = gpn.GPNConfig(**SETTINGS, label_smoothing=0.3, calibration_share=0.2)
    posterior = gpn.GPN(config).fit(blobs(600, 0), rng=0, progress=False)
    assert posterior.temperature == posterior.fit_report.temperature
    assert posterior.temperature < 0.8, "smoothed labels make a network too cautious"
    x = blobs(50, 1).x_obs
    p = (posterior.sample(x, 1000, rng=0) / posterior.temperature).softmax(-1).mean(0)
    torch.testing.assert_close(posterior.probabilities(x, 1000, rng=0), p)
    gpn.save(posterior, tmp_path / "model.gpn")
    loaded = gpn.load(tmp_path / "model.gpn")
    assert loaded.temperature == posterior.temperature
    assert torch.equal(loaded.probabilities(x), posterior.probabilities(x))
    assert torch.equal(loaded.sample(x, 5, rng=0), posterior.sample(x, 5, rng=0))


def test_an_estimator_and_its_draws_agree() -> None:
    """The mean of `sample_proba` is `predict_proba`; scores do not know the temperature."""
    config = gpn.GPNConfig(**SETTINGS, label_smoothing=0.3, calibration_share=0.2)
    task = blobs(600, 0)
    box = 8 * torch.rand(200, 2, generator=as_generator(0)) - 4
    model = gpn.GPNClassifier(config, random_state=0)
    model.fit(task.x_obs.numpy(), task.y_obs.numpy(), X_unlabeled=box.numpy())
    x = blobs(40, 1).x_obs.numpy()
    mean = model.sample_proba(x, 4000).mean(-1)
    np.testing.assert_allclose(mean, model.predict_proba(x), atol=0.05)
    scores = model.ood_score(x)
    assert model.posterior_.temperature != 1
    model.posterior_.temperature = 1.0
    assert np.abs(model.predict_proba(x) - mean).max() > 0.1
    np.testing.assert_array_equal(model.ood_score(x), scores)


def test_new_rows_are_predicted_better() -> None:
    """With smoothed labels: of rows that neither training nor the temperature has seen."""
    new, nll = blobs(2000, 1), {}
    for share in (0.0, 0.2):
        config = gpn.GPNConfig(**SETTINGS, label_smoothing=0.3, calibration_share=share)
        posterior = gpn.GPN(config).fit(blobs(600, 0), rng=0, progress=False)
        nll[share] = float(metrics.class_nll(posterior.probabilities(new.x_obs), new.y_obs))
        assert (posterior.fit_report.temperature is None) == (share == 0.0)
        assert ("temperature" in posterior.fit_report.to_dict()) == (share > 0.0)
    assert nll[0.2] < nll[0.0] - 0.02


def test_a_share_is_for_classes() -> None:
    x = torch.randn(50, 2, generator=as_generator(0))
    task = gpn.Task(x, x[:, :1], pool=gpn.box([-2.0, -2.0], [2.0, 2.0]))
    with pytest.raises(ValueError, match="classes and generator='affine', got targets"):
        resolve(gpn.GPNConfig(calibration_share=0.1), task)
    with pytest.raises(ValueError, match="got classes and generator='closed-form'"):
        resolve(gpn.GPNConfig(generator="closed-form", calibration_share=0.1), blobs(60, 0))


@pytest.mark.parametrize(("n", "share"), [(9_000, 0.0), (20_000, 0.01), (100_000, 0.005)])
def test_many_photographs_have_a_share(n: int, share: float) -> None:
    """One in a hundred, at most 500; none where that is too few."""
    images = torch.zeros(1, 3, 2, 2).expand(n, -1, -1, -1)
    task = gpn.Task(images[:10], torch.arange(10) % 2, pool=images[:2])
    task.x_obs, task.y_obs = images, torch.zeros(n, dtype=torch.long)
    assert resolve(gpn.GPNConfig(trunk=gpn.ResNetTrunk()), task).calibration_share == share


def test_files_without_the_setting_have_no_share() -> None:
    assert gpn.GPNConfig.added["calibration_share"] == 0.0
    assert "calibration_share" in {field.name for field in dataclasses.fields(gpn.GPNConfig)}
