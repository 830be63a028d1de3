"""MNIST against Fashion-MNIST, and CIFAR-10 against SVHN.

Labels are the training images but for 5,000 that choose the settings. The pool is half those
images and half training images of the other set, which also gives some to choose settings on. Test
images never enter a pool, nor does any image of the `unseen` sets.
"""

from pathlib import Path

import torch
from torch import Tensor

from experiments.paper.split import Rows, Split
from gpn import Task, data

VALID = 5000
OOD_VALID_SHARE = 0.1


def mnist(seed: int, folder: Path | None = None) -> Split:
    """Digits are known, clothes are strangers, Japanese characters are never seen."""
    augment = data.FlipAndShift(shift=2, flip=False)
    return _split("mnist", "fashion-mnist", {"kmnist": "kmnist"}, seed, folder, augment)


def cifar10(seed: int, folder: Path | None = None, ood: str = "svhn10k") -> Split:
    """Objects are known, house numbers (or any set that `ood` names) are strangers."""
    augment = data.FlipAndShift()
    return _split("cifar10", ood, {"textures": "textures32"}, seed, folder, augment)


def _split(
    known: str,
    strange: str,
    unseen: dict[str, str],
    seed: int,
    folder: Path | None,
    augment: data.FlipAndShift,
) -> Split:
    ours, theirs = data.images(known, folder), data.images(strange, folder)
    order = torch.randperm(len(ours.train.x), generator=torch.Generator().manual_seed(seed))
    train, valid = order[VALID:], order[:VALID]
    scale = _Scale(ours.train.x[train])
    x, x_ood = scale(ours.train.x), scale(theirs.train.x)
    cut = round(OOD_VALID_SHARE * len(x_ood))
    strangers = x_ood[cut:]
    pool = torch.cat([x[train], _as_often(strangers, len(train))])
    return Split(
        Task(x[train], ours.train.y[train], pool=pool, n_classes=10, augment=augment),
        Rows(x[valid], ours.train.y[valid], x_ood[:cut]),
        Rows(scale(ours.test.x), ours.test.y, scale(theirs.test.x)),
        strangers,
        {name: scale(data.images(file, folder).test.x) for name, file in unseen.items()},
    )


class _Scale:
    """Standardises each channel by the labeled images."""

    def __init__(self, images: Tensor) -> None:
        pixels = images[:10_000].float() / 255
        self.mean = pixels.mean((0, 2, 3), keepdim=True)
        self.std = pixels.std((0, 2, 3), keepdim=True)

    def __call__(self, images: Tensor) -> Tensor:
        return (images.float() / 255 - self.mean) / self.std


def _as_often(images: Tensor, count: int) -> Tensor:
    """Repeated until there are about `count` of them: half of the pool by sampling probability."""
    return images.repeat(max(1, round(count / len(images))), 1, 1, 1)
