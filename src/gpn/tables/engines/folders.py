"""Folders of Parquet files scored file by file: in this process, or by the workers of Ray or Dask.

A file is the unit of work. A worker writes its result whole or not at all, so that the file of a
worker that was killed is simply scored again, by another one.
"""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpn.columns.column_types import TableError
from gpn.columns.encoder import UnseenWarning, merge_unseen
from gpn.tables.engines.scorer import Scorer
from gpn.tables.files import PARQUET_SUFFIXES, OnRows
from gpn.tables.scoring import Counts, score_table

ENGINES = ("local", "ray", "dask")
RETRIES = 10  # of a file whose worker is killed
Task = tuple[Path, Path]
Score = Callable[[Task], "ScoredFile"]


@dataclass(frozen=True)
class ScoredFile:
    """What was counted in a file, and what was said of it."""

    counts: Counts
    messages: list[Warning]


def score_folder(
    scorer: Scorer, source: Path, out: Path, engine: str, on_rows: OnRows = lambda count: None
) -> Counts:
    """Score every Parquet file below `source` into a file of the same name below `out`."""
    if engine not in ENGINES:
        raise ValueError(f"--engine must be one of {', '.join(ENGINES)}, got {engine!r}.")
    tasks = _tasks(source, out)
    total, messages = Counts(), list[Warning]()
    with _mapping(engine, scorer) as mapped:
        for scored in mapped(tasks):
            total = total.plus(scored.counts)
            messages += scored.messages
            on_rows(total.rows)
    _say_once(messages, total.rows)
    return total


def score_file(scorer: Scorer, task: Task) -> ScoredFile:
    """Score one file; its warnings are part of the result."""
    source, out = task
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        counts = score_table(scorer.model, source, out, level=scorer.level, fpr=scorer.fpr)
    return ScoredFile(
        counts, [each.message for each in caught if isinstance(each.message, Warning)]
    )


def _tasks(source: Path, out: Path) -> list[Task]:
    """The files and their results; what begins with a dot or an underscore is no table."""
    if out.resolve() == source.resolve() or source.resolve() in out.resolve().parents:
        raise TableError(
            f"--out must be a folder outside of the one that is read, got {out}; name another."
        )
    if out.exists() and not out.is_dir():
        raise TableError(f"--out must be a folder, as {source} is one, got the file {out}.")
    names = [path.relative_to(source) for path in sorted(source.rglob("*"))]
    tables = [
        name
        for name in names
        if name.suffix in PARQUET_SUFFIXES and not any(part[0] in "._" for part in name.parts)
    ]
    if not tables:
        raise TableError(f"a folder of tables must hold Parquet files, {source} has none.")
    for name in tables:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
    return [(source / name, out / name) for name in tables]


def _say_once(messages: list[Warning], n_rows: int) -> None:
    """Warnings of all files: one for all new values of a column, and each other one once."""
    unseen = [each for each in messages if isinstance(each, UnseenWarning)]
    others = {str(each): each for each in messages if not isinstance(each, UnseenWarning)}
    for each in (*others.values(), *merge_unseen(unseen, n_rows)):
        warnings.warn(each, stacklevel=3)


@contextmanager
def _mapping(engine: str, scorer: Scorer) -> Iterator[Callable[[list[Task]], Iterator[ScoredFile]]]:
    """What scores files, in any order."""
    if engine == "local":
        yield lambda tasks: (score_file(scorer, task) for task in tasks)
    elif engine == "ray":
        with _ray() as ray:
            yield lambda tasks: _by_ray(ray, scorer, tasks)
    else:
        with _dask_client() as client:
            yield lambda tasks: _by_dask(client, scorer, tasks)


@contextmanager
def _ray() -> Iterator[Any]:
    """Ray, connected to the cluster of `ray.init()` or RAY_ADDRESS, or else started here."""
    try:
        import ray
    except ImportError as error:
        raise ImportError(f"--engine ray needs Ray ({error}); pip install 'gpn[ray]'.") from error
    if ray.is_initialized():
        yield ray
        return
    ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield ray
    finally:
        ray.shutdown()


def _by_ray(ray: Any, scorer: Scorer, tasks: list[Task]) -> Iterator[ScoredFile]:
    """A Ray task for each file, which Ray gives to another worker where one is killed."""
    work = ray.remote(max_retries=RETRIES)(score_file)
    shared = ray.put(scorer)
    waiting = [work.remote(shared, task) for task in tasks]
    while waiting:
        (done,), waiting = ray.wait(waiting, num_returns=1)
        yield _result(ray, done)


def _result(ray: Any, done: Any) -> ScoredFile:
    """A task's result; an error is that of the file, and not Ray's account of it."""
    try:
        return ray.get(done)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error


@contextmanager
def _dask_client() -> Iterator[Any]:
    """The client that is connected, or one of a cluster of processes on this machine."""
    try:
        from distributed import Client, get_client
    except ImportError as error:
        raise ImportError(
            f"--engine dask needs Dask ({error}); pip install 'gpn[dask]'."
        ) from error
    try:
        client = get_client()
    except ValueError:  # none is connected
        with Client(threads_per_worker=1, dashboard_address=None) as started:
            yield started
        return
    yield client


def _by_dask(client: Any, scorer: Scorer, tasks: list[Task]) -> Iterator[ScoredFile]:
    from distributed import as_completed

    shared = client.scatter(scorer, broadcast=True)
    futures = [client.submit(score_file, shared, task, pure=False) for task in tasks]
    for future in as_completed(futures):
        yield future.result()
