"""Augmentations of images."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

Images = Float[Tensor, "n c h w"]


@dataclass(frozen=True)
class FlipAndShift:
    """Random shifts by up to `shift` pixels in both directions, and mirroring of half the images.

    Pixels beyond the frame are lost, and zeros fill the gap (the mean of standardised images).
    Channels are last in memory, the order that convolutions on a GPU prefer.
    """

    shift: int = 4
    flip: bool = True

    def __post_init__(self) -> None:
        if self.shift < 0:
            raise ValueError(f"shift must not be negative, got {self.shift}; 0 does not shift.")

    def __call__(self, x: Tensor, rng: torch.Generator) -> Images:
        if x.ndim != 4:
            raise ValueError(
                "images must have the shape (n, channels, height, width) to be flipped and "
                f"shifted, got {tuple(x.shape)}; leave augment out for tables."
            )
        n, _, height, width = x.shape
        down, right = self._offsets(n, rng, x), self._offsets(n, rng, x)
        rows = torch.arange(height, device=x.device) + down[:, None]
        columns = torch.arange(width, device=x.device) + right[:, None]
        if self.flip:
            mirrored = torch.rand(n, generator=rng, device=rng.device).to(x.device) < 0.5
            columns = torch.where(mirrored[:, None], columns.flip(1), columns)
        padded = functional.pad(x, [self.shift] * 4)
        image = torch.arange(n, device=x.device)[:, None, None]
        shifted = padded[image, :, rows[:, :, None], columns[:, None, :]]
        return shifted.permute(0, 3, 1, 2)

    def _offsets(self, n: int, rng: torch.Generator, like: Tensor) -> Tensor:
        offsets = torch.randint(2 * self.shift + 1, (n,), generator=rng, device=rng.device)
        return offsets.to(like.device)
