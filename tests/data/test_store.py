"""Where files are looked for, and errors for missing and unofficial ones."""

import subprocess
import sys
from pathlib import Path

import pytest

from gpn.data import DataError, MissingData, Source, data_folder
from gpn.data.store import check_md5, find, locate

MOON = Source(
    "moon",
    "https://moon.example/data",
    "CC BY 9.0",
    "lunar",
    {"rocks.bin": ("a1", "b2")},
    ("", ".gz"),
)


def test_the_argument_beats_the_environment_beats_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GPN_DATA", str(tmp_path / "env"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert data_folder(tmp_path / "given") == tmp_path / "given"
    assert data_folder() == tmp_path / "env"
    monkeypatch.setenv("GPN_DATA", "")
    assert data_folder() == tmp_path / "xdg" / "gpn"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_folder() == tmp_path / ".cache" / "gpn"
    assert data_folder("~/mine") == tmp_path / "mine"


def test_a_missing_file_says_what_whence_on_which_terms_and_where(tmp_path: Path) -> None:
    with pytest.raises(MissingData) as caught:
        locate(MOON, "rocks.bin", tmp_path)
    message = str(caught.value)
    place = tmp_path / "lunar" / "rocks.bin"
    for part in ("rocks.bin of moon", MOON.address, MOON.licence, str(place), f"{place}.gz"):
        assert part in message
    assert isinstance(caught.value, FileNotFoundError)
    assert isinstance(caught.value, DataError)


def test_the_plain_file_is_preferred_to_the_gzipped_one(tmp_path: Path) -> None:
    (tmp_path / "lunar").mkdir()
    packed, plain = tmp_path / "lunar" / "rocks.bin.gz", tmp_path / "lunar" / "rocks.bin"
    packed.touch()
    assert locate(MOON, "rocks.bin", tmp_path) == packed
    plain.touch()
    assert locate(MOON, "rocks.bin", tmp_path) == plain


def test_a_path_that_cannot_be_looked_up_is_a_data_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError, match=r"x{300}/lunar/rocks\.bin must be.*too long"):
        find(MOON, "rocks.bin", tmp_path / ("x" * 300))

    def closed(self: Path, **how: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "stat", closed)
    with pytest.raises(DataError, match=r"lunar/rocks\.bin must be.*Permission denied.*GPN_DATA"):
        find(MOON, "rocks.bin", tmp_path)


def test_a_folder_is_no_file_and_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "lunar" / "rocks.bin").mkdir(parents=True)
    assert find(MOON, "rocks.bin", tmp_path) is None
    (tmp_path / "file").touch()
    assert find(MOON, "rocks.bin", tmp_path / "file") is None


def test_any_known_release_passes_and_others_say_what_was_expected() -> None:
    check_md5(MOON, "rocks.bin", Path("here"), "b2")
    with pytest.raises(DataError, match=r"a1 or b2, got c3.*https://moon\.example"):
        check_md5(MOON, "rocks.bin", Path("here"), "c3")


def test_importing_the_readers_does_not_import_scipy_io() -> None:
    code = "import sys, gpn.data; sys.exit('scipy.io' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
