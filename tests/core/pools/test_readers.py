"""Files of rows: their content, and errors for those that cannot be read."""

import copy
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import gpn
from tests.core.pools.test_disk import npy, parquet, seeded, table


@pytest.mark.parametrize("dtype", ["<i2", ">f8", "<f2", "<u4", "|b1"])
def test_other_numbers_are_widened(dtype: str, tmp_path: Path) -> None:
    rows = np.array([[0, 1], [1, 0], [1, 1]]).astype(dtype)
    pool = gpn.DiskPool(npy(tmp_path / "x.npy", rows))
    read = pool.read(torch.tensor([2, 0, 0]))
    np.testing.assert_array_equal(read.double().numpy(), rows[[2, 0, 0]].astype(float))
    assert pool.draw(2, seeded()).dtype in (torch.float32, torch.float64)


def test_columns_are_chosen_and_ordered(tmp_path: Path) -> None:
    rows = table(20)
    pool = gpn.DiskPool(parquet(tmp_path / "x.parquet", rows), columns=["c", "a"])
    np.testing.assert_array_equal(pool.read(torch.arange(20)).numpy(), rows[:, [2, 0]])


def test_images_stay_whole(tmp_path: Path) -> None:
    rows = np.arange(4 * 2 * 3 * 3, dtype=np.float32).reshape(4, 2, 3, 3)
    pool = gpn.DiskPool(npy(tmp_path / "x.npy", rows))
    np.testing.assert_array_equal(pool.read(torch.tensor([3, 1])).numpy(), rows[[3, 1]])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda pool: pickle.loads(pickle.dumps(pool))])
def test_a_copy_reads_the_same_file(copied: Any, tmp_path: Path) -> None:
    rows = table(20)
    pool = gpn.DiskPool(npy(tmp_path / "x.npy", rows))
    other = copied(pool)
    del pool
    with open(npy(tmp_path / "y.npy", rows + 1), "rb"):  # would take the number of a closed one
        np.testing.assert_array_equal(other.read(torch.arange(20)).numpy(), rows)


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_pages_of_a_mapped_array_are_let_go_and_a_private_change_is_kept(
    mode: Any, tmp_path: Path
) -> None:
    rows = table(40_000)
    array = np.load(npy(tmp_path / "x.npy", rows), mmap_mode=mode)
    if mode != "r":
        array[7], rows[7] = 5.0, 5.0
    pool = gpn.DiskPool(array[3:])
    for _ in range(2):
        np.testing.assert_array_equal(pool.read(torch.arange(39_997)).numpy(), rows[3:])
    if sys.platform == "linux" and mode == "r":
        maps = Path("/proc/self/smaps").read_text().split("x.npy")[1]
        assert int(maps.split("Rss:")[1].split()[0]) < rows.nbytes / 1024 / 4


def test_a_view_of_a_private_map_keeps_what_was_written(tmp_path: Path) -> None:
    """Its mode is not known, and pages that are let go would come back as the file has them."""
    array = np.load(npy(tmp_path / "x.npy", table(20)), mmap_mode="c")
    array[:] = 7.0
    pool = gpn.DiskPool(np.asarray(array).view(np.memmap))
    pool.read(torch.arange(3))
    assert bool((array == 7.0).all())


def test_numbers_too_large_for_the_fit_are_named(tmp_path: Path) -> None:
    rows = table(20).astype(np.float64)
    rows[13, 0] = 1e300
    pool = gpn.DiskPool(npy(tmp_path / "x.npy", rows)).to(torch.device("cpu"), torch.float32)
    with pytest.raises(ValueError, match=r"as the fit takes them, must be finite.* row 13"):
        pool.sample(20, seeded())


def _cut(folder: Path) -> gpn.DiskPool:
    """A file that loses its end after it was opened."""
    path = npy(folder / "x.npy", table(50))
    pool = gpn.DiskPool(path)
    path.write_bytes(path.read_bytes()[:300])
    return pool


