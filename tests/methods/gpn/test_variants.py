"""Which variant a GPN chooses, which settings it refuses, and what it reports of its choice."""

from typing import Any

import pytest
import torch

import gpn
from gpn.methods.gpn import ConcatPosterior
from gpn.methods.gpn.defaults import resolve
from gpn.methods.gpn.fitting import build
from gpn.methods.gpn.fitting.basis import pool_weights, prior_basis
from gpn.methods.gpn.pool.mixture import MIN_WEIGHT
from gpn.training.state import History
from tests.methods.gpn.small import (
    TINY,
    WITHOUT_KERNEL,
    classes,
    context,
    fit,
    images,
    rows,
    targets,
)

CHOSEN: dict[str, tuple[gpn.Task, dict[str, Any], tuple[str, str, bool]]] = {
    "few labels": (targets(6, 2), {}, ("joint", "equal", True)),
    "many labels": (targets(301, 1), {}, ("conditioned", "equal", True)),
    "many features": (targets(12, 20), {"beta": 0.1}, ("independent", "mixture", False)),
    "few classified": (classes(12, 2), {}, ("joint", "equal", True)),
    "many classified": (classes(301, 1), {"beta": 0.1}, ("independent", "mixture", False)),
    "no kernel": (
        targets(6, 2),
        {"beta": 0.1, "prior": WITHOUT_KERNEL},
        ("independent", "mixture", False),
    ),
}


@pytest.mark.parametrize(("task", "settings", "expected"), CHOSEN.values(), ids=CHOSEN.keys())
def test_the_posterior_has_the_chosen_variant(
    task: gpn.Task, settings: dict[str, Any], expected: tuple[str, str, bool]
) -> None:
    config = gpn.GPNConfig(**{**TINY, **settings})
    posterior = gpn.GPN(config).fit(task, rng=0)
    chosen = posterior.config
    assert (chosen.anchor, chosen.pool_weights, chosen.target_noise) == expected
    assert config.anchor == "auto", "the user's configuration does not change"
    assert posterior.sample(task.x_obs, 3, rng=0).isfinite().all()
    assert isinstance(posterior.fit_report.history, History)


@pytest.mark.parametrize(
    ("task", "settings", "anchor"),
    [
        (targets(64, 2), {}, "joint"),
        (targets(65, 2), {}, "conditioned"),
        (targets(64, 3), {}, "conditioned"),
        (targets(64, 10), {"generator": "concat"}, "joint"),
        (targets(1000, 11), {}, "conditioned"),
        (targets(1001, 11), {}, "independent"),
        (targets(64, 11), {"beta": 0.1}, "independent"),
        (targets(64, 11), {"pool_weights": "mixture"}, "independent"),
        (targets(64, 11), {"generator": "concat"}, "independent"),
        (classes(300, 10), {}, "joint"),
        (classes(64, 11), {}, "joint"),
        (classes(64, 11), {"beta": 0.1}, "independent"),
        (classes(64, 11, n_classes=5), {}, "independent"),
        (targets(301, 10), {}, "conditioned"),
        (targets(301, 10), {"generator": "concat"}, "independent"),
        (targets(301, 10), {"codes": "learnt"}, "independent"),
        (classes(301, 10), {}, "independent"),
        (targets(301, 10), {"anchor": "joint"}, "joint"),
    ],
)
def test_where_the_choice_changes(task: gpn.Task, settings: dict[str, Any], anchor: str) -> None:
    """At 64 labels and 2 dimensions, or 10 for classes; at 1,000 labels of a wide table.

    Settings are never overruled, and what was chosen is chosen again.
    """
    resolved = resolve(gpn.GPNConfig(**settings), task)
    assert resolved.anchor == anchor
    assert resolve(resolved.public(), task) == resolved


