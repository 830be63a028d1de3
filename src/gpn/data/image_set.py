"""Image sets by name."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from gpn.data import cifar, idx, npz, svhn
from gpn.data.image_part import ImagePart, PartName
from gpn.data.store import DataError, Folder, Source, data_folder

Reader = Callable[[Source, PartName, Path], ImagePart]
OFFICIAL: dict[str, tuple[Source, Reader]] = {
    "mnist": (idx.MNIST, idx.read_part),
    "fashion-mnist": (idx.FASHION_MNIST, idx.read_part),
    "kmnist": (idx.KMNIST, idx.read_part),
    "cifar10": (cifar.CIFAR10, cifar.read_part),
    "svhn": (svhn.SVHN, svhn.read_part),
}


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images whose parts are read at their first use, and cached."""

    source: Source
    folder: Path
    reader: Reader

    @cached_property
    def train(self) -> ImagePart:
        return self.reader(self.source, "train", self.folder)

    @cached_property
    def test(self) -> ImagePart:
        return self.reader(self.source, "test", self.folder)


def images(name: str, folder: Folder = None) -> ImageSet:
    """The image set `name`: mnist, fashion-mnist, kmnist, cifar10, svhn, or that of `<name>.npz`.

    A name that ends in .npz always means that file. Nothing is read yet: `images("kmnist").test`
    needs only the files of that part. A part whose images are not in the data folder (see
    `data_folder`) raises `MissingData` at its first use.
    """
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise DataError(
            f"the name of an image set must be one of {', '.join(OFFICIAL)}, or that of an .npz "
            f"file without its folder, got {name!r}; pass the folder as folder=..."
        )
    user_set = (_user_source(name.removesuffix(".npz")), npz.read_part)
    source, reader = OFFICIAL.get(name, user_set)
    return ImageSet(source, data_folder(folder), reader)


def _user_source(name: str) -> Source:
    """The source of an image set that the user has made."""
    return Source(
        name,
        f"its author (np.savez with {', '.join(npz.NAMES)}), or use one of the official "
        f"names: {', '.join(OFFICIAL)}",
        "those of its images",
        "",
        {f"{name}.npz": ()},
    )
