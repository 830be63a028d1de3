"""The table of regimes: each is reached by some task, measured, and leaves nothing open."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

import gpn
from gpn.methods.gpn.config import ResolvedConfig
from gpn.methods.gpn.defaults import REGIMES, Regime, regime_of, resolve
from tests.methods.gpn.small import classes, images, targets

ROOT = Path(__file__).parents[3]
EQUAL = {"anchor": "independent", "pool_weights": "equal"}
# Tasks and settings that reach the rows of the table.
REACHED: tuple[tuple[gpn.Task, dict[str, Any]], ...] = (
    (targets(6, 1), {}),
    (targets(6, 2), {}),
    (classes(12, 2), {}),
    (targets(100, 1), {}),
    (targets(100, 3), {}),
    (images(4, targets=True), {"anchor": "conditioned"}),
    (targets(40, 20), {}),
    (images(4), {}),
    (images(4), {"trunk": gpn.ResNetTrunk()}),
    (targets(1001, 11), {}),
    (targets(40, 20), EQUAL),
    (classes(400, 20), {}),
    (targets(40, 3), {"anchor": "independent"}),
    (classes(400, 3), {}),
    (targets(12, 2), {"generator": "affine", "prior": gpn.ARDPrior(column_scales=(1.0, 2.0))}),
    (targets(12, 2), {"codes": "learnt", "generator": "concat", "anchor": "independent"}),
)


def regime(task: gpn.Task, settings: dict[str, Any]) -> Regime:
    config = gpn.GPNConfig(**settings)
    resolved = resolve(config, task)
    return regime_of(config, task, resolved.anchor, resolved.pool_weights)


def test_every_regime_is_reached() -> None:
    reached = [regime(*case) for case in REACHED]
    assert [row.measured for row in REGIMES if row not in reached] == []


@pytest.mark.parametrize("row", REGIMES, ids=lambda row: row.measured)
def test_every_regime_names_its_measurement(row: Regime) -> None:
    """A folder or a file of results or of tests, or another regime ("as ...")."""
    measured = re.match(r"as \w|(?P<file>[\w/-]+)", row.measured)
    assert measured is not None
    if (file := measured["file"]) is not None:
        folder = ROOT if file.startswith("tests/") else ROOT / "experiments" / "results"
        assert list(folder.glob(f"{file}*")), row.measured


@pytest.mark.parametrize(("task", "settings"), REACHED)
def test_a_resolved_configuration_leaves_nothing_open(
    task: gpn.Task, settings: dict[str, Any]
) -> None:
    """No None and no "auto"; β and the noise are 0 until they are known (of photos, β is)."""
    config = gpn.GPNConfig(**settings)
    resolved = resolve(config, task)
    values = {field.name: getattr(resolved, field.name) for field in dataclasses.fields(resolved)}
    assert [name for name, value in values.items() if value in (None, "auto")] == []
    photos = isinstance(resolved.trunk, gpn.ResNetTrunk)
    assert (resolved.beta > 0) == photos, "their anchor term has a measured weight"
    assert (resolved.noise_std, resolved.jitter) == (0.0, 0.0)
    row = regime(task, settings)
    assert resolved.prior == settings.get("prior", row.prior)
    assert resolved.train == resolved.train.replace(**row.train)
    assert row.trunk in (None, resolved.trunk)
    public = resolved.public()
    assert type(public) is gpn.GPNConfig
    assert (public.beta, public.noise_std, public.jitter) == (resolved.beta or None, None, None)
    assert resolve(public, task) == resolved, "what was chosen is chosen again"


def test_settings_are_never_overruled() -> None:
    settings: dict[str, Any] = {
        "anchor": "independent",
        "generator": "affine",
        "pool_weights": "equal",
        "target_noise": True,
        "noise_std": 0.3,
        "beta": 0.7,
        "beta_ramp": 0.1,
        "label_smoothing": 0.1,
        "calibration_share": 0.0,
        "jitter": 1e-4,
        "synthetic_ood": 0.25,
        "n_axes": 17,
        "prior": gpn.MLPPrior(activation="relu"),
        "trunk": gpn.MLPTrunk(widths=(3,)),
        "train": gpn.TrainConfig(steps=5),
    }
    for task in (targets(6, 1), targets(2000, 20), classes(12, 2)):
        resolved = resolve(gpn.GPNConfig(**settings), task)
        assert isinstance(resolved, ResolvedConfig)
        assert {name: getattr(resolved, name) for name in settings} == settings
        assert resolved.public() == gpn.GPNConfig(**settings)
