"""scikit-learn's compiled walk through the nodes is numpy's, for any rows."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.tree import DecisionTreeRegressor

from gpn.estimators.closed_form import trees as module
from gpn.estimators.closed_form.trees import Trees

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 3))
Y = X[:, 0] ** 2 + X[:, 1]


def boosted() -> Trees:
    return Trees.of(
        [HistGradientBoostingRegressor(max_iter=n, max_leaf_nodes=7).fit(X, Y) for n in (3, 8)]
    )


def forest() -> Trees:
    return Trees.of_regression([DecisionTreeRegressor(max_depth=d).fit(X, Y) for d in (1, 9)])


def stump() -> Trees:
    return Trees.of_regression([DecisionTreeRegressor(max_depth=1).fit(X, np.ones(300))])


KINDS = {
    "boosted": boosted,
    "forest": forest,
    "one leaf": stump,
    "both": lambda: Trees.mean([boosted(), forest()]),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [0, 1, 5, module.MAX_FEW_ROWS, 300])
def test_compiled_trees_predict_as_numpy_does(kind: str, n: int) -> None:
    trees, rows = KINDS[kind](), RNG.normal(size=(n, 3))
    rows[:1] = np.inf
    rows[1:2] = np.nan
    np.testing.assert_allclose(trees.predict(rows), trees._walked(rows), rtol=1e-12, atol=1e-12)


def test_without_scikit_learns_walk_numpy_walks(monkeypatch: pytest.MonkeyPatch) -> None:
    trees = boosted()
    fast = trees.predict(X)
    monkeypatch.setattr(module, "TreePredictor", None)
    np.testing.assert_allclose(trees.predict(X), fast, rtol=1e-12)


@pytest.mark.parametrize("n", [3, 300])
def test_links_that_lead_back_end(n: int) -> None:
    """A file may hold any links; a walk must come to an end."""
    trees = forest()
    circular = replace(trees, left=np.zeros_like(trees.left), right=np.zeros_like(trees.right))
    assert np.isfinite(circular.predict(X[:n])).all()


def test_compiled_trees_are_not_pickled() -> None:
    trees = boosted()
    trees.predict(X)
    trees.predict(X[:1])
    again = pickle.loads(pickle.dumps(trees))
    assert not {"_compiled", "_as_one_tree"} & set(vars(again))
    np.testing.assert_array_equal(again.predict(X), trees.predict(X))
