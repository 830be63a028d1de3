"""Graphed steps equal plain ones: the same rows, randomness, weights and checkpoints.

A stand-in for a GPU's graph repeats the work at each replay, from the same memory.
"""

import gc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gpn
from gpn.methods.ensemble import Ensemble, EnsembleConfig
from gpn.methods.gpn.fitting.fit_many import fit_many
from gpn.training import cuda_graphs, loop
from gpn.training.config import TrainConfig
from gpn.training.cuda_graphs import WARM_UP_STEPS, TrainStep
from gpn.training.loop import train
from gpn.training.state import LossTerms

STEPS = 12
TRAIN = TrainConfig(steps=STEPS, label_batch=4, pool_batch=5, device="cpu")


class FakeGraphs:
    """Captures and replays without a GPU, and counts both."""

    def __init__(self) -> None:
        self.captured = self.replayed = 0

    def capture(
        self, work: Callable[[], LossTerms], generators: Sequence[torch.Generator]
    ) -> tuple[Callable[[], None], LossTerms]:
        self.captured += 1
        used = [*generators, torch.default_generator]
        states = [generator.get_state() for generator in used]
        buffers = [(buffer, buffer.clone()) for buffer in all_buffers()]
        names, values = work()
        for buffer, before in buffers:
            buffer.copy_(before)
        for generator, state in zip(used, states, strict=True):
            generator.set_state(state)

        def replay() -> None:
            self.replayed += 1
            values.copy_(work().values)

        return replay, LossTerms(names, values.fill_(torch.nan))


def all_buffers() -> list[Tensor]:
    """Those of every module: a GPU's capture computes nothing, so none of them moves."""
    modules = [found for found in gc.get_objects() if issubclass(type(found), nn.Module)]
    return [buffer for module in modules for buffer in module.buffers(recurse=False)]


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> FakeGraphs:
    fake = FakeGraphs()
    monkeypatch.setattr(loop, "supports_graphs", lambda kind: True)
    monkeypatch.setattr(cuda_graphs, "on_side_stream", lambda work: work())
    monkeypatch.setattr(cuda_graphs, "capture", fake.capture)
    return fake


