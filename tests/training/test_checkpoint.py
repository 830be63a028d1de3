"""Interrupted fits are resumed with the same weights, bit for bit, or refused with a reason."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

import gpn
from gpn.training import checkpoint
from gpn.training.checkpoint import CheckpointSession
from gpn.training.state import TrainingState

CONFIG = gpn.TrainConfig(steps=60, label_batch=16, pool_batch=16, device="cpu")
TRUNK = gpn.MLPTrunk(widths=(16,))
SMALL: dict[str, Any] = {"trunk": TRUNK, "train": CONFIG, "reference_rows": 32, "n_axes": 8}


class Killed(BaseException):
    """Stands for a kill: nothing may catch it."""


def uniform(*shape: int, seed: int) -> Tensor:
    return 2 * torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) - 1


X = uniform(30, 2, seed=0)
NUMBERS = gpn.Task(X, torch.sin(3 * X[:, :1]), pool=gpn.box([-2.0, -2.0], [2.0, 2.0]))
CLASSES = gpn.Task(X, (X[:, 0] > 0).long(), pool=2 * uniform(100, 2, seed=1))
PICTURES = uniform(64, 1, 6, 6, seed=2)
IMAGES = gpn.Task(PICTURES[:24], torch.arange(24) % 3, pool=PICTURES[24:])
GPN = gpn.GPN(gpn.GPNConfig(**SMALL))
CASES: dict[str, tuple[Any, gpn.Task]] = {
    "joint": (GPN, NUMBERS),
    "joint, classes": (GPN, CLASSES),
    "conditioned": (gpn.GPN(gpn.GPNConfig(**SMALL, anchor="conditioned")), NUMBERS),
    "paper, sgd": (
        gpn.GPN(
            gpn.GPNConfig.paper(
                n_anchors=8, code_dim=2, trunk=TRUNK, train=CONFIG.replace(optimiser="sgd")
            )
        ),
        NUMBERS,
    ),
    "β search, trees, dropout": (
        gpn.GPN(
            gpn.GPNConfig(**{**SMALL, "trunk": TRUNK.replace(dropout=0.3)}, anchor="independent")
        ),
        CLASSES,
    ),
    "muon, averaged": (
        gpn.GPN(
            gpn.GPNConfig(
                **{
                    **SMALL,
                    "trunk": gpn.ResNetTrunk(channels=(4, 8), widths=(8,), whiten=True),
                    "train": CONFIG.replace(
                        optimiser="muon", momentum=0.9, schedule="linear", averaging=0.2
                    ),
                },
                beta=0.1,
            )
        ),
        IMAGES,
    ),
    "images, ratio network": (
        gpn.GPN(
            gpn.GPNConfig(**{**SMALL, "trunk": gpn.ConvTrunk(channels=(4,), widths=(8,))}, beta=0.1)
        ),
        IMAGES,
    ),
    **{
        name: (gpn.methods.get(name, train=CONFIG), NUMBERS)
        for name in ("dropout", "ensemble", "ensemble-or", "ensemble-pr", "sngp", "dkl")
    },
    "dkl, classes": (gpn.methods.get("dkl", train=CONFIG), CLASSES),
}

LONG = ("β search, trees, dropout",)


@pytest.fixture
def every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write at every step, however long writing takes."""
    monkeypatch.setattr(checkpoint, "MAX_WRITING_SHARE", float("inf"))


def killed_every(steps: int) -> Callable[[CheckpointSession, TrainingState], None]:
    """`CheckpointSession.after_step` with a kill every `steps` steps, counted over all attempts."""
    after_step, left = CheckpointSession.after_step, [steps]

    def counting(self: CheckpointSession, state: TrainingState) -> None:
        after_step(self, state)
        left[0] -= 1
        if left[0] == 0:
            left[0] = steps
            raise Killed

    return counting


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


