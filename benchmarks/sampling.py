"""Draws and moments against one forward pass of the same network with an ordinary head."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from benchmarks.harness import Row, in_turn, ratio
from benchmarks.networks import plain_network
from benchmarks.place import Place
from gpn import GPN, GPNConfig
from gpn.methods.gpn.posterior import GPNPosterior

DRAWS, REPEATS, QUICK_REPEATS, WARM_UPS = 100, 30, 2, 5
PRECISIONS = {"high": "TF32", "highest": "torch's own precision"}
FIT_STEPS = 200


def draws(place: Place) -> Iterator[Row]:
    """100 draws at the CIFAR-10 test images, against one forward pass of the trunk."""
    posterior, x = _fitted(place), _images(place)
    codes = posterior.functions(DRAWS, torch.Generator(place.device).manual_seed(0))
    works: dict[str, Callable[[], Any]] = {
        f"{DRAWS} draws": lambda: posterior.sample(x, DRAWS, rng=0),
        f"{DRAWS} draws of codes at hand": lambda: codes(x),
    }
    yield from _against_a_forward(place, f"{DRAWS} draws", works, x, " (at most 1.05 wanted)")


def moments(place: Place) -> Iterator[Row]:
    """Mean and variance in closed form at the same images, against the same forward pass."""
    posterior, x = _fitted(place), _images(place)
    works = {"mean and variance": lambda: posterior.moments(x)}
    yield from _against_a_forward(place, "mean and variance", works, x, " (at most 1.02 wanted)")


def _against_a_forward(
    place: Place, ours: str, works: dict[str, Callable[[], Any]], x: Tensor, wanted: str
) -> Iterator[Row]:
    network = plain_network(place, "cifar10")

    @torch.no_grad()
    def forward() -> Tensor:
        return network.columns(x)[0]

    def inner(work: Callable[[], Any]) -> Callable[[], Any]:
        return torch.no_grad()(work)

    known = {name: inner(work) for name, work in works.items()}
    for setting, precision in PRECISIONS.items():
        with place.products(setting):
            repeats = place.choose(REPEATS, QUICK_REPEATS)
            times = in_turn({**known, "one forward": forward}, repeats, WARM_UPS, place.device)
        what = f"{len(x)} images, {precision}"
        yield from ratio(what, times, ours, "one forward", wanted)
        for name in list(works)[1:]:
            value = times[name] / times["one forward"]
            yield Row(f"{what}: {name}, ratio", value, "times", "one forward")


def _images(place: Place) -> Tensor:
    """The test images on the device, channels last as the trunk's convolutions like it."""
    x = place.split("cifar10").test.x_id.to(place.device)
    return x.contiguous(memory_format=torch.channels_last)


def _fitted(place: Place) -> GPNPosterior:
    """A GPN on the experiments' trunk, trained for as long as it takes to have a shape."""
    plan = place.plan("cifar10")
    train = plan.train.replace(steps=place.choose(FIT_STEPS, 5))
    config = GPNConfig(
        beta=place.beta("cifar10"), trunk=plan.trunk, train=train, pool_weights="equal"
    )
    return GPN(config).fit(place.split("cifar10").task, rng=0)
