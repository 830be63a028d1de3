"""The tables: `<data folder>/tables/<name>.npz` with rows x, targets y and ten folds."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from gpn.data.store import DataError, Folder, MissingData, data_folder

SMALL_TABLE = 5_000  # fewer rows than these have five splits, other tables two
Rows = Float[np.ndarray, "n d"]
Targets = Float[np.ndarray, "n"]


@dataclass(frozen=True)
class Split:
    """One part of a table is tested, the rest is for the fit."""

    x: Rows
    y: Targets
    x_test: Float[np.ndarray, "m d"]
    y_test: Float[np.ndarray, "m"]


@dataclass(frozen=True)
class Table:
    """A table with numbers in every column; `fold` says in which split a row is tested."""

    name: str
    x: Rows
    y: Targets
    fold: Int[np.ndarray, "n"]

    @property
    def splits(self) -> range:
        """Folds 0 to 4 are tested in small tables, 0 and 1 in others."""
        return range(5 if len(self.y) < SMALL_TABLE else 2)

    def split(self, number: int) -> Split:
        """Fold `number` is the test part."""
        test = self.fold == number
        return Split(self.x[~test], self.y[~test], self.x[test], self.y[test])


def tables_folder(folder: Folder = None) -> Path:
    """`folder`, else `tables` in the data folder of every experiment (GPN_DATA)."""
    return Path(folder).expanduser() if folder else data_folder() / "tables"


def table_names(folder: Folder = None) -> list[str]:
    place = tables_folder(folder)
    names = sorted(path.stem for path in place.glob("*.npz"))
    if not names:
        raise MissingData(
            f"{place} must hold the tables as <name>.npz, got no such file; name their folder with "
            "--tables FOLDER, or the folder above it with the environment variable GPN_DATA."
        )
    return names


def read_table(name: str, folder: Folder = None) -> Table:
    path = tables_folder(folder) / f"{name}.npz"
    if name not in (known := table_names(folder)):
        raise MissingData(f"a table must be one of {', '.join(known)}, got {name}.")
    try:
        with np.load(path, allow_pickle=False) as file:
            return Table(name, file["x"].astype(float), file["y"].astype(float), file["fold"])
    except (KeyError, ValueError) as error:
        raise DataError(f"{path} must hold numbers x, y and fold, got: {error}.") from error
