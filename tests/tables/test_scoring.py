"""`score_table` writes what `predict` says of every chunk, whatever the cells are like."""

import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpn.columns.arrow import plain_inputs
from gpn.columns.column_types import TableError
from gpn.tables import chunks, files, scoring
from gpn.tables.chunks import ahead, behind
from gpn.tables.model import TableModel, fit_table
from gpn.tables.scoring import score_table
from tests.cli.command import rows

CHUNK = 25


@pytest.fixture(scope="module")
def model() -> TableModel:
    labeled = rows(120).drop(columns="grade").assign(site="north")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit_table(labeled, "yield", mean=None, random_state=0, device="cpu")


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "CHUNK_ROWS", CHUNK)


def table() -> pd.DataFrame:
    new = rows(110, 5).drop(columns=["grade", "yield"])
    new.insert(0, "name", [f"row {i}" for i in range(110)])
    return new.assign(site="north", count=np.arange(110), ok=np.arange(110) % 2 == 0)


def plain(new: pd.DataFrame) -> pd.DataFrame:
    return new


def with_gaps(new: pd.DataFrame) -> pd.DataFrame:
    new.loc[30:35, "heat"] = np.nan
    new.loc[40:60, "size"] = np.nan
    new.loc[70, "name"] = None
    return new


def with_new_values(new: pd.DataFrame) -> pd.DataFrame:
    new.loc[50:, "colour"] = "violet"
    new.loc[90:, "site"] = "south"
    return new


def with_quotes(new: pd.DataFrame) -> pd.DataFrame:
    new.loc[60, "name"] = 'a, "b"\nc'
    return new


def with_own_predictions(new: pd.DataFrame) -> pd.DataFrame:
    return new.assign(mean=1.5)


def far_away(new: pd.DataFrame) -> pd.DataFrame:
    new["size"] *= 1e6
    return new.assign(heat=new["heat"].astype(np.float32))


CASES = (plain, with_gaps, with_new_values, with_quotes, with_own_predictions, far_away)


def by_frames(model: TableModel, source: Path, out: Path, **options: Any) -> int:
    return files.map_table(
        source,
        out,
        model.predict,
        model.encoder,
        append=True,
        on_rows=lambda count: None,
        **options,
    )


def said(work: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work()
    return sorted(str(each.message) for each in caught)


@pytest.mark.parametrize("change", CASES)
@pytest.mark.parametrize("ends", ["csv csv", "parquet parquet", "csv parquet", "parquet csv.gz"])
def test_files_and_warnings_are_those_of_frames(
    change: Callable[[pd.DataFrame], pd.DataFrame], ends: str, model: TableModel, tmp_path: Path
) -> None:
    first, last = ends.split()
    source, new = tmp_path / f"new.{first}", change(table())
    new.to_csv(source, index=False) if first == "csv" else new.to_parquet(source, index=False)
    fast, slow = (tmp_path / f"{name}.{last}" for name in ("fast", "slow"))
    counts: list[scoring.Counts] = []
    told = said(lambda: counts.append(score_table(model, source, fast)))
    assert told == said(lambda: by_frames(model, source, slow))
    read = pd.read_parquet if last == "parquet" else pd.read_csv
    pd.testing.assert_frame_equal(read(fast), read(slow), rtol=1e-9)
    assert counts[0] == (
        110,
        int(read(slow)["is_ood"].sum()),
        60 if change is with_new_values else 0,
    )


LINES = {
    "semicolons": lambda text: text.replace(",", ";"),
    "carriage returns": lambda text: text.replace("\n", "\r\n"),
    "blank lines": lambda text: text.replace("\n", "\n\n"),
    "no end of line": lambda text: text.rstrip("\n"),
    "spaces": lambda text: text.replace(",0.", ", 0."),
    "missing in words": lambda text: text.replace(",red,", ",NA,").replace(",true", ",null"),
    "a byte order mark": lambda text: "\ufeff" + text,
    "a short row": lambda text: text + "row x,0.5\n",
}


@pytest.mark.parametrize("kind", LINES)
def test_lines_of_any_kind_are_read_as_pandas_reads_them(
    kind: str, model: TableModel, tmp_path: Path
) -> None:
    text = LINES[kind](table().to_csv(index=False))
    (tmp_path / "new.csv").write_bytes(text.encode())
    said(lambda: score_table(model, tmp_path / "new.csv", tmp_path / "fast.csv"))
    said(lambda: by_frames(model, tmp_path / "new.csv", tmp_path / "slow.csv"))
    fast, slow = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("fast", "slow"))
    pd.testing.assert_frame_equal(fast, slow, rtol=1e-9)


