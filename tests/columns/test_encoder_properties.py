"""What holds for whatever table comes: any names, kinds, gaps and alphabets."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import tests.robustness.test_properties  # noqa: F401 (the profile)
from gpn.columns.column_types import TableError, canonical
from gpn.columns.encoder import TableEncoder
from gpn.tables import files

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES: dict[str, Any] = {
    "floats": st.none() | st.floats(-1e9, 1e9),
    "whole": st.integers(-(2**53), 2**53),
    "Int64": st.none() | st.integers(-(2**53), 2**53),
    "bools": st.booleans(),
    "texts": st.none() | TEXT,
    "dates": st.none() | st.datetimes(pd.Timestamp("1990-01-01"), pd.Timestamp("2030-01-01")),
    "category": st.none() | st.sampled_from(["red", "grün", "", "nan", "(missing)"]),
}
ANY_NAME = TEXT | st.integers()
DTYPES = {"Int64": "Int64", "category": "category"}


@st.composite
def tables(draw: st.DrawFn, names: Any = ANY_NAME) -> pd.DataFrame:
    """One to four columns of any kind under names of any kind, and a target."""
    n = draw(st.integers(1, 6))
    chosen = draw(st.lists(names, min_size=1, max_size=4, unique_by=str))
    assume(all(str(name) != "y" and not str(name).startswith("Unnamed: ") for name in chosen))
    made = {}
    for name in chosen:
        kind = draw(st.sampled_from(sorted(VALUES)))
        values = draw(st.lists(VALUES[kind], min_size=n, max_size=n))
        assume(any(value is not None for value in values))
        made[name] = pd.Series(values, dtype=DTYPES.get(kind))
    return pd.DataFrame({**made, "y": np.arange(float(n))})


@given(tables())
def test_a_row_is_finite_numbers_of_fixed_width(table: pd.DataFrame) -> None:
    columns = TableEncoder.fit(table, "y")
    x = columns.transform(table)
    numbers = len(columns.medians)
    assert x.shape == (len(table), numbers + sum(map(len, columns.categories.values())))
    assert np.isfinite(x).all()
    for place, name in enumerate(columns.medians):
        values = table.rename(columns=str)[name]
        if name in columns.times:
            values = (values - pd.Timestamp(0)).dt.total_seconds()
        wanted = values.astype("float64").fillna(columns.medians[name])
        np.testing.assert_array_equal(x[:, place], wanted)
    known = x[:, numbers:]
    assert set(np.unique(known)) <= {0.0, 1.0}
    assert (known.sum(1) == len(columns.categories)).all(), "each category is one of the known"


@given(tables(), st.randoms(use_true_random=False))
def test_the_order_of_rows_and_columns_and_other_columns_do_not_matter(
    table: pd.DataFrame, chance: Any
) -> None:
    columns = TableEncoder.fit(table, "y")
    x = columns.transform(table)
    rows, names = list(range(len(table))), list(table.columns)
    chance.shuffle(rows), chance.shuffle(names)
    np.testing.assert_array_equal(columns.transform(table.iloc[rows]), x[rows])
    np.testing.assert_array_equal(columns.transform(table[names]), x)
    more = table.assign(**{"something else entirely": 1})
    np.testing.assert_array_equal(columns.transform(more), x)
    np.testing.assert_array_equal(columns.transform(table.head(1)), x[:1])


@given(tables())
def test_what_was_learnt_survives_json(table: pd.DataFrame) -> None:
    columns = TableEncoder.fit(table, "y")
    again = TableEncoder.from_dict(json.loads(json.dumps(columns.to_dict())))
    assert again == columns
    np.testing.assert_array_equal(again.transform(table), columns.transform(table))


@pytest.mark.filterwarnings("ignore::gpn.columns.encoder.UnseenWarning")
@given(tables(), TEXT)
def test_a_category_that_was_never_seen_is_none_of_the_others(
    table: pd.DataFrame, word: str
) -> None:
    columns = TableEncoder.fit(table, "y")
    for name, values in columns.categories.items():
        assume(canonical(word) not in map(canonical, values))
        new = table.rename(columns=str).astype({name: object})
        new[name] = word
        start = len(columns.medians)
        for other, theirs in columns.categories.items():
            if other == name:
                assert columns.transform(new)[:, start : start + len(theirs)].sum() == 0
            start += len(theirs)


NAMES = st.from_regex(r"[a-x]\w{0,5}", fullmatch=True).filter(str.isascii)


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet"])
def test_files_give_back_the_numbers_and_words_that_were_written(
    kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("tables") / f"table.{kind}"

    @given(tables(NAMES), st.integers(1, 7))
    def round_trip(table: pd.DataFrame, rows: int) -> None:
        plain = table.select_dtypes("number").astype("float64")
        words = pd.Series([f"w{i % 3}" for i in range(len(table))], name="word")
        written = pd.concat([plain, words], axis=1)
        if kind == "parquet":
            written.to_parquet(path, index=False)
        else:
            written.to_csv(path, index=False)
        read = files.read_table(path)
        chunks = pd.concat(list(files.read_chunks(path, ["word"], rows)), ignore_index=True)
        for back in (read, chunks):
            assert back.columns.tolist() == written.columns.tolist()
            assert back["word"].tolist() == words.tolist()
            np.testing.assert_array_equal(back[plain.columns].to_numpy(float), plain)

    round_trip()


@given(st.integers(), st.integers(1, 5))
def test_names_that_read_alike_are_refused(name: int, n: int) -> None:
    table = pd.DataFrame({name: range(n), str(name): range(n), "y": range(n)})
    with pytest.raises(TableError, match=f"column names must differ, got '{name}' twice"):
        TableEncoder.fit(table, "y")


@pytest.mark.parametrize("rows", [0, 1])
def test_an_empty_table_is_refused_and_one_row_is_not(rows: int) -> None:
    table = pd.DataFrame({"a": [1.0], "b": ["x"], "y": [2.0]}).head(rows)
    if rows:
        assert TableEncoder.fit(table, "y").transform(table).tolist() == [[1.0, 1.0]]
        return
    with pytest.raises(TableError, match="at least one row, got none"):
        TableEncoder.fit(table, "y")
