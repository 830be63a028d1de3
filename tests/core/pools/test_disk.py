"""Pools on disk: the rows of the file, uniformly, the same however many are prefetched."""

import math
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

import gpn
from gpn.core.pools.base import Pool, TensorPool, distinct
from gpn.core.pools.rows import RowPool
from gpn.methods.gpn.pool import stored as stored_pool
from gpn.training import checkpoint
from gpn.training.checkpoint import CheckpointSession
from gpn.training.state import TrainingState


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def table(n: int, seed: int = 0) -> np.ndarray:
    """Row i is (i, …): its number tells which it is."""
    rows = np.random.default_rng(seed).normal(size=(n, 3))
    rows[:, 0] = np.arange(n)
    return rows.astype(np.float32)


def npy(path: Path, rows: np.ndarray) -> Path:
    np.save(path, rows)
    return path


def parquet(path: Path, rows: np.ndarray, group: int = 40) -> Path:
    columns = {name: pa.array(rows[:, i]) for i, name in enumerate("abc"[: rows.shape[1]])}
    pq.write_table(pa.table(columns), path, row_group_size=group)
    return path


def stored(kind: str, folder: Path, rows: np.ndarray, **options: Any) -> gpn.DiskPool:
    if kind == "mapped":
        return gpn.DiskPool(np.load(npy(folder / "pool.npy", rows), mmap_mode="r"), **options)
    write = npy if kind == "npy" else parquet
    return gpn.DiskPool(write(folder / f"pool.{kind}", rows), **options)


KINDS = ["npy", "parquet", "mapped"]


def readers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("gpn-pool")]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_those_of_the_file(kind: str, tmp_path: Path) -> None:
    rows = table(130)
    pool = stored(kind, tmp_path, rows)
    drawn = pool.draw(200, seeded()).numpy()
    np.testing.assert_array_equal(drawn, rows[drawn[:, 0].astype(int)])
    everything = pool.sample(1000, seeded())
    assert len(pool) == len(everything) == 130
    np.testing.assert_array_equal(everything[everything[:, 0].argsort()].numpy(), rows)
    np.testing.assert_array_equal(torch.cat(list(pool.chunks(48))).numpy(), rows)


@pytest.mark.parametrize(("kind", "block"), [("npy", 1), ("npy", 3), ("parquet", 1)])
def test_every_row_is_as_likely(kind: str, block: int, tmp_path: Path) -> None:
    """Also the last of a group that is shorter than the others, and rows at the ends."""
    pool = stored(kind, tmp_path, table(5, 0), block=block)
    if kind == "parquet":
        pool = gpn.DiskPool(parquet(tmp_path / "groups.parquet", table(5), group=2))
    draws, times = pool.draws(12, seeded()), 500
    step = seeded()
    drawn = torch.cat([draws.next(step) for _ in range(times)])
    draws.close()
    counts = drawn[:, 0].long().bincount(minlength=5)
    neighbours = 12 * 64 / 8 if kind == "parquet" else block  # rows that are picked together
    error = math.sqrt(12 * times * neighbours * 0.2 * 0.8)
    assert (counts - 12 * times / 5).abs().max() < 5 * error


def test_blocks_are_neighbours(tmp_path: Path) -> None:
    numbers = stored("npy", tmp_path, table(100), block=4).draw(10, seeded())[:, 0]
    steps = numbers.diff() % 100
    assert (steps[[0, 1, 2, 4, 5, 6, 8]] == 1).all()
    assert (steps[[3, 7]] != 1).all()


@pytest.mark.parametrize("kind", ["npy", "parquet"])
def test_prefetched_rows_are_those_that_would_be_read_now(kind: str, tmp_path: Path) -> None:
    rows = table(300)
    folders = [tmp_path / name for name in ("now", "prefetched")]
    for folder in folders:
        folder.mkdir()
    pools = [stored(kind, at, rows, prefetch=n) for at, n in zip(folders, (0, 5), strict=True)]
    now, prefetched = (pool.draws(7, seeded(3)) for pool in pools)
    for _ in range(150):
        assert torch.equal(now.next(seeded()), prefetched.next(seeded()))
    prefetched.close()
    assert readers() == []


