"""The loop: where it converges, which state it restores, how rarely it waits for the device."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import gpn
from gpn.training.batches import LabelBatches
from gpn.training.config import TrainConfig
from gpn.training.loop import train
from gpn.training.state import Terms


class Point(nn.Module):
    """One parameter."""

    def __init__(self, start: float = 0.0) -> None:
        super().__init__()
        self.at = nn.Parameter(torch.tensor(start))


@pytest.mark.parametrize("optimiser", ["adam", "sgd", "muon"])
@pytest.mark.parametrize("schedule", ["one-cycle", "linear", "constant"])
def test_the_sum_of_the_terms_is_minimised(optimiser: str, schedule: str) -> None:
    """argmin (a − 1)² + 3 (a − 3)² = 2.5, which minimises neither term alone."""
    point = Point()
    config = TrainConfig(steps=600, learning_rate=0.05, optimiser=optimiser, schedule=schedule)
    history = train(
        point,
        lambda: {"one": (point.at - 1).square(), "three": 3 * (point.at - 3).square()},
        config,
    )
    assert float(point.at.detach()) == pytest.approx(2.5, abs=0.01)
    last = history.checks[-1]
    assert last["step"] == 600
    assert last["one"] == pytest.approx(1.5**2, abs=0.05)
    assert last["three"] == pytest.approx(3 * 0.5**2, abs=0.05)


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5, 7])
def test_any_number_of_steps_can_be_asked_for(steps: int) -> None:
    point, calls = Point(), itertools.count()

    def terms() -> Terms:
        next(calls)
        return {"loss": point.at.square()}

    history = train(point, terms, TrainConfig(steps=steps))
    assert next(calls) == steps
    assert [check["step"] for check in history.checks] == list(range(1, steps + 1))


def test_frozen_parameters_do_not_move() -> None:
    point, frozen = Point(), Point(5.0).requires_grad_(False)
    both = nn.ModuleList([point, frozen])
    config = TrainConfig(steps=20, weight_decay=0.5)
    train(both, lambda: {"loss": (point.at - frozen.at).square()}, config)
    assert float(frozen.at) == 5.0
    assert float(point.at.detach()) > 0.0


def scripted(
    point: Point, losses: Sequence[float], then: type[BaseException] | None = None
) -> Callable[[], Terms]:
    """Losses as listed, with gradient 1, so that SGD with rate 1 is at −t after step t."""
    left = iter(losses)

    def terms() -> Terms:
        value = next(left, None)
        if value is None and then is not None:
            raise then
        return {"loss": point.at - point.at.detach() + value, "nothing": torch.zeros(())}

    return terms


SGD = TrainConfig(optimiser="sgd", schedule="constant", learning_rate=1.0)


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_other_errors_pass_through(error: type[BaseException]) -> None:
    point = Point()
    with pytest.raises(error):
        train(point, scripted(point, [1.0], error), SGD.replace(steps=9))


def test_ctrl_c_ends_a_loop_of_fits(
    quick: gpn.GPNConfig, line: gpn.Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops the loop, not one of its fits, and no half-trained posterior comes back."""
    draw, calls = type(line.pool).draw, itertools.count(1)

    def draw_until_stopped(self: Any, m: int, rng: torch.Generator) -> Tensor:
        if next(calls) == 40:
            raise KeyboardInterrupt
        return draw(self, m, rng)

    monkeypatch.setattr(type(line.pool), "draw", draw_until_stopped)
    seeds = iter(range(3))
    with pytest.raises(KeyboardInterrupt):
        _ = [gpn.GPN(quick).fit(line, rng=seed) for seed in seeds]
    assert list(seeds) == [1, 2]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_loss_names_its_step_and_term(bad: float) -> None:
    point = Point()
    losses = [1.0] * 19 + [bad] + [1.0] * 80
    with pytest.raises(
        FloatingPointError, match=rf"must stay finite, got loss={bad} at step 20; try learning_rate"
    ):
        train(point, scripted(point, losses), SGD.replace(steps=100))


