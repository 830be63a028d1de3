"""Image sets and the official table: idx, CIFAR-10, SVHN, npz, Superconductivity."""

import dataclasses
import gzip
import io
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from hashlib import md5
from pathlib import Path
from typing import Any

import numpy as np
from scipy.io import savemat

from gpn.data import image_set, images, superconductivity, tables
from tests.fuzz import formats
from tests.fuzz.mutate import mutated
from tests.fuzz.reader import Reader

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
LABELS = np.array([7, 2, 1], dtype=np.uint8)


def readers(folder: Path) -> Iterator[Reader]:
    """Every reader of `gpn.data`, without the checksums that no damaged file would pass.

    MATLAB files and CIFAR's archive keep theirs, with those of the seeds as official ones: nothing
    else is parsed.
    """
    known = tuple(md5(seed).hexdigest() for seed in [*MATS, TAR])
    for name, (source, read) in image_set.OFFICIAL.items():
        checked = {
            file: known if file.endswith((".mat", ".tar.gz")) else () for file in source.files
        }
        image_set.OFFICIAL[name] = dataclasses.replace(source, files=checked), read
    tables.ROWS = 3
    yield from _idx(folder)
    yield from _cifar(folder)
    yield from _others(folder)
    yield from _table(folder)


def whole(name: str, folder: Path) -> Callable[[], Any]:
    return lambda: images(name, folder).test


def idx(array: Any) -> bytes:
    return struct.pack(f">{1 + array.ndim}I", 0x0800 + array.ndim, *array.shape) + array.tobytes()


def batch() -> bytes:
    """One row of CIFAR-10: a label, and the pixels channel by channel."""
    return bytes([3]) + PIXELS[0].transpose(2, 0, 1).tobytes()


def tar(content: bytes, name: str = "cifar-10-batches-bin/test_batch.bin") -> bytes:
    member, made = tarfile.TarInfo(name), io.BytesIO()
    member.size = len(content)
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        archive.addfile(member, io.BytesIO(content))
    return made.getvalue()


def mat(*, compressed: bool) -> bytes:
    made = io.BytesIO()
    arrays = {"X": PIXELS.transpose(1, 2, 3, 0), "y": LABELS[:, None]}
    savemat(made, arrays, do_compression=compressed)
    return made.getvalue()


TAR = tar(batch())
MATS = [mat(compressed=False), mat(compressed=True)]


def npz(save: Callable[..., None], **arrays: Any) -> bytes:
    made = io.BytesIO()
    save(made, **arrays)
    return made.getvalue()


def _idx(folder: Path) -> Iterator[Reader]:
    images_of, labels_of = idx(PIXELS[..., 0]), idx(LABELS)
    for name in ("plain", "gz", "labels"):
        (folder / name / "mnist").mkdir(parents=True)
    place, packed, labels = (folder / name / "mnist" for name in ("plain", "gz", "labels"))
    file = "t10k-images-idx3-ubyte"
    yield Reader("idx", place / file, [images_of], whole("mnist", folder / "plain"))
    gz = Reader("idx.gz", packed / f"{file}.gz", [gzip.compress(images_of, 1)], lambda: None)
    changes = mutated, formats.gzipped
    yield dataclasses.replace(gz, read=whole("mnist", folder / "gz"), changes=changes)
    (labels / file).write_bytes(images_of)
    path = labels / "t10k-labels-idx1-ubyte"
    yield Reader("idx labels", path, [labels_of], whole("mnist", folder / "labels"))


def _cifar(folder: Path) -> Iterator[Reader]:
    place = folder / "bin" / "cifar-10-batches-bin"
    place.mkdir(parents=True)
    yield Reader(
        "cifar folder", place / "test_batch.bin", [batch()], whole("cifar10", folder / "bin")
    )
    path = folder / "cifar-10-binary.tar.gz"
    yield Reader("cifar tar.gz", path, [TAR], whole("cifar10", folder))


def _others(folder: Path) -> Iterator[Reader]:
    (folder / "svhn").mkdir()
    yield Reader("mat", folder / "svhn" / "test_32x32.mat", MATS, whole("svhn", folder))
    small = {"x_test": PIXELS[:, :5, :4], "y_test": LABELS, "x_train": PIXELS[:1, :2, :2]}
    seeds = [npz(np.savez, **small), npz(np.savez_compressed, **small)]
    changes = mutated, formats.zipped
    yield Reader("npz", folder / "own.npz", seeds, whole("own", folder), changes)


def _table(folder: Path) -> Iterator[Reader]:
    names = ",".join((*tables.COLUMNS, tables.TARGET))
    rows = [",".join(f"{i + j / 100:.2f}" for j in range(82)) for i in range(3)]
    content, packed = "\n".join([names, *rows]).encode(), io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("train.csv", content)
    for name in ("csv", "zip"):
        (folder / name / "superconductivity").mkdir(parents=True)
    for name, file, seed, change in (
        ("csv", "train.csv", content, formats.cells),
        ("zip", "data.zip", packed.getvalue(), formats.zipped),
    ):
        path = folder / name / "superconductivity" / file
        read = superconductivity.__get__(folder / name)  # the function with its folder
        yield Reader(f"superconductivity {name}", path, [seed], read, (mutated, change))
