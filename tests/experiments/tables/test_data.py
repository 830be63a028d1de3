"""Tables, their splits, and what is refused."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from experiments.tables.data import Table, read_table, table_names
from gpn.data import DataError


def test_a_split_tests_its_fold_and_fits_the_rest(write_table: Callable[..., Path]) -> None:
    table = read_table("line", write_table(n=50))
    split = table.split(3)
    assert np.array_equal(split.x_test, table.x[3::10])
    assert len(split.y) + len(split.y_test) == 50
    assert not set(split.y) & set(split.y_test)


@pytest.mark.parametrize(("rows", "splits"), [(4_999, 5), (5_000, 2)])
def test_large_tables_have_two_splits(rows: int, splits: int) -> None:
    column = np.zeros(rows)
    table = Table("any", column[:, None], column, column.astype(int))
    assert list(table.splits) == list(range(splits))


def test_the_folder_is_that_of_every_experiment(
    write_table: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_table("first")
    write_table("second")
    monkeypatch.setenv("GPN_DATA", str(folder.parent))
    assert table_names() == table_names(folder) == ["first", "second"]


def test_what_is_missing_or_broken_is_named(write_table: Callable[..., Path]) -> None:
    folder = write_table("line")
    with pytest.raises(DataError, match="one of line, got other"):
        read_table("other", folder)
    with pytest.raises(DataError, match="got no such file; name their folder with --tables"):
        table_names(folder / "nothing")
    np.savez(folder / "broken.npz", x=np.zeros((2, 2)))
    with pytest.raises(DataError, match="must hold numbers x, y and fold"):
        read_table("broken", folder)
