"""b + A z on the page's grid equals the posterior's functions at those codes."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from gpn.report import functions as page_functions
from gpn.report.data import report_data
from gpn.report.functions import base_and_loadings, leading_axes
from gpn.report.rows import ood_rows, score_table, typical_rows
from gpn.tables.model import TableModel
from tests.report.conftest import ensemble, model_of

CODES = np.array([[0.0, 0.0], [1.0, -0.5], [-2.0, 2.5]])


def quiet(text: str) -> None:
    pass


def function_data(model: TableModel, rows: pd.DataFrame) -> tuple[dict[str, Any], list[Any]]:
    scored = score_table(model, "test", rows)
    selected = [*ood_rows(scored, 3), *typical_rows(scored)]
    found = page_functions.functions(model, selected, scored.x, quiet)
    assert found is not None
    return found, selected


def generated(model: TableModel, x: Any, axes: Any) -> Any:
    """The generator at the codes R w: (codes, rows, outputs), in scaled units."""
    posterior = model.estimator.posterior_
    codes = torch.as_tensor(CODES @ axes.T).to(posterior.dtype)
    rows = torch.as_tensor(model.estimator.x_scale_.apply(x)).to(posterior.dtype)
    return posterior.generator(rows, codes).numpy()


@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_the_grid_is_the_posterior_at_those_codes(
    kind: str, test_rows: pd.DataFrame, request: pytest.FixtureRequest
) -> None:
    model: TableModel = request.getfixturevalue(f"{kind}_model")
    found, selected = function_data(model, test_rows)
    plane = page_functions.code_plane(model, score_table(model, "test", test_rows).x)
    assert plane is not None
    for row, feature in ((0, 0), (4, 1)):
        x = np.repeat(selected[row].x[None], found["at"].shape[1], axis=0)
        x[:, feature] = found["at"][feature]
        exact = generated(model, x, plane[0])
        if kind == "regression":
            exact = model.estimator.y_scale_.undo(exact)
        base, loadings = found["base"][row, feature], found["loadings"][row, feature]
        assert base + np.einsum("nok,ck->cno", loadings, CODES) == pytest.approx(exact, abs=1e-5)


def test_the_mean_is_at_the_centre_of_the_plane(
    regression_model: TableModel, test_rows: pd.DataFrame
) -> None:
    found, _ = function_data(regression_model, test_rows)
    assert found["base"][..., 0] == pytest.approx(found["mean"], abs=1e-6)
    along_plane = np.linalg.norm(found["loadings"][..., 0, :], axis=-1)
    assert (along_plane <= found["std"] * (1 + 1e-6)).all()


@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_no_other_two_axes_explain_more(
    kind: str, test_rows: pd.DataFrame, request: pytest.FixtureRequest
) -> None:
    model: TableModel = request.getfixturevalue(f"{kind}_model")
    posterior = model.estimator.posterior_
    x = model.estimator.x_scale_.apply(model.encoder.transform(test_rows))
    axes, shares = leading_axes(posterior, x)
    assert axes.T @ axes == pytest.approx(np.eye(2), abs=1e-6)
    assert 0 < shares[1] <= shares[0] <= 1
    _, every = base_and_loadings(posterior, x, np.eye(len(axes)))
    if kind == "classification":
        every = every - every.mean(1, keepdims=True)
    single = np.sort((every**2).sum((0, 1)) / (every**2).sum())[::-1]
    assert shares.sum() >= single[:2].sum() - 1e-9
    turned = every @ axes
    assert (turned**2).sum((0, 1)) / (every**2).sum() == pytest.approx(shares, rel=1e-5)


def test_an_ensemble_has_functions_and_no_plane(
    ensemble_model: TableModel, test_rows: pd.DataFrame
) -> None:
    found, selected = function_data(ensemble_model, test_rows)
    assert found["plane"] is None
    assert "base" not in found
    assert found["draws"].shape == (len(selected), 2, 32, 12)


def test_class_probabilities_stay_in_their_bands(
    classification_model: TableModel, test_rows: pd.DataFrame
) -> None:
    found, _ = function_data(classification_model, test_rows)
    assert found["mean"].sum(-1) == pytest.approx(1.0)
    assert (found["low"] <= found["high"]).all()
    assert found["draws"].sum(3) == pytest.approx(1.0)


def test_a_page_stays_small_however_wide_the_table(
    regression_model: TableModel, test_rows: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    selected = ood_rows(score_table(regression_model, "test", test_rows), 12)
    monkeypatch.setattr(page_functions, "MAX_NUMBERS", 600)
    grid = page_functions.grid_size(regression_model, selected)
    count = grid.rows * grid.points * len(grid.features) * (4 + grid.draws)
    assert count <= 600
    assert len(grid.features) == 2
    monkeypatch.setattr(page_functions, "MAX_NUMBERS", 300)
    assert len(page_functions.grid_size(regression_model, selected).features) == 1


def test_a_table_of_categories_alone_has_no_functions() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"colour": rng.choice(["a", "b"], 40), "y": rng.normal(size=40)})
    model = model_of(ensemble(), table, "y", table)
    assert report_data(model, table, None, quiet)["functions"] is None
