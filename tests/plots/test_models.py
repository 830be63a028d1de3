"""`model.plot(X, y)`: what the one figure of an estimator shows."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from sklearn.exceptions import NotFittedError

from gpn import GPNClassifier, GPNRegressor

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (60, 2))
Y = X[:, 0] + RNG.normal(0, 0.1, 60)
NEW = RNG.uniform(-1, 1, (250, 2))


@pytest.fixture(scope="module")
def regressor() -> GPNRegressor:
    return GPNRegressor(mean=None, random_state=0).fit(X, Y)


def test_numbers_show_intervals_against_the_truth_and_scores(regressor: GPNRegressor) -> None:
    truth = NEW[:, 0] + RNG.normal(0, 0.1, 250)
    figure = regressor.plot(NEW, truth, level=0.9)
    left, right = figure.axes
    low, high = regressor.predict_interval(NEW, 0.9)
    inside = np.mean((low <= truth) & (truth <= high))
    assert left.get_title() == f"{inside:.1%} of 250 labels inside 90 % intervals"
    bars = sum(len(bars.get_segments()) for bars in left.collections)
    assert bars == 200, "as many as the eye can tell apart"
    assert right.get_title() == f"{regressor.is_ood(NEW).mean():.0%} of these rows are flagged"


def test_flagged_rows_have_their_own_colour(regressor: GPNRegressor) -> None:
    rows = np.concatenate([X[:20], X[:20] + 30])
    left = regressor.plot(rows, rows[:, 0]).axes[0]
    assert [text.get_text() for text in left.get_legend().get_texts()] == ["known", "flagged"]


def test_every_target_has_a_panel() -> None:
    both = np.stack([Y, -Y], axis=1)
    model = GPNRegressor(mean=None, random_state=0).fit(X, both)
    assert len(model.plot(X, both).axes) == 3


def test_classes_show_reliability() -> None:
    names = np.where(X[:, 0] > 0, "high", "low")
    model = GPNClassifier(mean=None, random_state=0).fit(X, names)
    truth = np.where(NEW[:, 0] > 0, "high", "low")
    left = model.plot(NEW, truth).axes[0]
    assert left.get_title() == f"accuracy {model.score(NEW, truth):.1%}"
    assert left.get_xlabel() == "confidence"
    with pytest.raises(ValueError, match=r"classes of the fit, got \['other'\]"):
        model.plot(NEW[:1], ["other"])


def test_a_notebook_shows_it_without_pyplot(regressor: GPNRegressor) -> None:
    assert regressor.plot(X, Y)._repr_png_()[:4] == b"\x89PNG"


def test_refusals(regressor: GPNRegressor) -> None:
    with pytest.raises(ValueError, match="inconsistent numbers"):
        regressor.plot(X, Y[:5])
    with pytest.raises(NotFittedError):
        GPNRegressor().plot(X, Y)