@pytest.mark.usefixtures("every_step")
@pytest.mark.parametrize("case", CASES)
def test_a_fit_that_is_killed_repeatedly_reaches_the_same_weights(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, task = CASES[case]
    file = gpn.Checkpoint(tmp_path / "fit.ckpt", every=0.0)
    expected = method.fit(task, rng=0)
    kill = killed_every(37 if case not in LONG else 190)
    monkeypatch.setattr(CheckpointSession, "after_step", kill)
    resumed, kills = None, 0
    while resumed is None:
        try:
            resumed = method.fit(task, rng=0, checkpoint=file)
        except Killed:
            kills += 1
    assert kills > 0
    assert equal(resumed.tensors(), expected.tensors())
    assert not list(tmp_path.iterdir()), "a finished fit leaves no file"


@pytest.mark.usefixtures("every_step")
def test_history_and_ctrl_c_are_those_of_an_uninterrupted_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped by Ctrl-C after a kill: a file to resume from."""
    file = gpn.Checkpoint(tmp_path / "fit.ckpt", every=0.0)
    method, task = CASES["dropout"]
    whole = method.fit(task, rng=0)
    with monkeypatch.context() as patch:
        patch.setattr(CheckpointSession, "after_step", killed_every(20))
        with pytest.raises(Killed):
            method.fit(task, rng=0, checkpoint=file)
    after_step = CheckpointSession.after_step

    def stopped(self: CheckpointSession, state: TrainingState) -> None:
        after_step(self, state)
        if state.step == 50:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointSession, "after_step", stopped)
        with pytest.raises(KeyboardInterrupt):
            method.fit(task, rng=0, checkpoint=file)
    done = method.fit(task, rng=0, checkpoint=file)
    assert done.history.checks == whole.history.checks
    assert equal(done.tensors(), whole.tensors())


@pytest.fixture
def half_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> gpn.Checkpoint:
    """The checkpoint of a GPN that was killed at its twentieth step."""
    file = gpn.Checkpoint(tmp_path / "fit.ckpt", every=0.0)
    with monkeypatch.context() as patch:
        patch.setattr(CheckpointSession, "after_step", killed_every(20))
        with pytest.raises(Killed):
            GPN.fit(CLASSES, rng=0, checkpoint=file)
    return file


@pytest.mark.parametrize(
    ("method", "task", "rng", "what"),
    [
        (gpn.GPN(gpn.GPNConfig(**SMALL, jitter=0.1)), CLASSES, 0, "configuration"),
        (GPN, gpn.Task(X + 1e-6, CLASSES.y_obs, pool=CLASSES.pool), 0, "labels"),
        (GPN, gpn.Task(X, 1 - CLASSES.y_obs, pool=CLASSES.pool), 0, "labels"),
        (GPN, gpn.Task(X, CLASSES.y_obs, pool=uniform(100, 2, seed=9)), 0, "pool"),
        (GPN, gpn.Task(X, CLASSES.y_obs, pool=NUMBERS.pool), 0, "pool"),
        (GPN, CLASSES, 1, "seed"),
        (GPN, CLASSES, torch.Generator().manual_seed(0), "seed"),
        (gpn.methods.get("dropout", train=CONFIG), CLASSES, 0, "configuration"),
    ],
)
def test_a_checkpoint_of_another_fit_is_refused_and_not_changed(
    half_done: gpn.Checkpoint, method: Any, task: gpn.Task, rng: Any, what: str
) -> None:
    before = Path(half_done.path).read_bytes()
    with pytest.raises(ValueError, match=f"of the same fit, got a checkpoint with another {what};"):
        method.fit(task, rng=rng, checkpoint=half_done)
    assert Path(half_done.path).read_bytes() == before


def test_other_weights_in_a_users_module_are_another_configuration() -> None:
    from gpn.training.fingerprint import fingerprint

    here = torch.device("cpu")
    prints = []
    for bias in (0.0, 0.0, 1.0):
        module = torch.nn.Linear(2, 3)
        torch.nn.init.zeros_(module.weight)
        torch.nn.init.constant_(module.bias, bias)
        config = gpn.GPNConfig(trunk=gpn.ModuleTrunk(module=module))
        prints.append(fingerprint(config, CLASSES, 0, here))
    assert prints[0] == prints[1]
    assert prints[0]["configuration"] != prints[2]["configuration"]


def rewrite(path: Path, change: Callable[[dict[str, Tensor], dict[str, str]], None]) -> None:
    with safe_open(path, framework="pt") as file:
        header = dict(file.metadata())
    tensors = load_file(path)
    change(tensors, header)
    save_file(tensors, path, metadata=header)


def test_damaged_files_are_refused(half_done: gpn.Checkpoint) -> None:
    path = Path(half_done.path)
    whole = path.read_bytes()

    def lacking_a_stream(tensors: dict[str, Tensor], header: dict[str, str]) -> None:
        del tensors["0/stream/0"]

    def too_small(tensors: dict[str, Tensor], header: dict[str, str]) -> None:
        name = next(name for name in tensors if name.startswith("0/module/"))
        tensors[name] = tensors[name].flatten()[:1].clone()

    def no_json(tensors: dict[str, Tensor], header: dict[str, str]) -> None:
        header["trainings"] = "{"

    def newer(tensors: dict[str, Tensor], header: dict[str, str]) -> None:
        header["version"] = "999"

    wrong = {
        lacking_a_stream: "delete",
        too_small: "delete",
        no_json: "delete",
        newer: "this gpn wrote",
    }
    for change, message in wrong.items():
        path.write_bytes(whole)
        rewrite(path, change)
        with pytest.raises(ValueError, match=message):
            GPN.fit(CLASSES, rng=0, checkpoint=half_done)
    for content in (b"", whole[:1000], b"something else"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="must be a complete checkpoint of this fit"):
            GPN.fit(CLASSES, rng=0, checkpoint=half_done)


def test_the_file_holds_names_and_numbers_but_no_code(half_done: gpn.Checkpoint) -> None:
    with safe_open(half_done.path, framework="pt") as file:
        header = dict(file.metadata())
    assert header["format"] == "gpn-checkpoint"
    assert json.loads(header["trainings"])[0]["step"] > 0


def test_a_checkpoint_needs_a_seed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must have a seed, .* got None; pass rng=0"):
        GPN.fit(CLASSES, checkpoint=tmp_path / "fit.ckpt")
    model = gpn.GPNRegressor(GPN.config)
    with pytest.raises(ValueError, match=r"must have a seed, .*random_state=None"):
        model.fit(X, X[:, 0], X_unlabeled=X, checkpoint=tmp_path / "fit.ckpt")
    with pytest.raises(ValueError, match="every must be a number of seconds"):
        gpn.Checkpoint("fit.ckpt", every=-1.0)


def test_a_method_that_trains_no_network_refuses_a_checkpoint(tmp_path: Path) -> None:
    model = gpn.PosteriorRegressor("gp", random_state=0)
    with pytest.raises(TypeError, match="got one for GP, which does not take it"):
        model.fit(X, X[:, 0], X_unlabeled=X, checkpoint=tmp_path / "fit.ckpt")


@pytest.mark.usefixtures("every_step")
def test_an_estimator_resumes_its_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = gpn.Checkpoint(tmp_path / "fit.ckpt", every=0.0)
    rows, pool = X.numpy(), 2 * uniform(50, 2, seed=4).numpy()
    expected = gpn.GPNRegressor(GPN.config, random_state=0).fit(rows, rows[:, 0], pool)
    with monkeypatch.context() as patch:
        patch.setattr(CheckpointSession, "after_step", killed_every(25))
        model = gpn.GPNRegressor(GPN.config, random_state=0)
        with pytest.raises(Killed):
            model.fit(rows, rows[:, 0], pool, checkpoint=file)
    model.fit(rows, rows[:, 0], pool, checkpoint=file)
    assert (model.predict(pool) == expected.predict(pool)).all()


def test_slow_writes_are_rarer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes and steps of one second each: writing takes at most a twentieth of the time."""
    now, writes = [0.0], []

    def slow(path: Path, content: bytes) -> None:
        now[0] += 1.0
        writes.append(now[0])

    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(checkpoint, "write_atomically", slow)
    after_step = CheckpointSession.after_step

    def one_second_later(self: CheckpointSession, state: TrainingState) -> None:
        now[0] += 1.0
        after_step(self, state)

    monkeypatch.setattr(CheckpointSession, "after_step", one_second_later)
    method, task = CASES["dropout"]
    method.fit(task, rng=0, checkpoint=gpn.Checkpoint(tmp_path / "fit.ckpt", every=0.0))
    assert len(writes) == 1 + 60 // 21 + 1


def test_no_global_random_state_is_touched(tmp_path: Path) -> None:
    before = torch.get_rng_state()
    method, task = CASES["dropout"]
    method.fit(task, rng=0, checkpoint=tmp_path / "fit.ckpt")
    assert torch.equal(before, torch.get_rng_state())


def test_a_checkpoint_in_no_folder_is_refused(tmp_path: Path, line: gpn.Task) -> None:
    with pytest.raises(FileNotFoundError, match="must lie in a folder that exists"):
        gpn.GPN().fit(line, rng=0, checkpoint=tmp_path / "absent" / "fit.ckpt")