@pytest.mark.parametrize("kind", ["npy", "parquet"])
@pytest.mark.parametrize("used", [0, 1, 64, 100])
def test_a_state_takes_draws_up(kind: str, used: int, tmp_path: Path) -> None:
    pool = stored(kind, tmp_path, table(300))
    first, other = pool.draws(5, seeded(1)), pool.draws(5, seeded(2))
    for _ in range(used):
        first.next(seeded())
    other.streams[0].set_state(first.streams[0].get_state())
    for _ in range(70):
        assert torch.equal(first.next(seeded()), other.next(seeded()))
    first.close()
    other.close()


class Slow(RowPool):
    """Zeros that take a while to read; fails from read number `bad` on."""

    def __init__(self, seconds: float = 0.0, bad: int = 10**9) -> None:
        super().__init__(prefetch=3)
        self.seconds, self.bad, self.count = seconds, bad, 0

    def __len__(self) -> int:
        return 100

    def read(self, indices: Tensor) -> Tensor:
        time.sleep(self.seconds)
        self.count += 1
        if self.count > self.bad:
            raise OSError("the disk is gone")
        return torch.zeros(len(indices), 1)


def test_reading_goes_on_while_the_step_computes() -> None:
    draws = Slow(0.02).draws(4, seeded())
    draws.next(seeded())
    time.sleep(0.15)
    started = time.perf_counter()
    draws.next(seeded())
    assert time.perf_counter() - started < 0.015
    draws.close()


def learnt(quick: gpn.GPNConfig, pool: Pool, **fit: Any) -> gpn.Posterior:
    x = torch.tensor([[-1.0], [-0.3], [0.4], [1.0]])
    return gpn.GPN(quick).fit(gpn.Task(x, 0.5 * x, pool=pool), rng=0, **fit)


def test_an_error_of_the_reader_is_raised_by_the_step(quick: gpn.GPNConfig) -> None:
    with pytest.raises(OSError, match="the disk is gone"):
        learnt(quick, Slow(bad=20))
    assert readers() == []


def line_pool(folder: Path, kind: str = "npy", **options: Any) -> gpn.DiskPool:
    rows = np.linspace(-2, 2, 500, dtype=np.float32)[:, None]
    return stored(kind, folder, rows, **options)


def weights(posterior: Any) -> list[Tensor]:
    return list(posterior.generator.state_dict().values())


def same(one: Any, other: Any) -> bool:
    return all(map(torch.equal, weights(one), weights(other)))


@pytest.mark.parametrize("kind", ["npy", "parquet"])
def test_a_fit_does_not_depend_on_prefetching(
    kind: str, quick: gpn.GPNConfig, tmp_path: Path
) -> None:
    first = learnt(quick, line_pool(tmp_path, kind, prefetch=0))
    assert same(first, learnt(quick, line_pool(tmp_path, kind, prefetch=4)))
    assert not same(first, learnt(quick, gpn.box([-2.0], [2.0])))
    assert readers() == []


def test_ensembles_prefetch(tmp_path: Path) -> None:
    x = torch.tensor([[-1.0], [1.0]])
    method = gpn.methods.get("ensemble-or", n_members=2, train=gpn.TrainConfig(steps=20))
    fits = [
        method.fit(gpn.Task(x, x, pool=line_pool(tmp_path, prefetch=n)), rng=0).sample(x, 2, rng=0)
        for n in (0, 2)
    ]
    assert torch.equal(*fits)
    assert readers() == []


