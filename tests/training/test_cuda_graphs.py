"""Replayed steps are the steps themselves: the same rows, randomness, weights and checkpoints.

In place of a GPU's graph a recording does the work anew at each replay, from the same memory.
"""

from collections.abc import Callable, Iterator, Sequence
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


class Recorder:
    """Counts recordings and replays."""

    def __init__(self) -> None:
        self.recorded = self.replayed = 0

    def capture(
        self, work: Callable[[], LossTerms], generators: Sequence[torch.Generator]
    ) -> tuple[Callable[[], None], LossTerms]:
        self.recorded += 1
        every = [*generators, torch.default_generator]
        states = [one.get_state() for one in every]
        names, values = work()
        for one, state in zip(every, states, strict=True):
            one.set_state(state)

        def again() -> None:
            self.replayed += 1
            values.copy_(work().values)

        return again, LossTerms(names, values.fill_(torch.nan))


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    stand_in = Recorder()
    monkeypatch.setattr(loop, "supports_graphs", lambda kind: True)
    monkeypatch.setattr(cuda_graphs, "on_side_stream", lambda work: work())
    monkeypatch.setattr(cuda_graphs, "capture", stand_in.capture)
    return stand_in


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
    common: dict[str, Any] = {"n_axes": 20, "train": TRAIN, "noise_std": 0.1, "reference_rows": 40}
    alone = {**common, "anchor": "independent", "beta": 0.1, "pool_weights": "equal"}
    paper: dict[str, Any] = {"n_anchors": 15, "code_dim": 3, "trunk": small, "train": TRAIN}
    half = TRAIN.replace(precision="bf16")
    return {
        "conditioned": (table, gpn.GPNConfig(anchor="conditioned", trunk=small, **common)),
        "independent": (table, gpn.GPNConfig(trunk=small, **alone)),
        "classes": (images, gpn.GPNConfig(trunk=conv, **alone)),
        "bf16": (images, gpn.GPNConfig(trunk=conv, **{**alone, "train": half})),
        "concat, spectral": (table, gpn.GPNConfig(generator="concat", trunk=small, **alone)),
        "paper": (table, gpn.GPNConfig.paper(**paper)),
        "paper, one anchor per row": (table, gpn.GPNConfig.paper(pairing="one", **paper)),
    }


def weights(posterior: Any) -> Tensor:
    module = getattr(posterior, "generator", None) or posterior.networks
    return torch.cat([value.flatten().double() for value in module.state_dict().values()])


@pytest.mark.parametrize("name", gpns())
def test_a_replayed_fit_is_the_fit(name: str, recorder: Recorder) -> None:
    make, config = gpns()[name]
    replayed = gpn.GPN(config).fit(make(), rng=0)
    assert recorder.recorded >= 1
    assert recorder.replayed >= STEPS - WARM_UP_STEPS
    count = recorder.replayed
    eager = config.replace(train=config.train.replace(graphs="no"))
    plain = gpn.GPN(eager).fit(make(), rng=0)
    assert recorder.replayed == count, "graphs='no' replays nothing"
    assert torch.equal(weights(replayed), weights(plain))
    checks = [posterior.fit_report.history.checks for posterior in (replayed, plain)]
    assert checks[0] == checks[1]


@pytest.mark.parametrize("regularise", ["outputs", "parameters", "none"])
def test_a_replayed_ensemble_is_the_ensemble(regularise: str, recorder: Recorder) -> None:
    trunk = gpn.MLPTrunk(widths=(8,), activation="relu")
    config = EnsembleConfig(regularise=regularise, n_members=3, trunk=trunk, train=TRAIN)
    replayed = Ensemble(config).fit(table(), rng=0)
    assert recorder.replayed == STEPS - WARM_UP_STEPS
    plain = Ensemble(config.replace(train=TRAIN.replace(graphs="no"))).fit(table(), rng=0)
    assert torch.equal(weights(replayed), weights(plain))