def test_images_get_convolutions() -> None:
    resolved = resolve(gpn.GPNConfig(), images(4))
    assert resolved.anchor == "independent"
    assert isinstance(resolved.trunk, gpn.ConvTrunk)
    for anchor in ("joint", "conditioned"):
        resolved = resolve(gpn.GPNConfig(anchor=anchor), images(4, targets=True))
        assert isinstance(resolved.trunk, gpn.ConvTrunk)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "joint and one": (
        {"anchor": "joint", "pairing": "one"},
        r"joint anchors .*need pairing='every', got 'one'; .*use anchor='independent'",
    ),
    "conditioned and concat": (
        {"anchor": "conditioned", "generator": "concat"},
        r"conditioned anchors need .*generator='affine', got .*generator='concat'",
    ),
    "conditioned and learnt": (
        {"anchor": "conditioned", "codes": "learnt"},
        r"conditioned anchors need codes='spectral' .*got codes='learnt'",
    ),
    "anchor": ({"anchor": "joined"}, r"anchor must be one of .*got 'joined'; .*mean 'joint'\?"),
    "codes": ({"codes": "spectrum"}, r"codes must be one of .*did you mean 'spectral'\?"),
    "generator": (
        {"generator": "linear"},
        r"generator must be one of auto, closed-form",
    ),
    "pool_weights": ({"pool_weights": "none"}, r"pool_weights must be one of auto, mixture, equal"),
    "n_axes": ({"n_axes": 0}, r"n_axes must be a whole number of at least 1, got 0"),
    "noise_std": ({"noise_std": 0.0}, r"noise_std must be positive, or None .*got 0\.0"),
    "jitter": ({"jitter": -1e-6}, r"jitter must be positive, or None .*got -1e-06"),
}


