"""Small data sets to fit, and the rows that every saved model is asked about."""

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

import gpn

Rows = NDArray[np.float64]

PLANE = [[0.0, 0.0], [0.5, -1.0], [-1.2, 0.3], [2.0, 2.0], [6.0, -6.0]]
ASKED_TABLE = """size,age,day,colour,note
0.5,3,2024-01-05,red,a
-1.25,12,2024-02-29,blue,b
,7,2024-03-10,green,c
2.0,20,2024-12-31,,d
0.0,,2030-06-15,purple,e
"""


ASKED_FRAME = [
    [0.5, 3, "red", "2024-01-05"],
    [-1.25, 12, "blue", "2024-02-29"],
    [None, 7, "green", "2024-03-10"],
    [2.0, 20, None, "2024-12-31"],
    [0.0, 4, "purple", "2030-06-15"],
]


def image_rows() -> Rows:
    """Five images of one channel and 6 × 6 pixels."""
    return np.random.default_rng(2).uniform(size=(5, 1, 6, 6)).round(2)


def points(n: int, seed: int) -> Rows:
    """Rows of the plane."""
    return np.random.default_rng(seed).normal(size=(n, 2)).round(3)


def wave(x: Rows) -> Rows:
    """A target of the plane, in units of its own."""
    return 50 + 3 * np.sin(2 * x[:, 0]) + x[:, 1]


def sectors(x: Rows) -> NDArray[np.int64]:
    """Three classes of the plane."""
    return (x[:, 0] > -0.4).astype(np.int64) + (x[:, 0] > 0.4)


def numbers_task(dtype: torch.dtype = torch.float32) -> gpn.Task:
    """Sixteen labels of one target, scaled as a bare posterior expects them."""
    x = points(16, 0)
    y = (wave(x) - 50) / 2
    return gpn.Task(_tensor(x, dtype), _tensor(y, dtype), pool=_tensor(points(48, 1), dtype))


def classes_task() -> gpn.Task:
    """Eighteen labels of three classes."""
    x = points(18, 0)
    pool = _tensor(points(48, 1), torch.float32)
    return gpn.Task(_tensor(x, torch.float32), torch.tensor(sectors(x)), pool=pool)


def two_classes_task() -> gpn.Task:
    """The same rows, and whether they are of the first class."""
    task = classes_task()
    return gpn.Task(task.x_obs, (task.y_obs > 0).long(), pool=task.pool)


def images_task() -> gpn.Task:
    """Twelve images of two classes: dark ones and bright ones."""
    x = torch.tensor(np.random.default_rng(3).uniform(size=(36, 1, 6, 6)), dtype=torch.float32)
    x[:12:2] *= 0.5
    return gpn.Task(x[:12], torch.arange(12) % 2, pool=x[12:])


def table(n: int, seed: int) -> pd.DataFrame:
    """Numbers with gaps, dates and categories, a target of numbers and one of classes."""
    rng = np.random.default_rng(seed)
    size, age, days = rng.normal(size=n).round(3), rng.integers(0, 30, n), rng.integers(0, 400, n)
    colour = rng.choice(["red", "green", "blue"], n)
    made = pd.DataFrame({"size": size, "age": age, "colour": colour})
    made["day"] = (pd.Timestamp("2024-01-01") + pd.to_timedelta(days, "D")).strftime("%Y-%m-%d")
    made["yield"] = (10 + 4 * size + age / 3 + 2 * (colour == "red")).round(3)
    made["grade"] = np.where(size + (colour == "red") > 0.3, "good", "poor")
    made.loc[::7, "size"] = np.nan
    made.loc[3::9, "colour"] = None
    return made


def frame(n: int, seed: int) -> pd.DataFrame:
    """The columns of `table` that are no targets."""
    return table(n, seed).drop(columns=["yield", "grade"])


def _tensor(values: Rows, dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)
