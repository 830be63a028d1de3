"""Real kills: a fit in a process of its own, SIGKILL at a random moment, and the same weights."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is POSIX")

# Five trainings one after the other (four trials of β, then the fit), with dropout and trees.
CHILD = """
import sys
from pathlib import Path
import torch
import gpn
from gpn.core import checkpoint

torch.set_num_threads(1)
checkpoint.MOST_SHARE = 0.5
where, out = sys.argv[1:]
x = torch.rand(60, 3, generator=torch.Generator().manual_seed(0))
task = gpn.Task(x, (x[:, 0] > x[:, 1]).long(), pool=2 * x)
config = gpn.GPNConfig(
    anchor="independent",
    n_axes=8,
    reference_rows=32,
    trunk=gpn.MLPTrunk(widths=(32, 32), dropout=0.2, ramps=4),
    train=gpn.TrainConfig(steps=400, label_batch=16, pool_batch=16, device="cpu"),
)
print("begun", flush=True)
keep = None if where == "-" else gpn.Checkpoint(where, every=0.0)
posterior = gpn.GPN(config).fit(task, rng=0, checkpoint=keep)
gpn.save(posterior, out)
"""


def start(where: str, out: Path) -> subprocess.Popen[str]:
    """The fit, from the moment on that it has imported everything."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", CHILD, where, str(out)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


Model = tuple[dict[str, str], dict[str, Tensor]]


def read(path: Path) -> Model:
    """Everything that a model's file holds."""
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return dict(file.metadata()), tensors


def equal(one: Model, other: Model) -> bool:
    same = one[1].keys() == other[1].keys() and one[0] == other[0]
    return same and all(torch.equal(one[1][name], other[1][name]) for name in one[1])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, float]:
    """The model of a fit that nobody disturbs but that keeps a checkpoint, and its seconds."""
    folder = tmp_path_factory.mktemp("whole")
    undisturbed, kept = folder / "undisturbed.gpn", folder / "kept.gpn"
    assert start("-", undisturbed).wait() == 0
    process, begun = start(str(folder / "fit.ckpt"), kept), time.monotonic()
    assert process.wait() == 0
    assert equal(read(undisturbed), read(kept)), "keeping a checkpoint changes nothing"
    return read(undisturbed), time.monotonic() - begun


def killed(process: subprocess.Popen[str], after: float) -> bool:
    """Whether it was still running after that time; then it no longer is."""
    try:
        process.wait(after)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def kill_and_resume(folder: Path, seconds: float, dice: random.Random) -> tuple[int, Model]:
    """Kill a fit at random moments, once at least and twice in most cases, and let it end."""
    where, out, kills = folder / "fit.ckpt", folder / "model.gpn", 0
    while kills == 0:  # a fit that ended before it was killed does not count
        out.unlink(missing_ok=True)
        kills += killed(start(str(where), out), dice.uniform(0.0, seconds))
    again = start(str(where), out)
    if killed(again, dice.uniform(0.0, seconds)):
        kills += 1
        again = start(str(where), out)
    assert again.wait() == 0
    left = [path.name for path in folder.iterdir() if "fit.ckpt" in path.name]
    assert not left, "neither the checkpoint nor half-written ones stay"
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
