"""Awkward data: each kind works and means what it should, or is refused with what to do."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import gpn
from gpn.core.task import Task
from gpn.estimators.scaling import Scale

Array = NDArray[Any]
SCALES = [1e-12, 1e-6, 1e6, 1e12]
CONFIG = gpn.GPNConfig(
    reference_rows=64,
    n_axes=20,
    trunk=gpn.MLPTrunk(widths=(32,)),
    train=gpn.TrainConfig(steps=150, pool_batch=32, learning_rate=0.01, device="cpu"),
)
DICE = np.random.default_rng(0)
X = DICE.normal(size=(40, 2))
POOL = 1.5 * DICE.normal(size=(100, 2))
Y = np.sin(X[:, 0]) + 0.1 * DICE.normal(size=40)
KIND = np.where(Y > 0, "high", "low")


def regressor(x: Any, y: Any, pool: Any, **changes: Any) -> gpn.GPNRegressor:
    config = CONFIG.replace(**changes)
    return gpn.GPNRegressor(config, random_state=0).fit(x, y, X_unlabeled=pool)


def classifier(x: Any, y: Any, pool: Any, **changes: Any) -> gpn.GPNClassifier:
    config = CONFIG.replace(**changes)
    return gpn.GPNClassifier(config, random_state=0).fit(x, y, X_unlabeled=pool)


@pytest.fixture(scope="module")
def plain() -> gpn.GPNRegressor:
    return regressor(X, Y, POOL)


@pytest.fixture(scope="module")
def plain_classes() -> gpn.GPNClassifier:
    return classifier(X, KIND, POOL)


def close(values: Array, expected: Array) -> None:
    """Within a hundred-thousandth of the largest value: what 150 steps make of rounding."""
    np.testing.assert_allclose(values, expected, atol=1e-5 * np.abs(expected).max(), rtol=0)


@pytest.mark.parametrize("scale", SCALES)
def test_units_of_x_do_not_matter(scale: float, plain: gpn.GPNRegressor) -> None:
    model = regressor(scale * X, Y, scale * POOL)
    for values, expected in zip(
        model.predict(scale * POOL, return_std=True),
        plain.predict(POOL, return_std=True),
        strict=True,
    ):
        close(values, expected)
    assert np.array_equal(model.is_ood(scale * POOL), plain.is_ood(POOL))


@pytest.mark.parametrize("scale", SCALES)
def test_predictions_have_the_units_of_y(scale: float, plain: gpn.GPNRegressor) -> None:
    model = regressor(X, scale * Y, POOL)
    close(model.predict(POOL), scale * plain.predict(POOL))
    for end, expected in zip(
        model.predict_interval(POOL), plain.predict_interval(POOL), strict=True
    ):
        close(end, scale * expected)
    close(model.sample_y(POOL, 5), scale * plain.sample_y(POOL, 5))
    close(model.ood_score(POOL), plain.ood_score(POOL))


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_units_of_x_do_not_matter_to_classes(
    scale: float, plain_classes: gpn.GPNClassifier
) -> None:
    model = classifier(scale * X, KIND, scale * POOL)
    close(model.predict_proba(scale * POOL), plain_classes.predict_proba(POOL))


def test_columns_of_very_different_units_and_a_far_origin(plain: gpn.GPNRegressor) -> None:
    units, origin = np.array([1e-12, 1e12]), np.array([0.0, 1e15])
    model = regressor(X * units + origin, Y, POOL * units + origin)
    np.testing.assert_allclose(
        model.predict(POOL * units + origin), plain.predict(POOL), atol=0.02, rtol=0
    )


def test_a_power_of_two_changes_no_digit() -> None:
    values = DICE.normal(size=(50, 3))
    values[:, 2] = 5.0
    scale = Scale.of(values)
    for power in (2.0**-900, 2.0**-40, 2.0**40, 2.0**400):
        other = Scale.of(values * power)
        assert np.array_equal(other.shift, scale.shift * power)
        assert np.array_equal(
            other.apply(values * power), np.where([1, 1, 0], scale.apply(values), 0)
        )
    np.testing.assert_allclose(scale.undo(scale.apply(values)), values)


def test_numbers_beyond_squaring_are_refused() -> None:
    with pytest.raises(ValueError, match=r"small enough .*, at most 1e\+150, got .*e\+200"):
        regressor(X * 1e200, Y, POOL * 1e200)
    with pytest.raises(ValueError, match="small enough to be squared"):
        regressor(X, Y * 1e200, POOL)


@pytest.mark.parametrize("value", [0.0, 3.0, -1e12, 1e-12])
def test_a_constant_feature_says_nothing(value: float) -> None:
    """Predictions follow the other column."""
    x, pool = X.copy(), POOL.copy()
    x[:, 1] = pool[:, 1] = value
    model = regressor(x, Y, pool)
    assert np.corrcoef(model.predict(x), Y)[0, 1] > 0.9
    assert np.isfinite(model.ood_score(pool)).all()
    assert np.isfinite(classifier(x, KIND, pool).predict_proba(pool)).all()


def test_a_feature_that_is_constant_among_labels_only() -> None:
    x = X.copy()
    x[:, 1] = 0.0
    mean, std = regressor(x, Y, POOL).predict(POOL, return_std=True)
    assert np.isfinite(mean).all()
    far, near = np.abs(POOL[:, 1]) > 2, np.abs(POOL[:, 1]) < 0.3
    assert std[far].mean() > std[near].mean(), "away from the labels' plane less is known"


def test_all_features_constant_leave_the_mean() -> None:
    flat = np.full((40, 2), 7.0)
    mean, std = regressor(flat, Y, flat).predict(flat[:3], return_std=True)
    np.testing.assert_allclose(mean, Y.mean(), atol=3 * Y.std() / np.sqrt(40))
    assert (std < Y.std()).all()
    p = classifier(flat, KIND, flat).predict_proba(flat[:3])
    np.testing.assert_allclose(p[:, 0], (KIND == "high").mean(), atol=0.25)


@pytest.mark.filterwarnings("ignore:y should hold two values at least")
@pytest.mark.parametrize("value", [0.0, 5.0, 1e12, 1e-12])
@pytest.mark.parametrize("anchor", ["joint", "conditioned", "independent"])
def test_a_constant_target_is_predicted_as_it_is(value: float, anchor: str) -> None:
    model = regressor(X, np.full(40, value), POOL, anchor=anchor, beta=0.1)
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, value, atol=0.1, rtol=1e-9)
    assert np.isfinite(std).all()


@pytest.mark.parametrize("anchor", ["joint", "conditioned", "independent"])
def test_repeated_rows_are_fitted(anchor: str) -> None:
    x, y = np.repeat(X[:6], 10, axis=0), np.repeat(Y[:6], 10)
    model = regressor(x, y, np.repeat(POOL, 3, axis=0), anchor=anchor, beta=0.1)
    assert np.abs(model.predict(X[:6]) - Y[:6]).mean() < 0.5 * Y.std()


def test_repeated_rows_with_other_labels_leave_noise() -> None:
    x = np.repeat(X[:4], 10, axis=0)
    model = regressor(x, Y, POOL)
    low, high = model.predict_interval(x)
    assert ((low < Y) & (high > Y)).mean() > 0.7
    p = classifier(x, KIND, POOL).predict_proba(X[:4])
    assert ((p > 0.02) & (p < 0.98)).all(), "no row's class is certain"


@pytest.mark.filterwarnings("ignore:y should hold two values at least")
def test_one_label_is_enough_for_numbers_and_not_for_classes() -> None:
    model = regressor(X[:1], Y[:1], POOL)
    mean, std = model.predict(np.concatenate([X[:1], POOL]), return_std=True)
    assert np.isfinite(mean).all()
    assert std[0] < np.median(std[1:]), "most is known at the label itself"
    with pytest.raises(ValueError, match="two classes at least, got one class only"):
        classifier(X[:1], KIND[:1], POOL)


@pytest.mark.parametrize("n_labels", [3, 20])
def test_more_features_than_rows(n_labels: int) -> None:
    wide, pool = DICE.normal(size=(n_labels, 60)), DICE.normal(size=(80, 60))
    model = regressor(wide, wide[:, 0], pool, beta=0.1, n_axes=100)
    assert np.abs(model.predict(wide) - wide[:, 0]).mean() < np.abs(wide[:, 0]).mean()
    kinds = np.arange(n_labels) % 2
    p = classifier(wide, kinds, pool, beta=0.1, n_axes=100).predict_proba(pool)
    np.testing.assert_allclose(p.sum(1), 1.0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int16", "int64"])
def test_every_dtype_means_its_values(dtype: str) -> None:
    """As tensors of that dtype, and as the same values in double precision: the same model."""
    kind = getattr(torch, dtype)
    x, y, pool = (torch.tensor(4 * values).to(kind) for values in (X, Y, POOL))
    wide = [values.double().numpy() for values in (x, y, pool)]
    expected = regressor(*wide).predict(wide[2])
    assert np.array_equal(regressor(x, y, pool).predict(pool), expected)
    if dtype != "bfloat16":
        arrays = [values.numpy() for values in (x, y, pool)]
        assert np.array_equal(regressor(*arrays).predict(arrays[2]), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int32])
def test_a_task_holds_narrow_numbers_in_single_precision(dtype: torch.dtype) -> None:
    x = torch.tensor(4 * X).to(dtype)
    task = Task(x, torch.full((40,), 1e30), pool=x)
    assert task.x_obs.dtype == torch.float32
    assert torch.equal(task.x_obs, x.float())
    assert task.y_obs.isfinite().all()
    assert task.pool is not None
    assert task.pool.draw(3, torch.Generator()).dtype == torch.float32


def test_values_that_overflow_their_dtype_are_refused() -> None:
    x = torch.tensor(X)
    with pytest.raises(ValueError, match=r"y must fit torch.float32, .* got .*1e\+300"):
        Task(x.float(), torch.full((40,), 1e300, dtype=torch.float64))
    huge = Task(1e300 * x, x[:, 0], pool=x)
    with pytest.raises(ValueError, match=r"x must fit torch.float32"):
        huge.to(torch.device("cpu"), torch.float32)


@pytest.mark.parametrize("scale", [1e-12, 1e-6])
def test_a_gpn_itself_takes_tiny_values_as_given(scale: float) -> None:
    """Without an estimator there is no scaling: so close together, the prior is a constant."""
    x, y, pool = (torch.tensor(values) for values in (X, Y, POOL))
    task = Task(scale * x, y, pool=scale * pool)
    mean = gpn.GPN(CONFIG).fit(task, rng=0).mean(task.x_obs)
    torch.testing.assert_close(mean, torch.full_like(mean, Y.mean()), atol=0.2, rtol=0)
    tiny = gpn.GPN(CONFIG).fit(Task(x, scale * y, pool=pool), rng=0)
    assert tiny.mean(x).abs().max() < 0.3
    assert tiny.std(x).isfinite().all()


@pytest.mark.parametrize("scale", [1e7, 1e12])
def test_a_gpn_itself_refuses_huge_values(scale: float) -> None:
    x, y, pool = (torch.tensor(values) for values in (X, Y, POOL))
    with pytest.raises(ValueError, match="x must be of the prior's size, about 1, got values up"):
        gpn.GPN(CONFIG).fit(Task(scale * x, y, pool=scale * pool), rng=0)
    with pytest.raises(ValueError, match=r"y must be of the prior's size, .*as GPNRegressor"):
        gpn.GPN(CONFIG).fit(Task(x, scale * y, pool=pool), rng=0)


def test_the_prior_kernel_stays_a_covariance_at_huge_inputs() -> None:
    x = 1e12 * torch.tensor(X)
    gram = gpn.MLPPrior().kernel(x, x)
    assert gram.isfinite().all()
    assert torch.linalg.eigvalsh(gram).min() > -1e-9 * gram.diagonal().mean()