BAD = {
    "a word": (
        "5,300,red",
        "tall,300,red",
        r"'size' must hold finite numbers, got 'tall' in row 77",
    ),
    "infinity": ("5,300,red", "inf,300,red", r"'size' must hold finite numbers, got inf in row 77"),
    "too many cells": (
        "5,300,red",
        "5,300,red,1",
        r"the 3 cells of its first line, got 4 in line 79",
    ),
    "another encoding": ("5,300,red", "5,300,r\udce9d", "must be a complete CSV file"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_cell_is_named_as_before_and_nothing_is_written(
    kind: str, model: TableModel, tmp_path: Path
) -> None:
    good, bad, message = BAD[kind]
    lines = ["size,heat,colour", *[good] * 77, bad, *[good] * 30]
    text = "\n".join(lines).encode("utf-8", "surrogateescape")
    if kind == "another encoding":  # beyond what a first look at the file sees
        message = "must be a complete CSV file in one encoding, got"
    (tmp_path / "new.csv").write_bytes(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "SNIFFED_BYTES", 200)
        with pytest.raises(TableError, match=message):
            score_table(model, tmp_path / "new.csv", tmp_path / "o.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]


def test_an_index_of_pandas_is_left_out_of_parquet(model: TableModel, tmp_path: Path) -> None:
    table().set_index("name").to_parquet(tmp_path / "new.parquet")
    score_table(model, tmp_path / "new.parquet", tmp_path / "fast.parquet")
    by_frames(model, tmp_path / "new.parquet", tmp_path / "slow.parquet")
    fast, slow = (pd.read_parquet(tmp_path / f"{name}.parquet") for name in ("fast", "slow"))
    assert "name" not in fast
    pd.testing.assert_frame_equal(fast, slow, rtol=1e-9)


def test_texts_of_numbers_come_out_as_they_went_in(model: TableModel, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("size,heat,colour,id\n0.500,3e2,red,007\n0.25,300,red,8\n")
    score_table(model, tmp_path / "new.csv", tmp_path / "o.csv")
    assert (tmp_path / "o.csv").read_text().splitlines()[1].startswith("0.500,3e2,red,007,")


def test_plain_tables_never_become_frames(
    model: TableModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table().to_csv(tmp_path / "new.csv", index=False)

    def refuse(self: chunks.Chunk) -> pd.DataFrame:
        raise AssertionError("a plain chunk must stay Arrow")

    monkeypatch.setattr(chunks.Chunk, "frame", refuse)
    assert score_table(model, tmp_path / "new.csv", tmp_path / "o.csv").rows == 110


def test_plain_inputs_are_those_of_the_encoder(model: TableModel) -> None:
    import pyarrow as pa

    new = with_gaps(table())
    found = plain_inputs(model.encoder, pa.table(new[:30]), of_csv=False)
    assert found is not None
    np.testing.assert_array_equal(found[0], model.encoder.transform(new[:30]))
    assert not found[1].any()
    assert plain_inputs(model.encoder, pa.table(new.drop(columns="size")), of_csv=False) is None
    dated = pa.table(new.assign(size=pd.Timestamp("2024-01-01")))
    assert plain_inputs(model.encoder, dated, of_csv=False) is None


def test_what_is_read_ahead_and_written_behind_keeps_its_order() -> None:
    names: list[str] = []
    written: list[int] = []

    def numbers() -> Any:
        for i in range(20):
            names.append(threading.current_thread().name)
            yield i

    with behind() as write:
        for number in ahead(numbers()):
            write(written.append, number)
    assert written == list(range(20))
    assert names[0] == threading.main_thread().name
    assert set(names[1:]) != {threading.main_thread().name}


def test_an_error_of_either_thread_is_raised() -> None:
    def broken() -> Any:
        yield 1
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        list(ahead(broken()))

    def refuse(number: int) -> None:
        raise OSError("disk full")

    def write_ten() -> None:
        with behind() as write:
            for number in range(10):
                write(refuse, number)

    with pytest.raises(OSError, match="disk full"):
        write_ten()
