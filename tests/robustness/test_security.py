"""Files run no code and write nowhere, and nothing is fetched."""

import ast
import gzip
import io
import pickle
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gpn
from gpn.columns.column_types import TableError
from gpn.data import DataError, images, superconductivity
from gpn.saving.validation import ModelError
from gpn.tables import files
from tests.fuzz.images import PIXELS, batch, idx, tar

SOURCES = sorted(Path(gpn.__file__).parent.rglob("*.py"))


class Trap:
    """Unpickling it leaves a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def as_pickle(trap: Trap) -> bytes:
    return pickle.dumps(trap)


def as_checkpoint(trap: Trap) -> bytes:
    made = io.BytesIO()
    torch.save({"model": trap}, made)
    return made.getvalue()


def as_array(trap: Trap) -> bytes:
    made = io.BytesIO()
    np.save(made, np.array([trap], dtype=object), allow_pickle=True)
    return made.getvalue()


def as_npz(trap: Trap) -> bytes:
    made = io.BytesIO()
    np.savez(made, x_test=np.array([trap], dtype=object), allow_pickle=True)
    return made.getvalue()


def as_zip(trap: Trap) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name in ("x_test.npy", "train.csv", "data.pkl", "archive/data.pkl"):
            archive.writestr(name, pickle.dumps(trap))
    return made.getvalue()


def as_gzip(trap: Trap) -> bytes:
    return gzip.compress(pickle.dumps(trap))


def as_tar(trap: Trap) -> bytes:
    return tar(pickle.dumps(trap))


PLACES: dict[str, tuple[Callable[[Path], Any], type[Exception]]] = {
    "m.gpn": (lambda root: gpn.load(root / "m.gpn"), ModelError),
    "own.npz": (lambda root: images("own", root).test, DataError),
    "mnist/t10k-images-idx3-ubyte": (lambda root: images("mnist", root).test, DataError),
    "mnist/t10k-images-idx3-ubyte.gz": (lambda root: images("mnist", root).test, DataError),
    "cifar-10-binary.tar.gz": (lambda root: images("cifar10", root).test, DataError),
    "svhn/test_32x32.mat": (lambda root: images("svhn", root).test, DataError),
    "superconductivity/data.zip": (superconductivity, DataError),
    "t.csv": (lambda root: files.read_table(root / "t.csv"), TableError),
    "t.csv.gz": (lambda root: files.read_table(root / "t.csv.gz"), TableError),
    "t.parquet": (lambda root: files.read_table(root / "t.parquet"), TableError),
}
DISGUISES = [as_pickle, as_checkpoint, as_array, as_npz, as_zip, as_gzip, as_tar]


@pytest.mark.parametrize("disguise", DISGUISES)
@pytest.mark.parametrize("name", PLACES)
def test_no_file_runs_code(
    name: str, disguise: Callable[[Trap], bytes], tmp_path: Path, unchecked: None
) -> None:
    mark, path = tmp_path / "mark", tmp_path / "files" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(disguise(Trap(mark)))
    read, kind = PLACES[name]
    with pytest.raises(kind, match=" must "):
        read(tmp_path / "files")
    assert not mark.exists()


def test_the_trap_would_go_off(tmp_path: Path) -> None:
    pickle.loads(as_pickle(Trap(tmp_path / "mark")))
    assert (tmp_path / "mark").exists()


def linked(kind: bytes, target: str) -> bytes:
    """An archive whose batch is a link."""
    made, member = io.BytesIO(), tarfile.TarInfo("cifar-10-batches-bin/test_batch.bin")
    member.type, member.linkname = kind, target
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        archive.addfile(member)
    return made.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        tar(batch(), "../cifar-10-batches-bin/test_batch.bin"),
        tar(batch(), "cifar-10-batches-bin/../../test_batch.bin"),
        tar(batch(), "/cifar-10-batches-bin/test_batch.bin"),
        linked(tarfile.SYMTYPE, "/etc/passwd"),
        linked(tarfile.SYMTYPE, "../outside/test_batch.bin"),
        linked(tarfile.LNKTYPE, "../outside/test_batch.bin"),
        linked(tarfile.FIFOTYPE, ""),
        linked(tarfile.CHRTYPE, ""),
    ],
    ids=["up", "up inside", "absolute", "passwd", "symlink", "hardlink", "fifo", "device"],
)
def test_an_archive_leads_nowhere_else(content: bytes, tmp_path: Path, unchecked: None) -> None:
    root = tmp_path / "data"
    for name in ("data", "outside"):
        (tmp_path / name).mkdir()
    (tmp_path / "outside" / "test_batch.bin").write_bytes(batch())
    (root / "cifar-10-binary.tar.gz").write_bytes(content)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DataError, match="must be"):
        _ = images("cifar10", root).test
    assert sorted(tmp_path.rglob("*")) == before, "nothing is unpacked"


@pytest.mark.parametrize("name", ["../x_test.npy", "/x_test.npy", "x_test.npy/../../y"])
def test_a_zip_leads_nowhere_else(name: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    made = io.BytesIO()
    np.save(made, PIXELS)
    with zipfile.ZipFile(tmp_path / "data" / "own.npz", "w") as archive:
        archive.writestr(name, made.getvalue())
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DataError, match="must hold x_test"):
        _ = images("own", tmp_path / "data").test
    assert sorted(tmp_path.rglob("*")) == before


OFFLINE = """
import os, sys, warnings
def refuse(event, args):
    if event.startswith(("socket.", "urllib.")):
        print(event, args, file=sys.stderr, flush=True)
        os._exit(3)
sys.addaudithook(refuse)
warnings.simplefilter("ignore")
import tempfile
from pathlib import Path
import gpn, gpn.data, gpn.plots, gpn.cli, gpn.report
from tests.fuzz import models
folder = Path(tempfile.mkdtemp())
model = models.model("yield")
model.save(folder / "m.gpn")
again = gpn.load(folder / "m.gpn")
gpn.report.write_report(again, models.table(), None, folder / "r.html")
try:
    gpn.data.images("mnist", folder).train
except gpn.data.MissingData as error:
    assert "gpn downloads nothing" in str(error)
print(again.predict(models.table()).shape)
"""


def test_nothing_is_fetched(tmp_path: Path) -> None:
    """Importing, fitting, saving, loading, a report and missing data, with sockets forbidden."""
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "(24, 7)"


def test_a_file_that_is_not_the_official_one_is_refused(tmp_path: Path) -> None:
    """Whoever brings the files: known ones have known checksums."""
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "t10k-images-idx3-ubyte").write_bytes(idx(PIXELS[..., 0]))
    with pytest.raises(DataError, match="must have the md5 2646ac647ad5339dbf082846283269ea, got"):
        _ = images("mnist", tmp_path).test


def test_no_source_could_run_or_fetch_anything() -> None:
    forbidden = {"pickle", "marshal", "shelve", "dill", "urllib", "http", "requests", "socket"}
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names = {(node.module or "").partition(".")[0]}
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                names = {node.func.id} & {"eval", "exec", "compile", "__import__"}
                assert not names, f"{path}: {names}"
            else:
                names = set()
            assert not names & forbidden, f"{path}: {names}"
            is_load = isinstance(node, ast.Attribute) and ast.unparse(node) == "torch.load"
            assert not is_load, path
