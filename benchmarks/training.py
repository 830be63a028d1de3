"""What a step of training costs: against the trunk on labels alone, and against an ensemble."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from benchmarks.harness import Row, in_turn, ratio
from benchmarks.networks import (
    Training,
    gpn_parts,
    gpn_training,
    plain_feed,
    plain_network,
    training,
)
from benchmarks.place import Place
from gpn import TrainConfig
from gpn.core.networks.trunks import Trunk
from gpn.core.types import as_generator
from gpn.methods.ensemble.ensemble import EnsembleConfig, ensemble_step
from gpn.methods.gpn.model.generator import AffineGenerator

STEPS, QUICK_STEPS, REPEATS, QUICK_REPEATS = 200, 5, 7, 2
MEMBERS, MEMBER_STEPS = 10, 40


def gpn_against_labels(place: Place) -> Iterator[Row]:
    """A GPN's step, as many pool rows as labels, against the same trunk on the labels alone."""
    plan = place.plan("cifar10")
    for graphs in ("auto", "no"):
        config = plan.train.replace(graphs=graphs)
        works = {"GPN": _gpn(place, config), "trunk on labels": _plain(place, config)}
        times = in_turn(works, place.choose(REPEATS, QUICK_REPEATS), 1, place.device)
        how = "steps replayed" if graphs == "auto" else "steps as they are"
        what = f"{_steps(place)} steps of {config.label_batch} labels, {how}"
        yield from ratio(what, times, "GPN", "trunk on labels", " (at most 2.15 wanted)")


def gpn_against_ensemble(place: Place) -> Iterator[Row]:
    """A GPN's steps against those of ten output-anchored members as one axis."""
    plan = place.plan("cifar10")
    trunks = {"the same trunk": plan.trunk, "the paper's smaller trunk": plan.ensemble_trunk}
    wanted = {"the same trunk": " (at most 0.25 wanted)"}
    steps = place.choose(MEMBER_STEPS, QUICK_STEPS)
    for name, trunk in trunks.items():
        members = f"{MEMBERS} members"
        works = {
            "GPN": _gpn(place, plan.train, steps),
            members: _ensemble(place, plan.train, trunk, steps),
        }
        times = in_turn(works, place.choose(REPEATS, QUICK_REPEATS), 1, place.device)
        what = f"{steps} steps, members on {name}"
        yield from ratio(what, times, "GPN", members, wanted.get(name, ""))


def profile(place: Place) -> Iterator[Row]:
    """Where a CIFAR-10 step's time goes, from the trunk's own passes upwards."""
    plan = place.plan("cifar10")
    parts = gpn_parts(place, "cifar10", plan.trunk.replace(**plan.extras), pool_weights="equal")
    config, batches = plan.train, parts.batches
    rng = as_generator(0, place.device)
    batch = batches.next(rng)
    network = plain_network(place, "cifar10", plan.trunk)
    works = {
        "rows and augmentation": lambda: batches.next(rng),
        "trunk forward": _passes(network, batch.x, config, backward=False),
        "trunk forward and backward": _passes(network, batch.x, config, backward=True),
        "step of the trunk on as many labels": _plain(place, config, 1, 2 * config.label_batch),
        "step of the GPN": gpn_training(place, parts, config, 1),
        "step of the GPN, nothing replayed": gpn_training(
            place, parts, config.replace(graphs="no"), 1
        ),
    }
    rounds = place.choose(50, 2)
    times = in_turn(works, rounds, 10, place.device)
    floor = "trunk forward and backward"
    for name, value in times.items():
        yield Row(name, 1000 * value, "ms", None)
        yield Row(f"{name}, share", value / times[floor], "times", floor)
    yield from _kernels(place, gpn_training(place, parts, config.replace(graphs="no"), 1))


def _kernels(place: Place, step: Training) -> Iterator[Row]:
    """The ten operations that the device spends most time on, over ten steps.

    The kernels that operations start are events of the device itself: counted with them, every
    time would be there twice.
    """
    step()
    activities = [torch.profiler.ProfilerActivity.CPU]
    if place.device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profiled:
        for _ in range(place.choose(10, 2)):
            step()
    on_device = place.device.type == "cuda"
    events = [
        (event.key, event.self_device_time_total if on_device else event.self_cpu_time_total)
        for event in profiled.key_averages()
        if event.device_type == torch.autograd.DeviceType.CPU
    ]
    total = sum(spent for _, spent in events)
    for key, spent in sorted(events, key=lambda event: -event[1])[:10]:
        yield Row(f"operation {key[:60]}", 100 * spent / total, "% of the step")


def _passes(
    network: AffineGenerator, x: Tensor, config: TrainConfig, *, backward: bool
) -> Callable[[], None]:
    """The trunk's own passes at the rows of one step, in the training's precision."""

    def run() -> None:
        with torch.autocast(x.device.type, torch.bfloat16, enabled=config.precision == "bf16"):
            loss = network.columns(x).float().square().mean()
        if backward:
            network.zero_grad(set_to_none=True)
            loss.backward()

    return run


def _gpn(place: Place, config: TrainConfig, steps: int | None = None) -> Training:
    plan = place.plan("cifar10")
    trunk = plan.trunk.replace(**plan.extras)
    parts = gpn_parts(place, "cifar10", trunk, pool_weights="equal")
    return gpn_training(place, parts, config, steps or _steps(place))


def _plain(
    place: Place, config: TrainConfig, steps: int | None = None, batch: int | None = None
) -> Training:
    plan = place.plan("cifar10")
    network = plain_network(place, "cifar10", plan.trunk.replace(**plan.extras))
    feed = plain_feed(place, "cifar10", network, batch or config.label_batch)
    return training(network, feed, config, steps or _steps(place))


def _ensemble(place: Place, config: TrainConfig, trunk: Trunk, steps: int) -> Training:
    asked = EnsembleConfig(regularise="outputs", n_members=MEMBERS, trunk=trunk, train=config)
    members, feed, _ = ensemble_step(asked, place.split("cifar10").task, as_generator(0))
    return training(members, feed, config, steps)


def _steps(place: Place) -> int:
    return place.choose(STEPS, QUICK_STEPS)