@pytest.mark.parametrize("kind", ["npy", "parquet"])
def test_a_killed_fit_is_resumed(
    kind: str, quick: gpn.GPNConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(session: CheckpointSession, state: TrainingState) -> None:
        after_step(session, state)
        if state.step == 33 and not state.finished:
            raise Killed

    whole = learnt(quick, line_pool(tmp_path, kind))
    after_step, file = CheckpointSession.after_step, gpn.Checkpoint(tmp_path / "fit.ckpt", every=0)
    monkeypatch.setattr(checkpoint, "MAX_WRITING_SHARE", float("inf"))
    monkeypatch.setattr(CheckpointSession, "after_step", killed)
    with pytest.raises(Killed):
        learnt(quick, line_pool(tmp_path, kind), checkpoint=file)
    assert readers() == []
    monkeypatch.setattr(CheckpointSession, "after_step", after_step)
    assert same(whole, learnt(quick, line_pool(tmp_path, kind), checkpoint=file))


def test_a_table_of_rows_is_sampled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spectral codes: a bounded sample, without replacement, for all training runs of the fit."""
    monkeypatch.setattr(stored_pool, "max_sampled_rows", lambda size: 50)
    pool, seen = line_pool(tmp_path), []
    monkeypatch.setattr(TensorPool, "__init__", _recording(seen, TensorPool.__init__))
    config = gpn.GPNConfig(
        anchor="independent",
        reference_rows=8,
        noise_std=0.1,
        pool_weights="equal",
        trunk=gpn.MLPTrunk(widths=(8,)),
        train=gpn.TrainConfig(steps=20),
    )
    x = torch.linspace(-1, 1, 12)[:, None]
    posterior = gpn.GPN(config).fit(gpn.Task(x, x, pool=pool), rng=0)
    assert len(posterior.fit_report.beta_search) > 1
    assert [len(rows) for rows in seen] == [50, 50], "sampled, then stored"
    sampled, in_fit = seen
    assert len(sampled.unique(dim=0)) == 50
    assert torch.equal(in_fit.sort(0).values, sampled.sort(0).values)


def _recording(seen: list[Tensor], init: Any) -> Any:
    def recording(self: TensorPool, rows: Tensor) -> None:
        seen.append(rows)
        init(self, rows)

    return recording


def test_joint_anchors_take_few_rows(line: gpn.Task, tmp_path: Path) -> None:
    config = gpn.GPNConfig(
        noise_std=0.1,
        reference_rows=20,
        trunk=gpn.MLPTrunk(widths=(8,)),
        train=gpn.TrainConfig(steps=20),
    )
    pool = line_pool(tmp_path)
    read: list[int] = []
    own = pool.rows.read
    pool.rows.read = lambda indices: (read.append(len(indices)), own(indices))[1]  # type: ignore[method-assign]
    gpn.GPN(config).fit(gpn.Task(line.x_obs, line.y_obs, pool=pool), rng=0)
    assert read == [2, 20]


@pytest.mark.parametrize(("n", "most"), [(40_000, 10), (10_001, 2_500), (10, 4), (7, 20)])
def test_distinct_numbers(n: int, most: int) -> None:
    counts = torch.zeros(n)
    for seed in range(300):
        picked = distinct(n, most, seeded(seed))
        assert len(picked.unique()) == len(picked) == min(n, most)
        counts[picked] += 1
    halves = counts[: n // 2].sum() / counts.sum()
    error = 0.5 / math.sqrt(300 * most)
    assert abs(halves - (n // 2) / n) < 5 * error


def test_a_memory_mapped_pool_of_a_task_stays_on_disk(tmp_path: Path) -> None:
    rows = np.load(npy(tmp_path / "x.npy", table(50)), mmap_mode="r")
    x = torch.zeros(2, 3)
    assert isinstance(gpn.Task(x, x, pool=rows).pool, gpn.DiskPool)
    with pytest.raises(ValueError, match="shape of x rows"):
        gpn.Task(x[:, :2], x, pool=rows)
