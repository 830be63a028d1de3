"""Tasks: the meaning of y, and errors that say what must hold and what was found."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import gpn

X = torch.tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])


@pytest.mark.parametrize("floats", [torch.float32, torch.float64])
def test_floating_y_is_regression(floats: torch.dtype) -> None:
    task = gpn.Task(X, torch.tensor([1.0, 2.0, 3.0], dtype=floats))
    assert not task.is_classification
    assert task.n_outputs == 1
    assert torch.equal(task.y_obs, torch.tensor([[1.0], [2.0], [3.0]]))
    assert task.y_obs.dtype == task.x_obs.dtype, "one dtype in a task, that of x"


@pytest.mark.parametrize("integers", [torch.uint8, torch.int32, torch.int64, torch.bool])
def test_integer_y_is_classification(integers: torch.dtype) -> None:
    task = gpn.Task(X, torch.tensor([1, 0, 1]).to(integers))
    assert task.is_classification
    assert task.n_outputs == 2
    assert torch.equal(task.y_obs, torch.tensor([1, 0, 1]))


def test_classes_are_counted_or_given() -> None:
    assert gpn.Task(X, [0, 4, 1]).n_outputs == 5
    assert gpn.Task(X, [0, 4, 1], n_classes=7).n_outputs == 7
    assert gpn.Task(X, [0, 0, 0]).n_outputs == 2, "one class alone leaves nothing to tell apart"
    assert torch.equal(gpn.Task(X, [[0], [2], [1]]).y_obs, torch.tensor([0, 2, 1]))


def test_several_targets() -> None:
    task = gpn.Task(X, X * 2.0)
    assert task.n_outputs == 2
    assert torch.equal(task.y_obs, 2 * X)


@pytest.mark.parametrize(
    "x",
    [
        X.numpy(),
        X.tolist(),
        X.long(),
        X.int().numpy(),
        X.numpy().astype(object),
        np.asfortranarray(X.numpy())[::-1][::-1],
    ],
    ids=["numpy", "list", "integers", "numpy integers", "objects", "strides"],
)
def test_whatever_holds_the_same_numbers_is_the_same_task(x: Any) -> None:
    task = gpn.Task(x, np.array([0.0, 1.0, 2.0]), pool=x)
    assert task.x_obs.is_floating_point()
    torch.testing.assert_close(task.x_obs, X, check_dtype=False)
    drawn = task.pool.draw(20, torch.Generator().manual_seed(0))
    assert drawn.is_floating_point()
    assert set(drawn[:, 0].tolist()) == {0.0, 2.0, 4.0}


def test_a_task_does_not_follow_the_array_it_came_from() -> None:
    array = X.numpy().copy()
    task = gpn.Task(array, [0.0, 1.0, 2.0])
    array[:] = -1.0
    assert torch.equal(task.x_obs, X)


def test_pools_of_every_kind() -> None:
    y = [0.0, 1.0, 2.0]
    assert isinstance(gpn.Task(X, y, pool=X).pool, gpn.TensorPool)
    assert isinstance(gpn.Task(X, y, pool=TensorDataset(X)).pool, gpn.DatasetPool)
    sampler = gpn.Task(X, y, pool=lambda m, rng: torch.rand(m, 2, generator=rng)).pool
    assert isinstance(sampler, gpn.SamplerPool)
    given = gpn.box([0.0, 0.0], [1.0, 1.0])
    assert gpn.Task(X, y, pool=given).pool is given
    assert gpn.Task(X, y).pool is None


def test_images_keep_their_shape() -> None:
    images = torch.zeros(4, 3, 8, 6)
    task = gpn.Task(images, [0, 1, 0, 1], pool=images)
    assert task.input_shape == (3, 8, 6)


def test_moving_changes_floating_values_only() -> None:
    task = gpn.Task(X, [0, 1, 2], pool=X).to(torch.device("cpu"), torch.float64)
    drawn = task.pool.draw(2, torch.Generator())
    assert (task.x_obs.dtype, drawn.dtype) == (torch.float64, torch.float64)
    assert task.y_obs.dtype == torch.int64
    assert task.is_classification


def test_a_part_of_the_labels_keeps_pool_and_classes() -> None:
    task = gpn.Task(X, [0, 2, 1], pool=X)
    part = task.subset(torch.tensor([2, 0]))
    assert torch.equal(part.x_obs, X[[2, 0]])
    assert part.y_obs.tolist() == [1, 0]
    assert part.n_outputs == 3, "an unseen class is still a class"
    assert part.pool is task.pool
    assert len(task.x_obs) == 3, "the task itself stays whole"


def test_no_gradient_reaches_back_into_the_data() -> None:
    x = X.clone().requires_grad_()
    assert not gpn.Task(x, x * 2).y_obs.requires_grad
    assert not gpn.Task(x, [0, 1, 2]).x_obs.requires_grad


NAN = torch.tensor([[0.0, 1.0], [math.nan, 3.0], [4.0, math.inf]])
Y = [0.0, 1.0, 2.0]
BAD = {
    "x is a vector": ((torch.zeros(3), Y), {}, r"x must be rows .*\(n, d\).*got \(3,\); .*reshape"),
    "x is a number": ((1.0, Y), {}, r"x must be rows .*got \(\)"),
    "x is empty": ((torch.zeros(0, 2), []), {}, r"x must hold at least one row, got .*\(0, 2\)"),
    "x has NaN": ((NAN, Y), {}, r"x must be finite, got .* in 2 of 3 rows \(first: row 1\)"),
    "y has NaN": ((X, [0.0, 1.0, math.nan]), {}, r"y must be finite.* 1 of 3 rows \(first: row 2"),
    "lengths differ": ((X, Y[:2]), {}, r"one row per label, got 3 and 2"),
    "y is a cube": ((X, torch.zeros(3, 1, 1)), {}, r"y must be a vector or a table.*\(3, 1, 1\)"),
    "integer table": ((X, torch.zeros(3, 2).long()), {}, r"one number per row.*\(3, 2\);.*floats"),
    "negative class": ((X, [0, -2, 1]), {}, r"class numbers must be 0, 1, 2.*got -2; renumber"),
    "few classes": ((X, [0, 3, 1]), {"n_classes": 3}, r"n_classes must be at least 4.*got 3"),
    "one class": ((X, [0, 0, 0]), {"n_classes": 1}, r"n_classes must be at least 2.*got 1"),
    "classes and floats": ((X, Y), {"n_classes": 3}, r"n_classes goes with integer y"),
    "pool shape": ((X, Y), {"pool": torch.zeros(5, 3)}, r"shape \(3,\) and x .*\(2,\)"),
    "box shape": ((X, Y), {"pool": gpn.box([0.0], [1.0])}, r"shape \(1,\) and x .*\(2,\)"),
    "pool vector": ((X, Y), {"pool": torch.zeros(5)}, r"the pool must be rows.*got \(5,\)"),
    "pool NaN": ((X, Y), {"pool": NAN}, r"the pool must be finite, got .* 2 of 3 rows"),
    "pool empty": ((X, Y), {"pool": torch.zeros(0, 2)}, r"the pool must hold at least one row"),
}


@pytest.mark.parametrize(("given", "named", "message"), BAD.values(), ids=BAD.keys())
def test_bad_values(given: tuple[Any, Any], named: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gpn.Task(*given, **named)


TEXT = [["a", "b"], ["c", "d"], ["e", "f"]]
WRONG = {
    "x is text": ((TEXT, Y), {}, r"x must be a table of numbers .*got list .*; encode"),
    "x has text": ((np.array([[1, "b"]], dtype=object), Y), {}, r"x must be a table .*got ndarray"),
    "y is text": ((X, ["a", "b", "c"]), {}, r"y must be a table of numbers .*got list .*; encode"),
    "pool is text": ((X, Y), {"pool": TEXT}, r"pool must be a table .*got list"),
    "y is complex": ((X, torch.zeros(3) * 1j), {}, r"y must be real numbers.*got torch\.complex64"),
}


@pytest.mark.parametrize(("given", "named", "message"), WRONG.values(), ids=WRONG.keys())
def test_wrong_types(given: tuple[Any, Any], named: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        gpn.Task(*given, **named)


def test_ragged_rows_are_named() -> None:
    with pytest.raises(TypeError, match=r"x must be a table of numbers with equal rows, got list"):
        gpn.Task([[1.0, 2.0], [3.0]], [0.0, 1.0])


def test_complex_x_is_refused() -> None:
    with pytest.raises(TypeError, match=r"x must be real"):
        gpn.Task(X * 1j, Y)


def test_augmentation_keeps_shapes() -> None:
    x = torch.zeros(4, 3)
    halved = gpn.Task(x, x[:, :1], augment=lambda rows, rng: rows[:, :2])
    with pytest.raises(ValueError, match=r"\(4, 3\), got \(4, 2\)"):
        halved.augmented(x, torch.Generator())


@pytest.mark.usefixtures("as_users_have_it")
def test_half_a_class_is_refused() -> None:
    with pytest.raises(ValueError, match=r"n_classes must be a whole .*got 2\.5"):
        gpn.Task(X, [0, 1, 1], n_classes=2.5)  # type: ignore[arg-type]
