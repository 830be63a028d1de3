"""The folder of official data files, and their checksums. Nothing is ever downloaded."""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

Folder = str | os.PathLike[str] | None


class DataError(ValueError):
    """A data file is damaged, or of another kind than it should be."""


class MissingData(DataError, FileNotFoundError):
    """A data file, or a part of one, is missing."""


@dataclass(frozen=True)
class Source:
    """A data set as its authors publish it.

    files: each file with the md5s of its known releases, decompressed; () if none is published.
    subfolder: the files' place in the data folder. suffixes: what may follow their names.
    archive: a file in the data folder that may replace them.
    """

    name: str
    address: str
    licence: str
    subfolder: str
    files: Mapping[str, tuple[str, ...]]
    suffixes: tuple[str, ...] = ("",)
    archive: str = ""

    def __str__(self) -> str:
        return f"{self.address} (terms: {self.licence})"


def data_folder(folder: Folder = None) -> Path:
    """`folder`, else the environment's GPN_DATA, else the user's cache folder for gpn."""
    chosen = folder or os.environ.get("GPN_DATA")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "gpn"


def find(source: Source, file: str, folder: Folder = None) -> Path | None:
    """The path of `file`, with any suffix that the source allows; None where there is none."""
    place = data_folder(folder) / source.subfolder
    paths = (place / f"{file}{suffix}" for suffix in source.suffixes)
    return next((path for path in paths if is_file(path)), None)


def is_file(path: Path) -> bool:
    """Whether `path` is a file; a DataError where the system denies the answer."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise DataError(
            f"{path} must be a path that can be looked up, got: {error.strerror}; make it so, "
            "or name another data folder with folder=... or the environment variable GPN_DATA."
        ) from error


def locate(source: Source, file: str, folder: Folder = None) -> Path:
    """The path of `file`, or an error that says where to get it and where it belongs."""
    path = find(source, file, folder)
    if path is None:
        raise missing(source, file, folder)
    return path


def missing(source: Source, file: str, folder: Folder = None) -> MissingData:
    """The error for a `file` of `source` that is not in the data folder."""
    root = data_folder(folder)
    places = [str(root / source.subfolder / f"{file}{suffix}") for suffix in source.suffixes]
    if source.archive:
        places.append(str(root / source.archive))
    return MissingData(
        f"{file} of {source.name} must be at {' or '.join(places)}, got no such file; get it from "
        f"{source} and put it there, or name another data folder with folder=... or the "
        "environment variable GPN_DATA. gpn downloads nothing."
    )


def check_md5(source: Source, file: str, path: Path, digest: str) -> None:
    """Raise unless `digest`, of the `file` at `path`, is that of a known release."""
    known = source.files[file]
    if known and digest not in known:
        raise DataError(
            f"{file} in {path} must have the md5 {' or '.join(known)}, got {digest}; the file is "
            f"damaged or not the official one, get it again from {source}."
        )