def rows(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def table() -> gpn.Task:
    return gpn.Task(rows(30, 3), rows(30, 3)[:, :1].sin(), pool=rows(50, 3))


def images() -> gpn.Task:
    augment = gpn.data.FlipAndShift(shift=1)
    return gpn.Task(
        rows(30, 1, 6, 6), torch.arange(30) % 3, pool=rows(50, 1, 6, 6), augment=augment
    )


def gpns() -> dict[str, tuple[Callable[[], gpn.Task], gpn.GPNConfig]]:
    small = gpn.MLPTrunk(widths=(8, 8), dropout=0.2)
    conv = gpn.ConvTrunk(channels=(3,), widths=(8,), dropout=0.2)
    residual = gpn.ResNetTrunk(channels=(4, 8), widths=(8,))
    common: dict[str, Any] = {"n_axes": 20, "train": TRAIN, "noise_std": 0.1, "reference_rows": 40}
    alone = {**common, "anchor": "independent", "beta": 0.1, "pool_weights": "equal"}
    paper: dict[str, Any] = {"n_anchors": 15, "code_dim": 3, "trunk": small, "train": TRAIN}
    half = TRAIN.replace(precision="bf16")
    return {
        "conditioned": (table, gpn.GPNConfig(anchor="conditioned", trunk=small, **common)),
        "independent": (table, gpn.GPNConfig(trunk=small, **alone)),
        "classes": (images, gpn.GPNConfig(trunk=conv, **alone)),
        "bf16": (images, gpn.GPNConfig(trunk=conv, **{**alone, "train": half})),
        "batch norm": (
            images,
            gpn.GPNConfig(trunk=residual, beta_ramp=0.5, label_smoothing=0.1, **alone),
        ),
        "concat, spectral": (table, gpn.GPNConfig(generator="concat", trunk=small, **alone)),
        "paper": (table, gpn.GPNConfig.paper(**paper)),
        "paper, one anchor per row": (table, gpn.GPNConfig.paper(pairing="one", **paper)),
    }


def weights(posterior: Any) -> Tensor:
    module = getattr(posterior, "generator", None) or posterior.networks
    return torch.cat([value.flatten().double() for value in module.state_dict().values()])


@pytest.mark.parametrize("name", gpns())
def test_a_graphed_fit_equals_a_plain_one(name: str, graphs: FakeGraphs) -> None:
    make, config = gpns()[name]
    replayed = gpn.GPN(config).fit(make(), rng=0)
    assert graphs.captured >= 1
    assert graphs.replayed >= STEPS - WARM_UP_STEPS
    count = graphs.replayed
    eager = config.replace(train=config.train.replace(graphs="no"))
    plain = gpn.GPN(eager).fit(make(), rng=0)
    assert graphs.replayed == count, "graphs='no' replays nothing"
    assert torch.equal(weights(replayed), weights(plain))
    checks = [posterior.fit_report.history.checks for posterior in (replayed, plain)]
    assert checks[0] == checks[1]


@pytest.mark.parametrize("regularise", ["outputs", "parameters", "none"])
def test_a_graphed_ensemble_equals_a_plain_one(regularise: str, graphs: FakeGraphs) -> None:
    trunk = gpn.MLPTrunk(widths=(8,), activation="relu")
    config = EnsembleConfig(regularise=regularise, n_members=3, trunk=trunk, train=TRAIN)
    replayed = Ensemble(config).fit(table(), rng=0)
    assert graphs.replayed == STEPS - WARM_UP_STEPS
    plain = Ensemble(config.replace(train=TRAIN.replace(graphs="no"))).fit(table(), rng=0)
    assert torch.equal(weights(replayed), weights(plain))


def test_many_graphed_fits_equal_plain_ones(graphs: FakeGraphs) -> None:
    """Dropout draws for all members together, from torch's global generator."""
    make, config = gpns()["independent"]
    eager = config.replace(train=config.train.replace(graphs="no"))
    replayed = fit_many([config] * 2, [make()] * 2, [0, 1])
    assert graphs.captured == 1
    assert graphs.replayed == STEPS - WARM_UP_STEPS
    plain = fit_many([eager] * 2, [make()] * 2, [0, 1])
    assert graphs.replayed == STEPS - WARM_UP_STEPS
    for graphed, eager_fit in zip(replayed, plain, strict=True):
        assert torch.equal(weights(graphed), weights(eager_fit))


def test_steps_that_depend_on_values_are_not_captured(graphs: FakeGraphs) -> None:
    """Joint anchors check a factor, target noise of classes needs eigenvectors, and a user's
    module may do anything."""
    module = gpn.ModuleTrunk(module=nn.Linear(3, 4), widths=(8,))
    few = gpn.Task(rows(8, 3), rows(8, 3)[:, :1], pool=rows(50, 3))
    common: dict[str, Any] = {"n_axes": 6, "train": TRAIN, "noise_std": 0.1}
    gpn.GPN(gpn.GPNConfig(anchor="joint", **common)).fit(few, rng=0)
    gpn.GPN(gpn.GPNConfig(anchor="conditioned", trunk=module, **common)).fit(table(), rng=0)
    classes = gpn.Task(rows(30, 3), torch.arange(30) % 3, pool=rows(50, 3))
    gpn.GPN(
        gpn.GPNConfig(
            anchor="independent", beta=0.1, target_noise=True, pool_weights="equal", **common
        )
    ).fit(classes, rng=0)
    assert graphs.captured == 0


class Killed(Exception):
    """Stands for a kill."""


def test_a_graphed_fit_can_be_killed_and_resumed(
    graphs: FakeGraphs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, config = gpns()["classes"]
    whole = gpn.GPN(config).fit(make(), rng=0)
    capture = graphs.capture

    def until_killed(work: Any, generators: Any) -> Any:
        replay, terms = capture(work, generators)

        def replay_until_killed() -> None:
            if graphs.replayed == killed_at:
                raise Killed
            replay()

        return replay_until_killed, terms

    killed_at = graphs.replayed + 5
    monkeypatch.setattr(cuda_graphs, "capture", until_killed)
    file = gpn.Checkpoint(tmp_path / "fit.ckpt", every=0.0)
    with pytest.raises(Killed):
        gpn.GPN(config).fit(make(), rng=0, checkpoint=file)
    killed_at = -1
    resumed = gpn.GPN(config).fit(make(), rng=0, checkpoint=file)
    assert torch.equal(weights(resumed), weights(whole))


@pytest.mark.usefixtures("graphs")
@pytest.mark.parametrize("setting", ["auto", "no"])
def test_a_number_that_is_not_finite_is_found(setting: str) -> None:
    layer, steps = nn.Linear(1, 1), iter(range(1, 100))

    def some_rows() -> tuple[Tensor]:
        return (torch.full((2, 1), torch.nan if next(steps) == 7 else 1.0),)

    step = TrainStep(some_rows, lambda x: {"loss": layer(x).square().mean()})
    config = TrainConfig(steps=20, device="cpu", graphs=setting)
    with pytest.raises(gpn.TrainingDiverged, match="The state of step 6 is kept"):
        train(layer, step, config)


@pytest.mark.usefixtures("graphs")
def test_ctrl_c_passes_through() -> None:
    layer, steps = nn.Linear(1, 1), iter(range(1, 100))

    def some_rows() -> tuple[Tensor]:
        if next(steps) == 9:
            raise KeyboardInterrupt
        return (torch.ones(2, 1),)

    step = TrainStep(some_rows, lambda x: {"loss": layer(x).square().mean()})
    with pytest.raises(KeyboardInterrupt):
        train(layer, step, TrainConfig(steps=20, device="cpu"))
