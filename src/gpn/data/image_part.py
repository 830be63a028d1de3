"""Images with their labels."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from gpn.data.store import MissingData

PartName = Literal["train", "test"]


@dataclass(frozen=True, eq=False)
class ImagePart:
    """The training or the test images of a set; y is None where the file of labels is missing.

    no_labels: the error for a caller who needs them, which says where the file must be.
    """

    x: UInt8[Tensor, "n c h w"]
    y: Int64[Tensor, " n"] | None
    no_labels: MissingData | None = None

    def __post_init__(self) -> None:
        if self.x.ndim != 4 or 0 in self.x.shape or self.x.dtype != torch.uint8:
            raise ValueError(
                "images must be bytes of shape (n, c, h, w) with nothing empty, got "
                f"{self.x.dtype} of shape {tuple(self.x.shape)}"
            )
        if self.y is not None and self.y.shape != self.x.shape[:1]:
            raise ValueError(
                f"labels must be one per image, got {tuple(self.y.shape)} labels and "
                f"{len(self.x)} images"
            )

    @property
    def labels(self) -> Int64[Tensor, " n"]:
        """y, or an error where it is missing."""
        if self.y is None:
            raise self.no_labels or MissingData(
                "images must have labels here, got none; make the part with y=..."
            )
        return self.y