def _anew(folder: Path) -> gpn.DiskPool:
    """A file of the same layout in the place of the one that was opened."""
    pool = gpn.DiskPool(parquet(folder / "x.parquet", table(50)))
    parquet(folder / "x.parquet", table(50) + 1)
    return pool


def _nulls(folder: Path) -> gpn.DiskPool:
    pq.write_table(pa.table({"a": [1.0, None] * 20}), folder / "x.parquet")
    return gpn.DiskPool(folder / "x.parquet")


@pytest.mark.parametrize(
    ("make", "message"),
    [(_cut, "must stay as it is"), (_anew, "written anew"), (_nulls, "must be finite")],
)
def test_bad_rows_are_found_when_they_are_read(make: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        make(tmp_path).draw(40, seeded())


def _text(folder: Path) -> Path:
    pq.write_table(pa.table({"a": [1.0], "b": ["x"]}), folder / "x.parquet")
    return folder / "x.parquet"


def _garbage(folder: Path, name: str) -> Path:
    (folder / name).write_bytes(b"nothing of the kind")
    return folder / name


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (lambda f: f / "none.npy", {}, "exists"),
        (lambda f: _garbage(f, "x.npy"), {}, "complete .npy"),
        (lambda f: _garbage(f, "x.parquet"), {}, "complete Parquet"),
        (lambda f: _garbage(f, "x.csv"), {}, "must end in"),
        (lambda f: npy(f / "x.npy", np.asfortranarray(table(9))), {}, "Fortran"),
        (lambda f: npy(f / "x.npy", np.arange(4.0)), {}, "rows of numbers"),
        (lambda f: npy(f / "x.npy", np.array([[1j]])), {}, "rows of numbers"),
        (lambda f: npy(f / "x.npy", table(9)), {"block": 0}, "block must be"),
        (lambda f: npy(f / "x.npy", table(9)), {"prefetch": -1}, "prefetch must be"),
        (lambda f: npy(f / "x.npy", table(9)), {"columns": ["a"]}, "columns are for Parquet"),
        (lambda f: parquet(f / "x.parquet", table(9)), {"block": 2}, "block is for arrays"),
        (lambda f: parquet(f / "x.parquet", table(9)), {"columns": ["z"]}, "'z'.*there 0 times"),
        (lambda f: parquet(f / "x.parquet", table(9)), {"columns": []}, "at least one column"),
        (lambda f: parquet(f / "x.parquet", table(0)), {}, "at least one row"),
        (_text, {}, "'b'.*of string"),
    ],
)
def test_what_is_no_pool_is_refused(
    make: Any, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        gpn.DiskPool(make(tmp_path), **options)


def test_the_old_name_of_prefetch_is_deprecated(tmp_path: Path) -> None:
    with pytest.warns(DeprecationWarning, match="ahead is now called prefetch"):
        pool = gpn.DiskPool(npy(tmp_path / "x.npy", table(9)), ahead=0)
    assert pool.prefetch == 0


def test_without_pyarrow_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = parquet(tmp_path / "x.parquet", table(9))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ImportError, match=r"gpn\[parquet\]"):
        gpn.DiskPool(path)


def test_a_row_that_is_not_finite_is_named_by_its_number_in_the_file(tmp_path: Path) -> None:
    rows = np.zeros((50, 2))
    rows[3, 1] = np.nan
    np.save(tmp_path / "p.npy", rows)
    pool = gpn.DiskPool(tmp_path / "p.npy")
    with pytest.raises(ValueError, match=r"in 1 of 50 rows \(first: row 3\)"):
        pool.sample(50, torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match=r"in 1 of 2 rows \(first: row 3\)"):
        list(pool.chunks(2))


@pytest.mark.parametrize("kind", [".npy", ".parquet"])
def test_what_is_no_such_file_is_said_and_nothing_else_advised(kind: str, tmp_path: Path) -> None:
    (tmp_path / f"p{kind}").write_bytes(b"hello")
    with pytest.raises(ValueError, match=r"must be a complete .* write it anew") as caught:
        gpn.DiskPool(tmp_path / f"p{kind}")
    assert "pickle" not in str(caught.value)
