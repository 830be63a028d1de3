"""UCI Superconductivity: the table, its zip, and what is wrong on which line."""

import dataclasses
import hashlib
import zipfile
from pathlib import Path

import pytest
import torch

from gpn.data import DataError, MissingData, superconductivity, tables

NAMES = [*tables.COLUMNS, "critical_temp"]
OTHER_MD5 = "ignore:train.csv in:UserWarning"


def lines(n: int = 3) -> list[str]:
    numbers = [[f"{row}.{column:02d}" for column in range(82)] for row in range(n)]
    return [",".join(cells) for cells in [NAMES, *numbers]]


def write(folder: Path, rows: list[str], end: str = "\n") -> Path:
    path = folder / "superconductivity" / "train.csv"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes("".join(row + end for row in rows).encode())
    return path


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "ROWS", 3)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's own file is a known release."""
    content = "".join(row + "\n" for row in lines()).encode()
    files = {"train.csv": (hashlib.md5(content).hexdigest(),)}
    source = dataclasses.replace(tables.SUPERCONDUCTIVITY, files=files)
    monkeypatch.setattr(tables, "SUPERCONDUCTIVITY", source)


def check(table: tables.Table) -> None:
    wanted = torch.arange(3)[:, None] + torch.arange(82, dtype=torch.float64) / 100
    torch.testing.assert_close(table.x, wanted[:, :81], rtol=0, atol=1e-14)
    torch.testing.assert_close(table.y, wanted[:, 81], rtol=0, atol=1e-14)
    assert table.columns == tuple(NAMES[:81])


def test_the_columns_are_81_and_named_as_published() -> None:
    assert len(tables.COLUMNS) == len(set(tables.COLUMNS)) == 81
    assert tables.COLUMNS[:4] == (
        "number_of_elements",
        "mean_atomic_mass",
        "wtd_mean_atomic_mass",
        "gmean_atomic_mass",
    )
    assert tables.COLUMNS[-3:] == ("wtd_range_Valence", "std_Valence", "wtd_std_Valence")


@pytest.mark.usefixtures("known")
def test_a_known_release_reads_without_a_warning(tmp_path: Path) -> None:
    write(tmp_path, lines())
    check(superconductivity(tmp_path))


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("name", ["superconductivty+data.zip", "other.zip"])
@pytest.mark.parametrize("member", ["train.csv", "data/train.csv"])
def test_a_zip_that_holds_the_table_reads_alike(tmp_path: Path, name: str, member: str) -> None:
    path = write(tmp_path, lines())
    with zipfile.ZipFile(path.parent / "a.zip", "w") as empty:
        empty.writestr("unique_m.csv", "nothing")
    with zipfile.ZipFile(path.parent / name, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, path.read_bytes())
    path.unlink()
    check(superconductivity(tmp_path))


@pytest.mark.usefixtures("known")
def test_the_official_zip_is_found_in_the_data_folder_itself(tmp_path: Path) -> None:
    path = write(tmp_path, lines())
    with zipfile.ZipFile(tmp_path / "superconductivty+data.zip", "w") as archive:
        archive.writestr("train.csv", path.read_bytes())
    path.unlink()
    check(superconductivity(tmp_path))


@pytest.mark.usefixtures("known")
def test_a_broken_zip_next_to_the_right_one_does_not_matter(tmp_path: Path) -> None:
    path = write(tmp_path, lines())
    (path.parent / "a.zip").write_bytes(b"PK no zip at all")
    with zipfile.ZipFile(path.parent / "b.zip", "w") as archive:
        archive.writestr("train.csv", path.read_bytes())
    path.unlink()
    check(superconductivity(tmp_path))
    (path.parent / "b.zip").unlink()
    with pytest.raises(DataError, match=r"a\.zip must be a complete file"):
        superconductivity(tmp_path)


@pytest.mark.filterwarnings(OTHER_MD5)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n \n"])
def test_blank_lines_at_the_end_are_no_rows(tmp_path: Path, end: str) -> None:
    path = write(tmp_path, lines())
    path.write_bytes(path.read_bytes() + end.encode())
    check(superconductivity(tmp_path))


