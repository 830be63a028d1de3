"""Tables in files: what was once misread, or broke with somebody else's error."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import gpn
from gpn.cli.commands import app
from gpn.cli.output import print_result
from gpn.columns.column_types import TableError
from gpn.columns.encoder import TableEncoder
from gpn.tables import files
from tests.fuzz import models


def test_a_first_column_without_a_name_is_not_taken_for_an_index(tmp_path: Path) -> None:
    for rows in ("1,2,3\n4,5,6\n", "0,2,3\n1,5,6\n"):
        (tmp_path / "t.csv").write_text(f"a,b\n{rows}")
        for texts in (None, ()):
            with pytest.raises(TableError, match=r"as many cells as there are names, got .* saw 3"):
                files.read_table(tmp_path / "t.csv", texts)


@pytest.mark.parametrize("end", [1, 5, 12, 30, -1])
def test_a_damaged_gzip_is_named(end: int, tmp_path: Path) -> None:
    whole = gzip.compress(models.table().to_csv().encode())
    (tmp_path / "t.csv.gz").write_bytes(whole[:end])
    with pytest.raises(TableError, match=r"t\.csv\.gz must be a complete CSV file, got"):
        files.read_table(tmp_path / "t.csv.gz")
    (tmp_path / "t.csv.gz").write_bytes(whole[:40] + b"\xff" * 9 + whole[49:])
    with pytest.raises(TableError, match=r"\(error\)|must be a complete CSV file"):
        files.read_table(tmp_path / "t.csv.gz")


def test_columns_of_one_name_in_parquet_are_named(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    twice = pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["a", "a"])
    pq.write_table(twice, tmp_path / "t.parquet")
    with pytest.raises(
        TableError, match=r"column names must differ, got 'a' twice|must be a complete"
    ):
        files.read_table(tmp_path / "t.parquet")


def test_a_bomb_is_refused_whole_and_honest_chunks_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A megabyte is too much for one table, and fine in chunks."""
    monkeypatch.setattr("gpn.data.safe_read.MAX_DECOMPRESSED_BYTES", 1 << 20)
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * (1 << 19)))
    with pytest.raises(TableError, match=r"must decompress to at most 1048576 bytes at a.*plain"):
        files.read_table(path)
    assert sum(map(len, files.read_chunks(path, chunk_rows=20_000))) == 1 << 19
    path.write_bytes(gzip.compress(b"a,b\n" + b"1" * (2 << 20)))
    with pytest.raises(TableError, match="must decompress to at most"):
        list(files.read_chunks(path, chunk_rows=20_000))


def test_names_that_end_in_nul_are_names_of_their_own() -> None:
    """numpy drops a NUL at the end of a text."""
    table = pd.DataFrame({"b\x00": [1.0, 2.0], "b": ["x", "y"], "y": [1.0, 2.0]})
    columns = TableEncoder.fit(table, "y")
    assert columns.transform(table).tolist() == [[1, 1, 0], [2, 0, 1]]


def test_mixed_values_cannot_be_written_to_parquet(tmp_path: Path) -> None:
    mixed = pd.DataFrame({"a": [1, "x", b"y"]})
    with (
        pytest.raises(TableError, match="must hold values of one type"),
        files.table_writer(tmp_path / "o.parquet") as writer,
    ):
        writer.write(mixed)
    assert list(tmp_path.iterdir()) == []


def test_names_that_look_like_markup_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    print_result({"model": "[/b].gpn", "columns": ["'[red]' is a category"]}, as_json=False)
    shown = capsys.readouterr().out
    assert "[/b].gpn" in shown
    assert "[red]" in shown


@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_the_kind_that_is_asked_for_is_checked(kind: str, tmp_path: Path) -> None:
    table = models.table().assign(**{"yield": "much" if kind == "regression" else "same"})
    table.to_csv(tmp_path / "t.csv", index=False)
    command: list[Any] = ["fit", tmp_path / "t.csv", "--target", "yield", "--kind", kind]
    done = CliRunner().invoke(app, [*map(str, command), "--out", f"{tmp_path / 'm'}", "--json"])
    assert done.exit_code == 1
    message = json.loads(done.stderr)["error"]
    assert "must hold finite numbers" in message or "two classes at least" in message
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_a_model_does_not_follow_its_file(tmp_path: Path) -> None:
    """What is loaded is a copy: the file may be overwritten, or cut, while the model is in use."""
    path = tmp_path / "m.gpn"
    models.model("yield").save(path)
    loaded = gpn.load(path)
    before = loaded.predict(models.table())
    path.write_bytes(b"")
    np.testing.assert_array_equal(loaded.predict(models.table()), before)


@pytest.mark.parametrize("end", ["csv", "csv.gz"])
def test_columns_of_one_name_in_csv_are_named(end: str, tmp_path: Path) -> None:
    """pandas renames the second to a.1, which is a name that a table may have itself."""
    pack = gzip.compress if end == "csv.gz" else bytes
    path = tmp_path / f"t.{end}"
    path.write_bytes(pack(b"a,b,a\n1,2,3\n"))
    with pytest.raises(TableError, match="column names must differ, got 'a' twice"):
        files.read_table(path)
    path.write_bytes(pack(b"a,a.1,,\n1,2,3,4\n"))
    assert files.read_table(path).columns.tolist() == ["a", "a.1", "Unnamed: 2", "Unnamed: 3"]


@pytest.mark.parametrize("end", ["csv", "csv.gz"])
def test_codes_with_leading_zeros_are_texts(end: str, tmp_path: Path) -> None:
    path = tmp_path / f"t.{end}"
    table = pd.DataFrame(
        {
            "zip": ["00012", "12345", None],
            "class": ["01", "1", "1"],
            "whole": ["0", "10", "-3"],
            "long": ["9" * 30, "7", None],
            "share": ["0.5", "00.5", "0"],
        }
    )
    table.to_csv(path, index=False)
    read = files.read_table(path)
    assert read["zip"].tolist()[:2] == ["00012", "12345"]
    assert read["zip"].isna().tolist() == [False, False, True]
    assert read["class"].tolist() == ["01", "1", "1"]
    assert read["whole"].tolist() == [0, 10, -3]
    assert read["long"].tolist()[:2] == ["9" * 30, "7"], "a number would lose digits"
    assert read["share"].tolist() == [0.5, 0.5, 0]


@pytest.mark.parametrize(
    ("cells", "text"),
    [
        ([f"{i % 90:05d}" for i in range(300)], True),
        ([f"{i:05d}" for i in range(300)], True),
        ([f"{i % 120:05d}" for i in range(300)], False),
        (["007", *map(str, range(8, 307))], False),
        (["01", "1"] * 150, True),
    ],
    ids=["category", "names", "many", "a stray one", "two of a number"],
)
def test_which_codes_are_texts(cells: list[str], text: bool, tmp_path: Path) -> None:
    """As many as no category can be stay numbers, and one odd cell makes no codes of them."""
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["code", *cells]) + "\n")
    assert (files.read_table(path)["code"].iloc[0] == cells[0]) == text


def test_a_line_with_too_many_cells_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n" + "1,2\n" * 5 + "3,4,5\n")
    with pytest.raises(TableError, match=r"the 2 cells of its first line, got 3 in line 7"):
        files.read_table(tmp_path / "t.csv")
