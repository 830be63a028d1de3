"""Tables of numbers: UCI Superconductivity."""

import csv
import hashlib
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from gpn.data.safe_read import check_member, opened, parsing, read_rest
from gpn.data.store import DataError, Folder, Source, data_folder, find, is_file, missing

SUPERCONDUCTIVITY = Source(
    "superconductivity",
    "https://archive.ics.uci.edu/dataset/464/superconductivty+data",
    "CC BY 4.0, cite Hamidieh 2018",
    "superconductivity",
    # Releases differ in the order of rows and in the last digits of a few columns.
    {"train.csv": ("2d20658158860f7f794badab671823d7",)},
    archive="superconductivity/superconductivty+data.zip",
)
ROWS = 21_263
_PROPERTIES = (
    *("atomic_mass", "fie", "atomic_radius", "Density"),
    *("ElectronAffinity", "FusionHeat", "ThermalConductivity", "Valence"),
)
_STATISTICS = ("mean", "gmean", "entropy", "range", "std")
COLUMNS = (
    "number_of_elements",
    *(
        f"{weight}{statistic}_{item}"
        for item in _PROPERTIES
        for statistic in _STATISTICS
        for weight in ("", "wtd_")
    ),
)
TARGET = "critical_temp"


@dataclass(frozen=True, eq=False)
class Table:
    """Features x with their names, and one target y."""

    x: Float64[Tensor, "n d"]
    y: Float64[Tensor, " n"]
    columns: tuple[str, ...]


def superconductivity(folder: Folder = None) -> Table:
    """UCI Superconductivity: 81 features of 21,263 materials, and their critical temperature in K.

    Read from `superconductivity/train.csv` in the data folder, from a zip there that holds it, or
    from the official zip in the data folder itself. A release with an unknown checksum gives a
    warning: its rows may be in another order, or its values changed.
    """
    path, content = _content(SUPERCONDUCTIVITY, data_folder(folder))
    with parsing(path, SUPERCONDUCTIVITY):
        values = _values(content.decode("utf-8-sig"))
    digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
    known = SUPERCONDUCTIVITY.files["train.csv"]
    if digest not in known:
        warnings.warn(
            f"train.csv in {path} has the md5 {digest}, not {' or '.join(known)} of the release "
            "that gpn knows; its columns and shape are right, but rows may be in another order or "
            "values were changed, and splits may differ.",
            stacklevel=2,
        )
    return Table(values[:, :-1].contiguous(), values[:, -1].contiguous(), COLUMNS)


def _content(source: Source, folder: Path) -> tuple[Path, bytearray]:
    """The bytes of train.csv, and the file that holds them."""
    path = find(source, "train.csv", folder)
    if path is not None:
        with opened(path, source) as stream:
            return path, read_rest(stream, path.stat().st_size)
    damaged: list[DataError] = []
    for archive in _archives(source, folder):
        try:
            content = _zipped(source, archive)
        except DataError as error:  # of a zip that may hold something else
            damaged.append(error)
            continue
        if content is not None:
            return archive, content
    raise damaged[0] if damaged else missing(source, "train.csv", folder)


def _archives(source: Source, folder: Path) -> list[Path]:
    """Every zip in the table's folder, and the official one in the data folder itself."""
    official = folder / Path(source.archive).name
    others = sorted((folder / source.subfolder).glob("*.zip"))
    return [*others, official] if is_file(official) else others


def _zipped(source: Source, path: Path) -> bytearray | None:
    """The bytes of train.csv in the archive at `path`, None if it holds no such file."""
    with opened(path, source) as raw, zipfile.ZipFile(raw) as archive:
        for member in archive.infolist():
            if member.filename.rsplit("/")[-1] == "train.csv":
                check_member(path, member)
                with archive.open(member) as stream:
                    return read_rest(stream, member.file_size)
    return None


def _values(text: str) -> Float64[Tensor, "n d"]:
    """The numbers of the file: `ROWS` rows below the right names, all finite."""
    header, *lines = text.rstrip().splitlines() or [""]
    _check_names(next(csv.reader([header]), []))
    if len(lines) != ROWS:
        raise ValueError(f"there must be {ROWS} rows below the names, got {len(lines)}")
    values = np.loadtxt(lines, delimiter=",", comments=None, quotechar='"', ndmin=2)
    if values.shape != (ROWS, len(COLUMNS) + 1):
        raise ValueError(f"there must be {len(COLUMNS) + 1} numbers in each row, got other rows")
    if not np.isfinite(values).all():
        line = 2 + int(np.flatnonzero(~np.isfinite(values).all(1))[0])
        raise ValueError(f"numbers must be finite, got NaN or infinity in line {line}")
    return torch.from_numpy(values)


def _check_names(names: list[str]) -> None:
    expected = (*COLUMNS, TARGET)
    if len(names) != len(expected):
        raise ValueError(f"line 1 must name {len(expected)} columns, got {len(names)}")
    for number, (name, found) in enumerate(zip(expected, names, strict=True), 1):
        if name != found:
            raise ValueError(f"line 1 must name column {number} {name!r}, got {found[:40]!r}")
