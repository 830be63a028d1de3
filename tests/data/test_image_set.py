"""Image sets by name: parts are read once, when asked for."""

from pathlib import Path

import numpy as np
import pytest

from gpn.data import DataError, MissingData, images

PIXELS = np.zeros((2, 4, 4), dtype=np.uint8)


def test_a_part_is_read_when_asked_for_and_then_kept(tmp_path: Path) -> None:
    own = images("own", tmp_path)
    np.savez(tmp_path / "own.npz", x_train=PIXELS, x_test=PIXELS + 1)
    first = own.train
    (tmp_path / "own.npz").unlink()
    assert own.train is first
    with pytest.raises(MissingData):
        _ = own.test


def test_an_unknown_name_says_which_are_known_and_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="mnist, fashion-mnist, kmnist, cifar10, svhn") as caught:
        _ = images("minst", tmp_path).train
    assert str(tmp_path / "minst.npz") in str(caught.value)


@pytest.mark.parametrize("name", ["", "../own", "a/b", "..", ".own", "a\\b", "own\x00", "own\n"])
def test_a_name_is_no_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="the name of an image set must be"):
        images(name, tmp_path)


def test_the_environment_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "own.npz", x_test=PIXELS)
    monkeypatch.setenv("GPN_DATA", str(tmp_path))
    assert images("own").test.x.shape == (2, 1, 4, 4)


def test_a_file_that_may_not_be_read_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("not yours")

    np.savez(tmp_path / "own.npz", x_test=PIXELS)
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(PermissionError, match="not yours"):
        _ = images("own", tmp_path).test


def test_a_folder_of_that_name_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "own.npz").mkdir()
    with pytest.raises(MissingData):
        _ = images("own", tmp_path).test