@pytest.mark.parametrize(("settings", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_contradictory_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gpn.GPNConfig(**settings)


def test_too_many_labels_for_joint_anchors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "MAX_JOINT_LABELS", 5)
    assert fit(targets(5, 1), anchor="joint", noise_std=0.1).config.anchor == "joint"
    message = r"at most 5 labels, got 6; use anchor='conditioned' .*or anchor='independent'"
    with pytest.raises(ValueError, match=message):
        fit(targets(6, 1), anchor="joint", noise_std=0.1)


def test_conditioned_anchors_need_targets() -> None:
    with pytest.raises((TypeError, ValueError), match="conditioned anchors"):
        fit(classes(12, 1), anchor="conditioned")


def test_the_choice_depends_on_pairing() -> None:
    assert resolve(gpn.GPNConfig(pairing="one"), targets(6, 1)).anchor == "independent"


def test_too_few_axes_warn_and_report_the_explained_variance() -> None:
    pool = torch.linspace(-2, 2, 40)[:, None]
    task = gpn.Task(pool[::8], pool[::8], pool=pool)
    with pytest.warns(UserWarning, match=r"the code axes .*they hold \d\d%; raise n_axes"):
        narrow = fit(task, noise_std=0.1, n_axes=1)
    assert 0.3 < narrow.fit_report.explained_variance < 0.5
    assert narrow.generator.code_dim == 1 + 5, "one function axis and one noise axis per label"
    wide = fit(task, noise_std=0.1)
    assert wide.fit_report.explained_variance > 0.9999


@pytest.mark.parametrize("pairing", ["every", "one"])
def test_tabulated_anchors_equal_computed_ones(
    pairing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The paper's prior networks at a stored pool: a table, unless it would be too large."""
    task = targets(12, 2)
    train = gpn.TrainConfig(steps=60, pool_batch=20, device="cpu")
    config = gpn.GPNConfig.paper(
        n_anchors=15, code_dim=3, pairing=pairing, trunk=gpn.MLPTrunk(widths=(8,)), train=train
    )
    x, calls = task.x_obs, []
    networks = gpn.core.priors.prior.Prior.__call__

    def counted(self: Any, rows: torch.Tensor) -> torch.Tensor:
        calls.append(len(rows))
        return networks(self, rows)

    monkeypatch.setattr(gpn.core.priors.prior.Prior, "__call__", counted)
    tabulated = gpn.GPN(config).fit(task, rng=0).sample(x, 5, rng=1)
    assert len(calls) == 1, "the prior networks are evaluated once"
    monkeypatch.setattr(build, "MAX_TABLE_NUMBERS", 10)
    computed = gpn.GPN(config).fit(task, rng=0).sample(x, 5, rng=1)
    assert len(calls) == 1 + 60
    torch.testing.assert_close(tabulated, computed, rtol=1e-3, atol=1e-3)


def test_one_label_is_enough_for_independent_anchors() -> None:
    posterior = fit(targets(1, 2), anchor="independent", pool_weights="equal")
    assert posterior.sample(rows(3, 2), 3, rng=0).isfinite().all()


def test_pool_rows_like_the_labels_are_anchored_less() -> None:
    """Half of the pool is distributed as the labels, half is far away: small weights, and large."""
    near, far = rows(200, 2, seed=1), rows(200, 2, seed=2) + 6.0
    x = rows(200, 2)
    task = gpn.Task(x, x[:, :1], pool=torch.cat([near, far]))
    trunk = gpn.MLPTrunk(widths=(32, 32))
    train = gpn.TrainConfig(steps=4, pool_batch=8, label_batch=64, learning_rate=0.01)
    settings: dict[str, Any] = {"beta": 0.1, "trunk": trunk, "train": train, "synthetic_ood": 0.0}
    one = context(task, anchor="independent", **settings)
    stored = prior_basis(one).pool.rows
    found = pool_weights(one, prior_basis(one).pool)
    assert found is not None
    weights = found.weights
    assert weights.shape == (400,)
    assert set(map(tuple, stored.tolist())) == set(map(tuple, task.pool.rows.tolist()))
    is_far = stored[:, 0] > 3.0
    assert weights[is_far].mean() > 0.9
    assert weights[~is_far].median() < 0.1
    assert weights[~is_far].mean() < 0.3
    assert weights.min() >= MIN_WEIGHT
    assert weights.max() <= 1.0
    report = fit(task, anchor="independent", **settings).fit_report
    assert report.pool is not None
    assert report.pool == found.composition, "the fit has the same weights"
    assert report.pool.labeled_share == pytest.approx(0.5, abs=0.15)


def test_equal_weights_train_no_classifier() -> None:
    posterior = fit(targets(6, 2), anchor="independent", beta=0.1, pool_weights="equal")
    assert posterior.fit_report.pool is None


@pytest.mark.parametrize(
    "settings", [{"anchor": "independent", "codes": "learnt"}, {"anchor": "joint"}]
)
def test_mixture_weights_that_would_be_ignored_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="mixture weights belong to independent anchors"):
        gpn.GPNConfig(pool_weights="mixture", **settings)


def test_target_noise_of_stored_anchors_widens_the_spread_at_the_labels(
    quick: gpn.GPNConfig, line: gpn.Task
) -> None:
    """Each anchor fits y + η_j, so that the functions at a label spread by about σ_ε."""
    train = quick.train.replace(steps=150, learning_rate=0.03)
    config = quick.replace(beta=1e-4, train=train, noise_std=0.5)
    without = gpn.GPN(config).fit(line, rng=0)
    noisy = gpn.GPN(config.replace(target_noise=True)).fit(line, rng=0)
    assert without.std(line.x_obs).mean() < 0.1
    assert 0.25 < float(noisy.std(line.x_obs).mean()) < 1.0


@pytest.mark.parametrize("anchor", ["joint", "independent"])
@pytest.mark.parametrize("task", [targets(12, 2), classes(12, 2)], ids=["targets", "classes"])
def test_spectral_codes_with_the_concat_generator_train(anchor: str, task: gpn.Task) -> None:
    train = gpn.TrainConfig(steps=30, pool_batch=8, learning_rate=0.01)
    settings = {"anchor": anchor, "generator": "concat", "beta": 0.1, "train": train}
    posterior = fit(task, **settings, trunk=gpn.MLPTrunk(widths=(32,)), n_anchors=20)
    assert isinstance(posterior, ConcatPosterior)
    losses = [check["data"] + check["anchor"] for check in posterior.fit_report.history.checks]
    assert sum(losses[-5:]) < sum(losses[:5])
