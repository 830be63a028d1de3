"""MNIST against Fashion-MNIST, and CIFAR-10 against SVHN.

Labels are the training images but for 5,000 that choose the settings. The pool is those images
and as many training images of the other set, which also gives some to choose settings on. Test
images never enter a pool, nor does any image of the `unseen` sets.
"""

from pathlib import Path

import torch
from torch import Tensor

from experiments.paper.split import Rows, Split, half_and_half
from gpn import Task, data

VALID = 5000
OOD_VALID_SHARE = 0.1
CIFAR10_OOD = "svhn10k"


def mnist(seed: int, folder: Path | None = None) -> Split:
    """Digits are known, clothes are strangers, Japanese characters are never seen."""
    augment = data.FlipAndShift(shift=2, flip=False)
    return _split("mnist", "fashion-mnist", {"kmnist": "kmnist"}, seed, folder, augment)


def cifar10(seed: int, folder: Path | None = None, ood: str = CIFAR10_OOD) -> Split:
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
    _check_alike(known, ours.train.x, strange, theirs.train.x)
    order = torch.randperm(len(ours.train.x), generator=torch.Generator().manual_seed(seed))
    train, valid = order[VALID:], order[:VALID]
    scale = _Scale(ours.train.x[train])
    x, x_ood = scale(ours.train.x), scale(theirs.train.x)
    cut = round(OOD_VALID_SHARE * len(x_ood))
    strangers = x_ood[cut:]
    pool, y = half_and_half(x[train], strangers), ours.train.labels
    others = {name: file for name, file in unseen.items() if file != strange}
    return Split(
        Task(x[train], y[train], pool=pool, n_classes=10, augment=augment),
        Rows(x[valid], y[valid], x_ood[:cut]),
        Rows(scale(ours.test.x), ours.test.labels, scale(theirs.test.x)),
        strangers,
        {name: scale(data.images(file, folder).test.x) for name, file in others.items()},
        halved=True,
    )


def _check_alike(known: str, ours: Tensor, strange: str, theirs: Tensor) -> None:
    """That strangers are another set of images, and that one network takes both."""
    if strange == known:
        raise data.DataError(
            f"the OOD set must be another one than the known {known}, got {strange}; name another."
        )
    if theirs.shape[1:] != ours.shape[1:]:
        raise data.DataError(
            f"images of the OOD set {strange} must have the shape {tuple(ours.shape[1:])} of "
            f"{known}'s, got {tuple(theirs.shape[1:])}; convert them, or name another set."
        )


class _Scale:
    """Standardises each channel by the labeled images."""

    def __init__(self, images: Tensor) -> None:
        pixels = images[:10_000].float() / 255
        self.mean = pixels.mean((0, 2, 3), keepdim=True)
        self.std = pixels.std((0, 2, 3), keepdim=True)

    def __call__(self, images: Tensor) -> Tensor:
        return (images.float() / 255 - self.mean) / self.std
