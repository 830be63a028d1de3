"""Pools on disk: arrays and Parquet tables whose rows are read by number and in their order."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import gpn
from tests.fuzz.reader import Reader
from tests.fuzz.tables import parquet


def readers(folder: Path) -> Iterator[Reader]:
    """Some rows at random, as for a fit, and then all, as for a prediction."""
    rows = np.random.default_rng(0).normal(size=(40, 3)).round(2)
    arrays = [npy(rows), npy(rows.astype("float32")), npy((100 * rows).astype("int64"))]
    yield Reader("pool.npy", folder / "p.npy", arrays, drawn(folder / "p.npy"))
    frames = pd.DataFrame(rows, columns=list("abc")), pd.DataFrame({"a": np.arange(25)})
    tables = [parquet(frame) for frame in frames]
    yield Reader("pool.parquet", folder / "p.parquet", tables, drawn(folder / "p.parquet"))


def npy(rows: Any) -> bytes:
    made = io.BytesIO()
    np.save(made, rows)
    return made.getvalue()


def drawn(path: Path) -> Callable[[], Any]:
    def draw() -> None:
        pool = gpn.DiskPool(path)
        pool.draw(5, torch.Generator().manual_seed(0))
        list(pool.chunks(16))

    return draw
