"""Augmentations of images."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

Images = Float[Tensor, "n c h w"]
PADDINGS = {"zeros": "constant", "reflect": "reflect"}


@dataclass(frozen=True)
class FlipAndShift:
    """Random shifts by up to `shift` pixels in both directions, and mirroring of half the images.

    Pixels beyond the frame are lost. The gap is filled with `padding`: "zeros" (the mean of
    standardised images), or "reflect" for the image's own edge, mirrored. `cutout` blanks a square
    of that many pixels at a random place. Channels are last in memory, the order that convolutions
    on a GPU prefer.
    """

    shift: int = 4
    flip: bool = True
    cutout: int = 0
    padding: str = "zeros"

    def __post_init__(self) -> None:
        if self.shift < 0:
            raise ValueError(f"shift must not be negative, got {self.shift}; 0 does not shift.")
        if self.cutout < 0:
            raise ValueError(f"cutout must not be negative, got {self.cutout}; 0 cuts nothing.")
        if self.padding not in PADDINGS:
            raise ValueError(f"padding must be one of {list(PADDINGS)}, got {self.padding!r}.")

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
        padded = functional.pad(x, [self.shift] * 4, mode=PADDINGS[self.padding])
        image = torch.arange(n, device=x.device)[:, None, None]
        shifted = padded[image, :, rows[:, :, None], columns[:, None, :]]
        if self.cutout > 0:
            shifted = shifted.masked_fill(self._hole(n, height, width, rng, x)[..., None], 0.0)
        return shifted.permute(0, 3, 1, 2)

    def _hole(
        self, n: int, height: int, width: int, rng: torch.Generator, like: Tensor
    ) -> Bool[Tensor, "n h w"]:
        """The pixels of a square around a random pixel of each image."""
        inside = []
        for size in (height, width):
            centre = torch.randint(size, (n, 1), generator=rng, device=rng.device).to(like.device)
            first = torch.arange(size, device=like.device) - centre + self.cutout // 2
            inside.append((first >= 0) & (first < self.cutout))
        return inside[0][:, :, None] & inside[1][:, None, :]

    def _offsets(self, n: int, rng: torch.Generator, like: Tensor) -> Tensor:
        offsets = torch.randint(2 * self.shift + 1, (n,), generator=rng, device=rng.device)
        return offsets.to(like.device)
