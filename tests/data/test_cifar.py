"""CIFAR-10: the folder and the archive give the same images, and both must be official."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

from gpn.data import DataError, ImagePart, MissingData, images

BATCHES = [f"data_batch_{i}.bin" for i in range(1, 6)]


def rows(seed: int, n: int = 2) -> np.ndarray:
    made = np.random.default_rng(seed).integers(0, 256, (n, 3073), dtype=np.uint8)
    made[:, 0] %= 10
    return made


TRAIN = {name: rows(seed).tobytes() for seed, name in enumerate(BATCHES)}
ALL = TRAIN | {"test_batch.bin": rows(9).tobytes()}


def regular(name: str, content: bytes) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    return member, content


def write_tar(folder: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    path = folder / "cifar-10-binary.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for member, content in members:
            tar.addfile(member, io.BytesIO(content))
    return path


def write_folder(folder: Path, files: dict[str, bytes]) -> None:
    (folder / "cifar-10-batches-bin").mkdir()
    for name, content in files.items():
        (folder / "cifar-10-batches-bin" / name).write_bytes(content)


def archived(files: dict[str, bytes]) -> list[tuple[tarfile.TarInfo, bytes]]:
    return [regular(f"cifar-10-batches-bin/{name}", files[name]) for name in sorted(files)[::-1]]


def check_train(part: ImagePart) -> None:
    """Images and labels in the order of the batches, red before green before blue."""
    wanted = np.concatenate([rows(seed) for seed in range(5)])
    assert torch.equal(part.x, torch.from_numpy(wanted[:, 1:].reshape(10, 3, 32, 32).copy()))
    assert part.x.is_contiguous()
    assert part.y is not None
    assert part.y.tolist() == wanted[:, 0].tolist()


@pytest.mark.usefixtures("unchecked")
def test_the_folder_reads(tmp_path: Path) -> None:
    write_folder(tmp_path, ALL)
    check_train(images("cifar10", tmp_path).train)
    assert images("cifar10", tmp_path).test.x.shape == (2, 3, 32, 32)


@pytest.mark.usefixtures("unchecked")
def test_the_archive_reads_alike_and_nothing_is_extracted(tmp_path: Path) -> None:
    readme = regular("cifar-10-batches-bin/readme.html", b"hello")
    write_tar(tmp_path, [readme, *archived(ALL)])
    check_train(images("cifar10", tmp_path).train)
    assert images("cifar10", tmp_path).test.x.shape == (2, 3, 32, 32)
    assert [path.name for path in tmp_path.iterdir()] == ["cifar-10-binary.tar.gz"]


@pytest.mark.usefixtures("unchecked")
def test_the_archive_stands_in_for_an_incomplete_folder(tmp_path: Path) -> None:
    write_folder(tmp_path, {"data_batch_1.bin": TRAIN["data_batch_1.bin"]})
    with pytest.raises(MissingData, match=r"data_batch_2\.bin.*cifar-10-binary\.tar\.gz.*~kriz"):
        _ = images("cifar10", tmp_path).train
    write_tar(tmp_path, archived(ALL))
    check_train(images("cifar10", tmp_path).train)


def test_official_checksums_are_checked(tmp_path: Path) -> None:
    write_folder(tmp_path, ALL)
    with pytest.raises(DataError, match=r"test_batch.*803d5f7f4d78ea53de84dbe85f74fb6d, got"):
        _ = images("cifar10", tmp_path).test


def test_only_the_official_archive_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tar(tmp_path, archived(ALL))
    monkeypatch.setattr("tarfile.open", lambda *_, **__: pytest.fail("opened"))
    with pytest.raises(DataError, match="c32a1d4ab5d03f1284b67883e8d87530, got"):
        _ = images("cifar10", tmp_path).test


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "whole rows"),
        (ALL["test_batch.bin"][:-1], "whole rows of 3073 bytes, got 6145"),
        (b"\x0a" + ALL["test_batch.bin"][1:], "labels must be below 10, got 10"),
    ],
    ids=["empty", "truncated", "label"],
)
def test_a_batch_must_be_whole_rows_of_ten_classes(
    tmp_path: Path, content: bytes, message: str
) -> None:
    write_folder(tmp_path, {"test_batch.bin": content})
    with pytest.raises(DataError, match=message):
        _ = images("cifar10", tmp_path).test


@pytest.mark.usefixtures("unchecked")
def test_a_truncated_archive_is_a_data_error_wherever_it_ends(tmp_path: Path) -> None:
    path = write_tar(tmp_path, archived(TRAIN))
    whole = path.read_bytes()
    for end in [0, 1, 9, 10, 11, 200, *range(1000, len(whole) - 2000, 1999)]:
        path.write_bytes(whole[:end])
        with pytest.raises(DataError, match=r"cifar-10-binary\.tar\.gz.*get it again"):
            _ = images("cifar10", tmp_path).train
