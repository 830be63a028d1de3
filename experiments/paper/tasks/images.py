"""MNIST against Fashion-MNIST, and CIFAR-10 against SVHN.

Labels are the training images except 5,000 for the choice of hyperparameters. The pool is those
images and as many training images of the OOD set, of which a tenth is for validation. Test images
never enter a pool, nor does any image of the `unseen` sets.
"""

from pathlib import Path

import torch
from torch import Tensor

from experiments.paper.tasks.split import Rows, Split, balanced_pool
from gpn import Task, data

N_VALID = 5000
OOD_VALID_SHARE = 0.1
CIFAR10_OOD = "svhn10k"
N_SCALE_IMAGES = 10_000


def mnist(seed: int, folder: Path | None = None) -> Split:
    """Digits are labeled, clothes are OOD, Japanese characters are an unseen OOD set."""
    augment = data.FlipAndShift(shift=2, flip=False)
    return _split("mnist", "fashion-mnist", {"kmnist": "kmnist"}, seed, folder, augment)


def cifar10(seed: int, folder: Path | None = None, ood: str = CIFAR10_OOD) -> Split:
    """Objects are labeled, house numbers (or the set that `ood` names) are OOD."""
    augment = data.FlipAndShift()
    return _split("cifar10", ood, {"textures": "textures32"}, seed, folder, augment)


def _split(
    known: str,
    ood: str,
    unseen: dict[str, str],
    seed: int,
    folder: Path | None,
    augment: data.FlipAndShift,
) -> Split:
    id_images, ood_images = data.images(known, folder), data.images(ood, folder)
    _check_compatible(known, id_images.train.x, ood, ood_images.train.x)
    order = torch.randperm(len(id_images.train.x), generator=torch.Generator().manual_seed(seed))
    train, valid = order[N_VALID:], order[:N_VALID]
    pixels = id_images.train.x[train][:N_SCALE_IMAGES].float() / 255
    mean, std = (f((0, 2, 3), keepdim=True) for f in (pixels.mean, pixels.std))

    def scaled(images: Tensor) -> Tensor:
        """Standardise each channel by the labeled images."""
        return (images.float() / 255 - mean) / std

    x, x_ood, y = scaled(id_images.train.x), scaled(ood_images.train.x), id_images.train.labels
    cut = round(OOD_VALID_SHARE * len(x_ood))
    pool = balanced_pool(x[train], x_ood[cut:])
    others = {name: file for name, file in unseen.items() if file != ood}
    return Split(
        Task(x[train], y[train], pool=pool, n_classes=10, augment=augment),
        Rows(x[valid], y[valid], x_ood[:cut]),
        Rows(scaled(id_images.test.x), id_images.test.labels, scaled(ood_images.test.x)),
        x_ood[cut:],
        {name: scaled(data.images(file, folder).test.x) for name, file in others.items()},
        balanced=True,
    )


def _check_compatible(known: str, id_images: Tensor, ood: str, ood_images: Tensor) -> None:
    """Raise unless the OOD set is another set whose images fit the same network."""
    if ood == known:
        raise data.DataError(
            f"the OOD set must differ from the labeled set {known}, got {ood}; name another."
        )
    if ood_images.shape[1:] != id_images.shape[1:]:
        raise data.DataError(
            f"images of the OOD set {ood} must have the shape {tuple(id_images.shape[1:])} of "
            f"{known}'s, got {tuple(ood_images.shape[1:])}; convert them, or name another set."
        )
