"""Fits in processes of their own, killed by SIGKILL at random moments, reach the same weights."""

import multiprocessing
import random
import signal
import sys
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

import gpn
from gpn.training import checkpoint

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is POSIX")


def fit_and_save(where: str | None, out: str) -> None:
    """Five training runs in sequence: four trials of β, then the fit; with trees and dropout."""
    torch.set_num_threads(1)
    checkpoint.MAX_WRITING_SHARE = 0.5
    x = torch.rand(60, 3, generator=torch.Generator().manual_seed(0))
    task = gpn.Task(x, (x[:, 0] > x[:, 1]).long(), pool=2 * x)
    config = gpn.GPNConfig(
        anchor="independent",
        n_axes=8,
        reference_rows=32,
        trunk=gpn.MLPTrunk(widths=(32, 32), dropout=0.2, ramps=4),
        train=gpn.TrainConfig(steps=400, label_batch=16, pool_batch=16, device="cpu"),
    )
    file = None if where is None else gpn.Checkpoint(where, every=0.0)
    gpn.save(gpn.GPN(config).fit(task, rng=0, checkpoint=file), out)


def start(where: Path | None, out: Path) -> ForkServerProcess:
    """Start the fit in a process of its own, forked from one that has imported everything."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["tests.training.test_kills"])
    names = (None if where is None else str(where), str(out))
    process = processes.Process(target=fit_and_save, args=names)
    process.start()
    return process


def succeeded(process: ForkServerProcess) -> bool:
    process.join()
    return process.exitcode == 0


Model = tuple[dict[str, str], dict[str, Tensor]]


def read(path: Path) -> Model:
    """The metadata and the tensors of a model file."""
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return dict(file.metadata()), tensors


def equal(one: Model, other: Model) -> bool:
    same = one[1].keys() == other[1].keys() and one[0] == other[0]
    return same and all(torch.equal(one[1][name], other[1][name]) for name in one[1])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, float]:
    """The model of a fit that is not killed, and the seconds of such a fit with a checkpoint."""
    folder = tmp_path_factory.mktemp("whole")
    plain, saved = folder / "plain.gpn", folder / "saved.gpn"
    assert succeeded(start(None, plain))
    process, begun = start(folder / "fit.ckpt", saved), time.monotonic()
    assert succeeded(process)
    seconds = time.monotonic() - begun
    assert equal(read(plain), read(saved)), "writing checkpoints changes no weight"
    return read(plain), seconds


def killed(process: ForkServerProcess, after: float) -> bool:
    """Kill the process after that many seconds; False if it had already ended."""
    process.join(after)
    process.kill()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


def kill_and_resume(folder: Path, seconds: float, dice: random.Random) -> tuple[int, Model]:
    """Kill a fit once or twice, at random moments, then let it end."""
    where, out, kills = folder / "fit.ckpt", folder / "model.gpn", 0
    while kills == 0:  # a fit that ended before it was killed does not count
        out.unlink(missing_ok=True)
        kills += killed(start(where, out), dice.uniform(0.0, seconds))
    process = start(where, out)
    if killed(process, dice.uniform(0.0, seconds)):
        kills += 1
        process = start(where, out)
    assert succeeded(process)
    left = [path.name for path in folder.iterdir() if "fit.ckpt" in path.name]
    assert not left, "the checkpoint and partly written files are removed"
    return kills, read(out)


@pytest.mark.parametrize("fits", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_fits_are_resumed_bit_for_bit(
    fits: int, tmp_path: Path, whole: tuple[Model, float]
) -> None:
    model, seconds = whole
    dice, kills, same = random.Random(fits), 0, 0
    for number in range(fits):
        folder = tmp_path / str(number)
        folder.mkdir()
        more, resumed = kill_and_resume(folder, seconds, dice)
        kills, same = kills + more, same + equal(resumed, model)
    print(f"{same} of {fits} resumed identical after {kills} kills; a fit takes {seconds:.1f} s")
    assert same == fits