def test_another_release_reads_with_a_warning(tmp_path: Path) -> None:
    path = write(tmp_path, lines(), end="\r\n")
    found = hashlib.md5(path.read_bytes()).hexdigest()
    with pytest.warns(UserWarning, match=f"{found}, not 2d20658.*or values were changed") as caught:
        check(superconductivity(tmp_path))
    assert caught[0].filename == __file__


def test_a_missing_table_says_whence_on_which_terms_and_where(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"uci\.edu.*CC BY 4\.0") as caught:
        superconductivity(tmp_path)
    for place in ("train.csv", "superconductivty+data.zip"):
        assert str(tmp_path / "superconductivity" / place) in str(caught.value)


def changed(line: int, old: str, new: str) -> list[str]:
    made = lines()
    assert old in made[line]
    return [*made[:line], made[line].replace(old, new), *made[line + 1 :]]


@pytest.mark.filterwarnings(OTHER_MD5)
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "line 1 must name 82 columns, got 0"),
        (lines()[:1], "3 rows below the names, got 0"),
        (lines(2), "3 rows below the names, got 2"),
        (lines(4), "3 rows below the names, got 4"),
        (changed(0, "critical_temp", "temp"), "column 82 'critical_temp', got 'temp'"),
        (changed(0, ",mean_fie", ""), "82 columns, got 81"),
        (changed(2, "1.07", "warm"), "string 'warm' to float64 at row 1, column 8"),
        (changed(2, "1.07", ""), "string '' to float64 at row 1, column 8"),
        (changed(3, "2.81", "nan"), "must be finite, got NaN or infinity in line 4"),
        (changed(1, "0.00", "inf"), "must be finite, got NaN or infinity in line 2"),
        (changed(2, "1.07,", ""), "number of columns changed from 82 to 81"),
        ([*lines()[:2], "", *lines()[2:]], "3 rows below the names, got 4"),
        ([*lines()[:2], "", *lines()[3:]], "82 numbers in each row, got"),
        (changed(2, "1.07", "x" * 200_000), "train.csv"),
        (changed(2, "1.07", "\x00"), "train.csv"),
    ],
    ids=[
        *("empty", "names only", "fewer", "more", "renamed", "column gone", "word", "blank cell"),
        *("nan", "inf", "cell gone", "blank line more", "blank line", "giant cell", "nul"),
    ],
)
def test_a_wrong_table_is_refused_with_the_reason(
    tmp_path: Path, rows: list[str], message: str
) -> None:
    write(tmp_path, rows)
    with pytest.raises(DataError, match=message) as caught:
        superconductivity(tmp_path)
    assert len(str(caught.value)) < 1000


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    write(tmp_path, lines()).write_bytes(b"\xff\xfe\x00" * 100)
    with pytest.raises(DataError, match="UnicodeDecodeError"):
        superconductivity(tmp_path)


@pytest.mark.filterwarnings(OTHER_MD5)
def test_a_truncated_table_or_zip_is_a_data_error_wherever_it_ends(tmp_path: Path) -> None:
    path = write(tmp_path, lines())
    whole = path.read_bytes()
    for end in range(0, len(whole) - 5, 53):
        path.write_bytes(whole[:end])
        with pytest.raises(DataError, match=r"train\.csv"):
            superconductivity(tmp_path)
    path.unlink()
    zipped = path.parent / "data.zip"
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("train.csv", whole)
    packed = zipped.read_bytes()
    for end in range(0, len(packed), 31):
        zipped.write_bytes(packed[:end])
        with pytest.raises(DataError, match=r"data\.zip"):
            superconductivity(tmp_path)


@pytest.mark.parametrize(
    ("method", "message"),
    [(zipfile.ZIP_DEFLATED, "at most 1048576 bytes"), (zipfile.ZIP_BZIP2, "stored or deflated")],
)
def test_a_zip_bomb_is_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: int, message: str
) -> None:
    monkeypatch.setattr("gpn.data.safe_read.MAX_ARRAY_BYTES", 1 << 20)
    (tmp_path / "superconductivity").mkdir()
    with zipfile.ZipFile(tmp_path / "superconductivity" / "b.zip", "w", method) as archive:
        archive.writestr("train.csv", bytes(2 << 20))
    with pytest.raises(DataError, match=message):
        superconductivity(tmp_path)
