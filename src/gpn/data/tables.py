"""Tables of numbers: UCI Superconductivity."""

import csv
import hashlib
import io
import math
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float64
from torch import Tensor

from gpn.data.bounded import check_compression, check_unfolding, opened, parsing, read_whole
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
    from the official zip in the data folder itself. A release with another checksum than the known
    one gives a warning, since its rows may be in another order or its values changed.
    """
    path, content = _content(SUPERCONDUCTIVITY, data_folder(folder))
    with parsing(path, SUPERCONDUCTIVITY):
        values = torch.tensor(_rows(content), dtype=torch.float64)
    digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if digest not in SUPERCONDUCTIVITY.files["train.csv"]:
        warnings.warn(_unknown(path, digest), stacklevel=2)
    return Table(values[:, :-1].contiguous(), values[:, -1].contiguous(), COLUMNS)


def _content(source: Source, folder: Path) -> tuple[Path, bytearray]:
    """The bytes of train.csv, and the file they come from."""
    path = find(source, "train.csv", folder)
    if path is not None:
        with opened(path, source) as stream:
            return path, read_whole(stream, path.stat().st_size)
    damaged: list[DataError] = []
    for archive in _archives(source, folder):
        try:
            content = _zipped(source, archive)
        except DataError as error:  # it may have nothing to do with the table
            damaged.append(error)
            continue
        if content is not None:
            return archive, content
    raise damaged[0] if damaged else missing(source, "train.csv", folder)


def _archives(source: Source, folder: Path) -> list[Path]:
    """Every zip beside the table's place, and the official one in the data folder itself."""
    official = folder / Path(source.archive).name
    beside = sorted((folder / source.subfolder).glob("*.zip"))
    return [*beside, official] if is_file(official) else beside


def _zipped(source: Source, path: Path) -> bytearray | None:
    """The bytes of train.csv in the archive at `path`, None if it holds no such file."""
    with opened(path, source) as raw, zipfile.ZipFile(raw) as archive:
        for member in archive.infolist():
            if member.filename.rsplit("/")[-1] == "train.csv":
                check_compression(member)
                check_unfolding(path, member.file_size)
                with archive.open(member) as stream:
                    return read_whole(stream, member.file_size)
    return None


def _rows(content: bytearray) -> list[list[float]]:
    """The rows of the file, of which there must be `ROWS`, under the right names."""
    text = io.BytesIO(content.rstrip())  # blank lines at the end are no rows
    lines = csv.reader(io.TextIOWrapper(text, "utf-8-sig", newline=""))
    _check_names(next(lines, []))
    rows = [_numbers(cells, lines.line_num) for cells in lines]
    if len(rows) != ROWS:
        raise ValueError(f"there must be {ROWS} rows below the names, got {len(rows)}")
    return rows


def _check_names(names: list[str]) -> None:
    wanted = (*COLUMNS, TARGET)
    if len(names) != len(wanted):
        raise ValueError(f"line 1 must name {len(wanted)} columns, got {len(names)}")
    for place, (name, came) in enumerate(zip(wanted, names, strict=True), 1):
        if name != came:
            raise ValueError(f"line 1 must name column {place} {name!r}, got {came[:40]!r}")


def _numbers(cells: list[str], line: int) -> list[float]:
    if len(cells) != len(COLUMNS) + 1:
        raise ValueError(f"line {line} must have {len(COLUMNS) + 1} numbers, got {len(cells)}")
    return [_number(cell, line) for cell in cells]


def _number(cell: str, line: int) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"line {line} must be finite numbers, got {cell[:40]!r}")
    return value


def _unknown(path: Path, digest: str) -> str:
    known = " or ".join(SUPERCONDUCTIVITY.files["train.csv"])
    return (
        f"train.csv in {path} has the md5 {digest}, not {known} of the release that gpn knows; its "
        "columns and shape are right, but rows may be in another order or values were changed, and "
        "splits may differ."
    )