def test_replayed_fits_side_by_side_are_the_fits(recorder: Recorder) -> None:
    """Dropout draws for all members at once, from torch's own generator."""
    make, config = gpns()["independent"]
    eager = config.replace(train=config.train.replace(graphs="no"))
    replayed = fit_many([config] * 2, [make()] * 2, [0, 1])
    assert recorder.recorded == 1
    assert recorder.replayed == STEPS - WARM_UP_STEPS
    plain = fit_many([eager] * 2, [make()] * 2, [0, 1])
    assert recorder.replayed == STEPS - WARM_UP_STEPS
    for ours, theirs in zip(replayed, plain, strict=True):
        assert torch.equal(weights(ours), weights(theirs))


def test_what_looks_at_numbers_is_not_replayed(recorder: Recorder) -> None:
    """Joint anchors look at a factor, target noise of classes needs eigenvectors, and a user's
    own module may do anything."""
    own = gpn.ModuleTrunk(module=nn.Linear(3, 4), widths=(8,))
    few = gpn.Task(rows(8, 3), rows(8, 3)[:, :1], pool=rows(50, 3))
    common: dict[str, Any] = {"n_axes": 6, "train": TRAIN, "noise_std": 0.1}
    gpn.GPN(gpn.GPNConfig(anchor="joint", **common)).fit(few, rng=0)
    gpn.GPN(gpn.GPNConfig(anchor="conditioned", trunk=own, **common)).fit(table(), rng=0)
    classes = gpn.Task(rows(30, 3), torch.arange(30) % 3, pool=rows(50, 3))
    gpn.GPN(
        gpn.GPNConfig(
            anchor="independent", beta=0.1, target_noise=True, pool_weights="equal", **common
        )
    ).fit(classes, rng=0)
    assert recorder.recorded == 0


class Stopped(Exception):
    """A fit that was killed."""


def test_a_replayed_fit_can_be_killed_and_taken_up(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, config = gpns()["classes"]
    whole = gpn.GPN(config).fit(make(), rng=0)
    capture = recorder.capture

    def until_killed(work: Any, generators: Any) -> Any:
        again, result = capture(work, generators)

        def once() -> None:
            if recorder.replayed == killed_at:
                raise Stopped
            again()

        return once, result

    killed_at = recorder.replayed + 5
    monkeypatch.setattr(cuda_graphs, "capture", until_killed)
    place = gpn.Checkpoint(tmp_path / "fit.ckpt", every=0.0)
    with pytest.raises(Stopped):
        gpn.GPN(config).fit(make(), rng=0, checkpoint=place)
    killed_at = -1
    resumed = gpn.GPN(config).fit(make(), rng=0, checkpoint=place)
    assert torch.equal(weights(resumed), weights(whole))


@pytest.mark.parametrize("graphs", ["auto", "no"])
def test_a_number_that_is_not_finite_is_found(graphs: str, recorder: Recorder) -> None:
    layer, given = nn.Linear(1, 1), iter(range(1, 100))

    def some_rows() -> tuple[Tensor]:
        return (torch.full((2, 1), torch.nan if next(given) == 7 else 1.0),)

    feed = TrainStep(some_rows, lambda x: {"loss": layer(x).square().mean()})
    config = TrainConfig(steps=20, device="cpu", graphs=graphs)
    with pytest.raises(gpn.TrainingDiverged, match="The state of step 6 is kept"):
        train(layer, feed, config, lambda *_: None)


def test_ctrl_c_keeps_the_best_state(recorder: Recorder) -> None:
    layer = nn.Linear(1, 1)
    given = iter(range(1, 100))

    def some_rows() -> tuple[Tensor]:
        if next(given) == 9:
            raise KeyboardInterrupt
        return (torch.ones(2, 1),)

    feed = TrainStep(some_rows, lambda x: {"loss": layer(x).square().mean()})
    with pytest.warns(UserWarning, match="stopped before its 20 steps"):
        history = train(layer, feed, TrainConfig(steps=20, device="cpu"), lambda *_: None)
    assert history.stopped_at in range(9)
