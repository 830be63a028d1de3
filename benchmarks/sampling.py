"""Draws and moments against one forward pass of the same trunk with an ordinary head."""

from collections.abc import Iterator

import torch
from torch import Tensor

from benchmarks.context import BenchmarkContext
from benchmarks.harness import Row, in_turn, ratio
from benchmarks.networks import Work, plain_network
from gpn import GPN, GPNConfig
from gpn.methods.gpn.posterior import GPNPosterior
from gpn.training.torch_state import matmul_precision

N_DRAWS, REPEATS, QUICK_REPEATS, WARM_UPS = 100, 30, 2, 5
PRECISIONS = {"tf32": "TF32", "float32": "torch's own precision"}
FIT_STEPS = 200


def draws(context: BenchmarkContext) -> Iterator[Row]:
    """100 draws at the CIFAR-10 test images, against one forward pass of the trunk."""
    posterior, x = _fit(context), _images(context)
    functions = posterior.functions(N_DRAWS, torch.Generator(context.device).manual_seed(0))
    works: dict[str, Work] = {
        f"{N_DRAWS} draws": lambda: posterior.sample(x, N_DRAWS, rng=0),
        f"{N_DRAWS} draws of codes at hand": lambda: functions(x),
    }
    yield from _against_forward(context, works, x, " (at most 1.05 wanted)")


def moments(context: BenchmarkContext) -> Iterator[Row]:
    """Mean and variance in closed form at the same images, against the same forward pass."""
    posterior, x = _fit(context), _images(context)
    works: dict[str, Work] = {"mean and variance": lambda: posterior.moments(x)}
    yield from _against_forward(context, works, x, " (at most 1.02 wanted)")


@torch.no_grad()
def _against_forward(
    context: BenchmarkContext, works: dict[str, Work], x: Tensor, target: str
) -> Iterator[Row]:
    network = plain_network(context, "cifar10")
    ours, *others = works
    everything = {**works, "one forward": lambda: network.columns(x)[0]}
    repeats = context.size(REPEATS, QUICK_REPEATS)
    for setting, precision in PRECISIONS.items():
        with matmul_precision(setting):
            times = in_turn(everything, repeats, WARM_UPS, context.device)
        what = f"{len(x)} images, {precision}"
        yield from ratio(what, times, ours, "one forward", target)
        for name in others:
            value = times[name] / times["one forward"]
            yield Row(f"{what}: {name}, ratio", value, "times", "one forward")


def _images(context: BenchmarkContext) -> Tensor:
    """The test images on the device, in the trunk's memory format."""
    x = context.split("cifar10").test.x_id.to(context.device)
    return x.contiguous(memory_format=torch.channels_last)


def _fit(context: BenchmarkContext) -> GPNPosterior:
    """A GPN on the experiments' trunk, after a short training."""
    plan = context.plan("cifar10")
    train = plan.train.replace(steps=context.size(FIT_STEPS, 5))
    beta = context.beta("cifar10")
    config = GPNConfig(beta=beta, trunk=plan.trunk, train=train, pool_weights="equal")
    return GPN(config).fit(context.split("cifar10").task, rng=0)