class Reads(TorchDispatchMode):
    """Counts how often a number is read from a tensor: on a GPU each read waits for the device."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("steps", [50, 1000])
def test_the_loss_is_read_only_at_checks(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty reads in a run of any length: all losses since the last check, and the weights."""
    point, reported, lists = Point(), [], itertools.count()
    tolist = Tensor.tolist
    monkeypatch.setattr(Tensor, "tolist", lambda values: (next(lists), tolist(values))[1])
    with Reads() as reads:
        train(
            point,
            scripted(point, [1.0] * steps),
            SGD.replace(steps=steps),
            lambda step, steps, values: reported.append((step, steps)),
        )
    assert reported == [(steps * check // 50, steps) for check in range(1, 51)]
    assert reads.count == 50
    assert next(lists) == 50


def test_the_last_step_is_always_reported() -> None:
    point, reported = Point(), []
    terms = scripted(point, [1.0] * 107)
    train(point, terms, SGD.replace(steps=107), lambda step, steps, values: reported.append(step))
    assert reported == [*range(2, 107, 2), 107]


@pytest.mark.parametrize(("n_labels", "batch"), [(12, 4), (12, 1), (9, 3)])
def test_each_label_is_seen_once_per_epoch(n_labels: int, batch: int) -> None:
    batches = LabelBatches(n_labels, batch, torch.Generator().manual_seed(0))
    epochs = [
        torch.cat([batches.next() for _ in range(n_labels // batch)]).tolist() for _ in range(5)
    ]
    assert all(sorted(epoch) == list(range(n_labels)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 5, "epochs have different orders"


def test_no_label_is_seen_twice_in_an_epoch_or_never() -> None:
    """Ten rows in batches of four: each epoch has eight of them, another eight each time."""
    batches = LabelBatches(10, 4, torch.Generator().manual_seed(0))
    seen = torch.zeros(10)
    for _ in range(2000):
        epoch = torch.cat([batches.next(), batches.next()])
        assert len(epoch.unique()) == 8
        seen += epoch.bincount(minlength=10)
    assert (seen - 1600).abs().max() < 5 * math.sqrt(2000 * 0.8 * 0.2)


def test_few_labels_are_all_seen_at_every_step() -> None:
    batches = LabelBatches(3, 256, torch.Generator())
    assert [batches.next().tolist() for _ in range(3)] == [[0, 1, 2]] * 3


def test_dtype_and_device_follow_the_labels_unless_they_are_set() -> None:
    half, single, double = (torch.zeros(1, 1, dtype=d) for d in (torch.half, None, torch.double))
    auto = TrainConfig()
    assert [auto.pick_dtype(x) for x in (half, single, double)] == [
        torch.float32,
        torch.float32,
        torch.float64,
    ]
    assert TrainConfig(dtype="float32").pick_dtype(double) == torch.float32
    assert TrainConfig(dtype="float64").pick_dtype(single) == torch.float64
    assert TrainConfig(device="cpu").pick_device() == torch.device("cpu")


@pytest.mark.parametrize("pairing", ["every", "one"])
def test_same_seed_same_posterior_bit_by_bit(
    quick: gpn.GPNConfig, line: gpn.Task, pairing: str
) -> None:
    train = quick.train.replace(steps=20, label_batch=2, device="cpu")
    config = quick.replace(pairing=pairing, train=train)
    seeds = (0, 0, torch.Generator().manual_seed(5), torch.Generator().manual_seed(5), 1)
    first, repeated, generator, same_generator, other = (
        gpn.GPN(config).fit(line, rng=seed).sample(line.x_obs, 10, rng=1) for seed in seeds
    )
    assert torch.equal(first, repeated)
    assert torch.equal(generator, same_generator)
    assert not torch.equal(first, other)
    assert not torch.equal(first, generator)


def test_weight_decay_skips_undecayed_modules() -> None:
    """Without a gradient, each step multiplies decayed parameters by 1 − lr · decay."""
    decayed, free = Point(2.0), Point(2.0)
    both = torch.nn.ModuleList([decayed, free])
    config = SGD.replace(steps=3, learning_rate=0.1, weight_decay=0.5)

    def zero_loss() -> Terms:
        return {"loss": 0.0 * (decayed.at + free.at)}

    train(both, zero_loss, config, undecayed=[free])
    assert float(free.at.detach()) == 2.0
    assert float(decayed.at.detach()) == pytest.approx(2.0 * 0.95**3)


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_a_lower_precision_gives_nearly_the_same_fit_and_is_reset(precision: str) -> None:
    x = torch.linspace(-2, 2, 60)[:, None]
    task = gpn.Task(x, x.sin(), pool=x)
    common = {"beta": 0.1, "anchor": "independent", "trunk": gpn.MLPTrunk(widths=(64, 64))}
    before = torch.get_float32_matmul_precision()
    plain, coarse = (
        gpn.GPN(
            gpn.GPNConfig(**common, train=gpn.TrainConfig(steps=300, precision=p, device="cpu"))
        ).fit(task, rng=0)
        for p in ("float32", precision)
    )
    assert torch.get_float32_matmul_precision() == before
    assert coarse.dtype == torch.float32
    torch.testing.assert_close(coarse.mean(x), plain.mean(x), atol=0.1, rtol=0)
    torch.testing.assert_close(coarse.std(x), plain.std(x), atol=0.1, rtol=0)


def test_the_network_of_a_bf16_fit_runs_in_bfloat16_and_its_loss_does_not() -> None:
    layer, seen = nn.Linear(3, 1), []

    def terms() -> Terms:
        out = layer(torch.ones(4, 3))
        seen.append(out.dtype)
        return {"data": (out - torch.ones(4, 1)).square().mean()}

    train(layer, terms, TrainConfig(steps=2, precision="bf16"))
    assert seen == [torch.bfloat16] * 2
    assert layer.weight.dtype == layer.weight.grad.dtype == torch.float32  # type: ignore[union-attr]


def test_a_gpu_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert TrainConfig(device="cuda").pick_device().type == "cuda"
    with pytest.raises(ValueError, match=r"one that this machine has, got 'cuda:1' of 1 GPUs"):
        TrainConfig(device="cuda:1").pick_device()


def test_a_fixed_momentum_is_nesterovs() -> None:
    """Three steps at a constant rate against v ← μ v + g, w ← w − η (g + μ v)."""
    rate, momentum = 0.1, 0.9
    config = TrainConfig(
        steps=3, optimiser="sgd", schedule="constant", learning_rate=rate, momentum=momentum
    )
    point = Point(2.0)
    train(point, lambda: {"loss": point.at.square() / 2}, config)
    value, velocity = 2.0, 0.0
    for _ in range(3):
        velocity = momentum * velocity + value
        value -= rate * (value + momentum * velocity)
    assert float(point.at.detach()) == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("settings", [{"momentum": 1.0}, {"momentum": 0.9, "optimiser": "adam"}])
def test_momentum_is_checked(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="momentum must lie between 0 and 1 and go with"):
        TrainConfig(**{"optimiser": "sgd", **settings})


def test_a_linear_schedule_is_a_triangle() -> None:
    point = Point()
    config = TrainConfig(steps=10, optimiser="sgd", schedule="linear", learning_rate=1.0)
    places = [0.0]

    def terms() -> Terms:
        places.append(float(point.at.detach()))
        return {"loss": -point.at}

    train(point, terms, config)
    rates = torch.tensor([*places[2:], float(point.at.detach())]).diff(prepend=torch.zeros(1))
    expected = [1 / 3, 2 / 3, *(k / 8 for k in range(8, 0, -1))]
    torch.testing.assert_close(rates, torch.tensor(expected), atol=1e-5, rtol=0)


def test_averaged_weights_are_the_mean_of_the_last_steps() -> None:
    """At −t after step t, weights e^{−k/h} of the steps k before the last have the mean h − 1."""
    point, steps, horizon = Point(), 400, 20
    train(
        point, scripted(point, [1.0] * steps), SGD.replace(steps=steps, averaging=horizon / steps)
    )
    assert float(point.at.detach()) == pytest.approx(-(steps - (horizon - 1)), abs=0.01)
    with pytest.raises(ValueError, match="averaging must lie in"):
        TrainConfig(averaging=1.0)
