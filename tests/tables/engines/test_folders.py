"""Folders of Parquet files: every engine writes what a single process writes."""

import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gpn.columns.column_types import TableError
from gpn.columns.encoder import UnseenWarning
from gpn.tables.engines.folders import score_folder
from gpn.tables.engines.scorer import Scorer
from gpn.tables.model import TableModel, fit_table
from gpn.tables.scoring import score_table
from tests.cli.command import rows

N_FILES, N_ROWS = 6, 50


@pytest.fixture(scope="module")
def model() -> TableModel:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labeled = rows(120).drop(columns="grade")
        return fit_table(labeled, "yield", mean=None, random_state=0, device="cpu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    source = tmp_path / "new"
    for number in range(N_FILES):
        path = source / f"part={number % 2}" / f"{number}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        table = rows(N_ROWS, number).drop(columns=["grade", "yield"])
        table.insert(0, "id", [f"{number}-{i}" for i in range(N_ROWS)])
        table.to_parquet(path, index=False)
    (source / "_SUCCESS").write_text("")
    (source / ".tmp.parquet").write_text("not a table")
    return source


def quietly(*arguments: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return score_folder(*arguments)


def read(folder: Path) -> pd.DataFrame:
    files = sorted(folder.rglob("*.parquet"))
    return pd.concat([pd.read_parquet(path, partitioning=None) for path in files])


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    found = pytest.importorskip("ray", reason="ray is not installed")
    options = {"include_dashboard": False, "log_to_driver": False, "logging_level": 40}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found.init(num_cpus=2, object_store_memory=80 << 20, **options)
        yield found
        found.shutdown()


@pytest.fixture(scope="module")
def dask() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed", reason="dask is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with distributed.Client(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as client:
            yield client


def test_a_folder_is_scored_file_by_file(model: TableModel, folder: Path, tmp_path: Path) -> None:
    counts: list[int] = []
    total = quietly(Scorer(model), folder, tmp_path / "out", "local", counts.append)
    assert total.rows == N_FILES * N_ROWS == counts[-1]
    assert len(counts) == N_FILES
    for path in folder.rglob("[0-9].parquet"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            score_table(model, path, tmp_path / "one.parquet")
        out = pd.read_parquet(tmp_path / "out" / path.relative_to(folder), partitioning=None)
        pd.testing.assert_frame_equal(out, pd.read_parquet(tmp_path / "one.parquet"))
    assert total.flagged == read(tmp_path / "out")["is_ood"].sum()


@pytest.mark.parametrize("engine", ["ray", "dask"])
def test_workers_write_what_one_process_writes(
    engine: str, model: TableModel, folder: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(engine)
    total = quietly(Scorer(model), folder, tmp_path / "out", engine)
    assert total == quietly(Scorer(model), folder, tmp_path / "local", "local")
    pd.testing.assert_frame_equal(read(tmp_path / "out"), read(tmp_path / "local"))


class Slow(Scorer):
    """Says which process scores, and takes a while over each file."""

    def __init__(self, model: TableModel, pids: Path) -> None:
        self.pids = pids
        super().__init__(model)

    @property
    def model(self) -> TableModel:
        (self.pids / str(os.getpid())).touch()
        time.sleep(0.2)
        return super().model


def test_a_killed_worker_costs_no_row(
    ray: Any, model: TableModel, folder: Path, tmp_path: Path
) -> None:
    """SIGKILL while a worker of Ray has a file half done; another one scores it again."""
    pids, killed = tmp_path / "pids", []
    pids.mkdir()

    def kill() -> None:
        while not killed:
            found = [int(path.name) for path in pids.iterdir() if int(path.name) != os.getpid()]
            if found:
                os.kill(found[0], signal.SIGKILL)
                killed.append(found[0])
            time.sleep(0.01)

    slow = Slow(model, pids)
    thread = threading.Thread(target=kill)
    thread.start()
    total = quietly(slow, folder, tmp_path / "out", "ray")
    thread.join()
    assert killed
    assert total.rows == N_FILES * N_ROWS
    expected = quietly(Scorer(model), folder, tmp_path / "local", "local")
    assert total == expected
    pd.testing.assert_frame_equal(read(tmp_path / "out"), read(tmp_path / "local"))
    left = {path.name for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert all(name.endswith((".parquet", ".gpn")) for name in left)


@pytest.mark.parametrize("engine", ["local", "ray", "dask"])
def test_an_error_of_a_file_is_one_sentence(
    engine: str, model: TableModel, folder: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if engine != "local":
        request.getfixturevalue(engine)
    bad = rows(9).drop(columns=["size", "yield"])
    bad.to_parquet(folder / "part=0" / "bad.parquet")
    with pytest.raises(TableError, match="'size' is missing"):
        quietly(Scorer(model), folder, tmp_path / "out", engine)


def test_new_values_of_all_files_are_one_warning(
    model: TableModel, folder: Path, tmp_path: Path
) -> None:
    for path in list(folder.rglob("[01].parquet")):
        pd.read_parquet(path, partitioning=None).assign(colour="violet").to_parquet(path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        total = score_folder(Scorer(model), folder, tmp_path / "out", "local")
    said = [each.message for each in caught if isinstance(each.message, UnseenWarning)]
    assert [str(each).partition(" hold")[0] for each in said] == ["'colour': 100 of 300 rows"]
    assert total.unseen == 100


def test_what_is_no_folder_of_tables_is_refused(
    model: TableModel, folder: Path, tmp_path: Path
) -> None:
    made = Scorer(model)
    with pytest.raises(ValueError, match="--engine must be one of local, ray, dask, got 'spark'"):
        score_folder(made, folder, tmp_path / "out", "spark")
    with pytest.raises(TableError, match="must be a folder outside of the one that is read"):
        score_folder(made, folder, folder / "out", "local")
    with pytest.raises(TableError, match=r"must hold Parquet files, .* has none"):
        score_folder(made, tmp_path / "new" / "part=9", tmp_path / "out", "local")
    (tmp_path / "o.parquet").touch()
    with pytest.raises(TableError, match=r"--out must be a folder, as .* is one, got the file"):
        score_folder(made, folder, tmp_path / "o.parquet", "local")


@pytest.mark.parametrize(("engine", "module"), [("ray", "ray"), ("dask", "distributed")])
def test_an_engine_that_is_not_installed_says_how(
    engine: str,
    module: str,
    model: TableModel,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(
        ImportError, match=rf"--engine {engine} needs .* pip install 'gpn\[{engine}"
    ):
        score_folder(Scorer(model), folder, tmp_path / "out", engine)
