"""b + A z on the page's grid is what the posterior's functions are at those codes."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from gpn.report import functions as made
from gpn.report.codes import base_and_slopes, leading_axes
from gpn.report.numbers import numbers_of
from gpn.report.rows import most_unknown, rows_of, typical
from gpn.tables.model import TableModel
from tests.report.conftest import ensemble, model_of

CODES = np.array([[0.0, 0.0], [1.0, -0.5], [-2.0, 2.5]])


def quiet(text: str) -> None:
    pass


def carried(model: TableModel, rows: pd.DataFrame) -> tuple[dict[str, Any], list[Any]]:
    scored = rows_of(model, "test", rows)
    picked = [*most_unknown(scored, 3), *typical(scored)]
    found = made.functions(model, picked, scored.x, quiet)
    assert found is not None
    return found, picked


def generated(model: TableModel, x: Any, axes: Any) -> Any:
    """The generator itself at the codes R w: (codes, rows, outputs), in its own units."""
    posterior = model.estimator.posterior_
    codes = torch.as_tensor(CODES @ axes.T).to(posterior.dtype)
    rows = torch.as_tensor(model.estimator.x_scale_.apply(x)).to(posterior.dtype)
    return posterior.generator(rows, codes).numpy()


@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_the_grid_is_the_posterior_at_those_codes(
    kind: str, test_rows: pd.DataFrame, request: pytest.FixtureRequest
) -> None:
    model: TableModel = request.getfixturevalue(f"{kind}_model")
    found, picked = carried(model, test_rows)
    plane = made.plane_of(model, rows_of(model, "test", test_rows).x)
    assert plane is not None
    for row, feature in ((0, 0), (4, 1)):
        x = np.repeat(picked[row].x[None], found["at"].shape[1], axis=0)
        x[:, feature] = found["at"][feature]
        exact = generated(model, x, plane[0])
        if kind == "numbers":
            exact = model.estimator.y_scale_.undo(exact)
        base, slopes = found["base"][row, feature], found["slopes"][row, feature]
        assert base + np.einsum("nok,ck->cno", slopes, CODES) == pytest.approx(exact, abs=1e-5)


def test_the_mean_lies_at_the_middle_of_the_plane(
    numbers_model: TableModel, test_rows: pd.DataFrame
) -> None:
    found, _ = carried(numbers_model, test_rows)
    assert found["base"][..., 0] == pytest.approx(found["mean"], abs=1e-6)
    along_plane = np.linalg.norm(found["slopes"][..., 0, :], axis=-1)
    assert (along_plane <= found["std"] * (1 + 1e-6)).all()


@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_no_other_two_axes_carry_more(
    kind: str, test_rows: pd.DataFrame, request: pytest.FixtureRequest
) -> None:
    model: TableModel = request.getfixturevalue(f"{kind}_model")
    posterior = model.estimator.posterior_
    x = model.estimator.x_scale_.apply(model.encoder.transform(test_rows))
    axes, shares = leading_axes(posterior, x)
    assert axes.T @ axes == pytest.approx(np.eye(2), abs=1e-6)
    assert 0 < shares[1] <= shares[0] <= 1
    _, every = base_and_slopes(posterior, x, np.eye(len(axes)))
    if kind == "classes":
        every = every - every.mean(1, keepdims=True)
    single = np.sort((every**2).sum((0, 1)) / (every**2).sum())[::-1]
    assert shares.sum() >= single[:2].sum() - 1e-9
    turned = every @ axes
    assert (turned**2).sum((0, 1)) / (every**2).sum() == pytest.approx(shares, rel=1e-5)


def test_an_ensemble_has_functions_and_no_plane(
    ensemble_model: TableModel, test_rows: pd.DataFrame
) -> None:
    found, picked = carried(ensemble_model, test_rows)
    assert found["plane"] is None
    assert "base" not in found
    assert found["draws"].shape == (len(picked), 2, 32, 12)


def test_class_probabilities_stay_in_their_bands(
    classes_model: TableModel, test_rows: pd.DataFrame
) -> None:
    found, _ = carried(classes_model, test_rows)
    assert found["mean"].sum(-1) == pytest.approx(1.0)
    assert (found["low"] <= found["high"]).all()
    assert found["draws"].sum(3) == pytest.approx(1.0)


def test_a_page_stays_small_however_wide_the_table(
    numbers_model: TableModel, test_rows: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    picked = most_unknown(rows_of(numbers_model, "test", test_rows), 12)
    monkeypatch.setattr(made, "MAX_NUMBERS", 600)
    grid = made.size_of(numbers_model, picked)
    count = grid.rows * grid.points * len(grid.features) * (4 + grid.draws)
    assert count <= 600
    assert len(grid.features) == 2
    monkeypatch.setattr(made, "MAX_NUMBERS", 300)
    assert len(made.size_of(numbers_model, picked).features) == 1


def test_a_table_of_words_alone_has_no_functions() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"colour": rng.choice(["a", "b"], 40), "y": rng.normal(size=40)})
    model = model_of(ensemble(), table, "y", table)
    assert numbers_of(model, table, None, quiet)["functions"] is None
