"""The cost of a training step: against the trunk on labels alone, and against an ensemble."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from benchmarks.context import BenchmarkContext
from benchmarks.harness import Row, in_turn, ratio
from benchmarks.networks import (
    Work,
    ensemble_steps,
    gpn_problem,
    gpn_steps,
    plain_network,
    plain_steps,
)
from gpn import TrainConfig
from gpn.core.types import as_generator
from gpn.methods.gpn.model.generator import AffineGenerator

STEPS, MEMBER_STEPS, QUICK_STEPS, REPEATS, QUICK_REPEATS = 200, 40, 5, 7, 2
N_MEMBERS = 10


def gpn_against_labels(context: BenchmarkContext) -> Iterator[Row]:
    """A GPN's step, as many pool rows as labels, against the same trunk on the labels alone."""
    steps = context.size(STEPS, QUICK_STEPS)
    for graphs, name in {"auto": "steps replayed", "no": "steps as they are"}.items():
        config = context.plan("cifar10").train.replace(graphs=graphs)
        works = {
            "GPN": gpn_steps(context, config, steps),
            "trunk on labels": plain_steps(context, config, steps),
        }
        times = in_turn(works, context.size(REPEATS, QUICK_REPEATS), 1, context.device)
        what = f"{steps} steps of {config.label_batch} labels, {name}"
        yield from ratio(what, times, "GPN", "trunk on labels", " (at most 2.15 wanted)")


def gpn_against_ensemble(context: BenchmarkContext) -> Iterator[Row]:
    """A GPN's steps against those of ten output-anchored members as one axis."""
    plan, steps = context.plan("cifar10"), context.size(MEMBER_STEPS, QUICK_STEPS)
    members = f"{N_MEMBERS} members"
    for name, trunk, target in (
        ("the same trunk", plan.trunk, " (at most 0.25 wanted)"),
        ("the paper's smaller trunk", plan.ensemble_trunk, ""),
    ):
        works = {
            "GPN": gpn_steps(context, plan.train, steps),
            members: ensemble_steps(context, trunk, N_MEMBERS, plan.train, steps),
        }
        times = in_turn(works, context.size(REPEATS, QUICK_REPEATS), 1, context.device)
        yield from ratio(f"{steps} steps, members on {name}", times, "GPN", members, target)


def profile(context: BenchmarkContext) -> Iterator[Row]:
    """Where a CIFAR-10 step's time goes, from the trunk's own passes upwards."""
    plan, batches = context.plan("cifar10"), gpn_problem(context).batches
    config, plain, rng = (
        plan.train,
        plan.train.replace(graphs="no"),
        as_generator(0, context.device),
    )
    x = batches.next(rng).x
    network = plain_network(context, "cifar10", plan.trunk)
    floor = "trunk forward and backward"
    works: dict[str, Work] = {
        "rows and augmentation": lambda: batches.next(rng),
        "trunk forward": _passes(network, x, config, backward=False),
        floor: _passes(network, x, config, backward=True),
        "step of the trunk on as many labels": plain_steps(
            context, config, 1, 2 * config.label_batch
        ),
        "step of the GPN": gpn_steps(context, config, 1),
        "step of the GPN, nothing replayed": gpn_steps(context, plain, 1),
    }
    times = in_turn(works, context.size(50, 2), 10, context.device)
    for name, value in times.items():
        yield Row(name, 1000 * value, "ms", None)
        yield Row(f"{name}, share", value / times[floor], "times", floor)
    yield from _operations(context, gpn_steps(context, plain, 1))


def _operations(context: BenchmarkContext, step: Work) -> Iterator[Row]:
    """The ten operations that take most of the device's time, over ten steps.

    Kernels are events of the device itself; with the operations that start them, every time would
    be counted twice.
    """
    step()
    on_device = context.device.type == "cuda"
    activity = torch.profiler.ProfilerActivity
    activities = [activity.CPU, activity.CUDA] if on_device else [activity.CPU]
    with torch.profiler.profile(activities=activities) as profiled:
        for _ in range(context.size(10, 2)):
            step()
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
