"""Flips and shifts: a moved image is the image, somewhere else."""

from typing import Any

import pytest
import torch

from gpn.data import FlipAndShift


def image() -> torch.Tensor:
    return torch.arange(1, 26, dtype=torch.float32).reshape(1, 1, 5, 5)


def test_every_result_is_a_shift_of_the_image_or_of_its_mirror() -> None:
    batch = image().expand(400, 1, 5, 5)
    moved = FlipAndShift(shift=1)(batch, torch.Generator().manual_seed(0))
    padded = torch.nn.functional.pad(image(), [1] * 4)[0, 0]
    windows = [padded[i : i + 5, j : j + 5] for i in range(3) for j in range(3)]
    allowed = torch.stack([w for window in windows for w in (window, window.flip(1))])
    same = (moved[:, 0, None] == allowed).flatten(2).all(2)
    assert same.any(1).all()
    assert same.any(0).all(), "all eighteen of them turn up"
    assert moved.shape == batch.shape


def test_without_flip_and_shift_nothing_changes() -> None:
    batch = torch.rand(3, 2, 4, 6, generator=torch.Generator().manual_seed(0))
    assert torch.equal(FlipAndShift(shift=0, flip=False)(batch, torch.Generator()), batch)


def test_the_generator_decides() -> None:
    batch, change = torch.rand(8, 1, 6, 6), FlipAndShift(shift=2)
    one, same, other = (change(batch, torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_channels_come_last_in_memory() -> None:
    x = torch.randn(4, 3, 8, 8)
    moved = FlipAndShift()(x, torch.Generator())
    assert moved.is_contiguous(memory_format=torch.channels_last)


def test_only_images_can_be_shifted_and_never_backwards() -> None:
    with pytest.raises(ValueError, match=r"\(n, channels, height, width\).*got \(4, 3\)"):
        FlipAndShift()(torch.zeros(4, 3), torch.Generator())
    with pytest.raises(ValueError, match=r"shift must not be negative, got -1"):
        FlipAndShift(shift=-1)


def test_cutout_blanks_one_square_of_its_size() -> None:
    """A square that reaches over the edge is smaller; all other pixels stay."""
    x = torch.ones(500, 2, 9, 9)
    cut = FlipAndShift(shift=0, flip=False, cutout=4)(x, torch.Generator().manual_seed(0))
    blank = cut[:, 0] == 0
    assert torch.equal(blank, cut[:, 1] == 0)
    height, width = blank.any(2).sum(1), blank.any(1).sum(1)
    assert torch.equal(blank.sum((1, 2)), height * width)
    assert height.max() == width.max() == 4
    assert blank.any(0).all(), "every pixel is blanked at some time"


def test_reflected_padding_shows_the_image_and_zeros_do_not() -> None:
    x = torch.rand(200, 1, 6, 6, generator=torch.Generator().manual_seed(1)) + 1
    zeros, reflect = (
        FlipAndShift(shift=2, flip=False, padding=padding)(x, torch.Generator().manual_seed(0))
        for padding in ("zeros", "reflect")
    )
    inside = zeros > 0
    assert not inside.all()
    assert torch.equal(zeros[inside], reflect[inside])
    assert (reflect >= 1).all()
    assert all(torch.isin(after, before).all() for before, after in zip(x, reflect, strict=True))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cutout": -1}, "cutout must not be negative, got -1"),
        ({"padding": "edge"}, r"padding must be one of \['zeros', 'reflect'\], got 'edge'"),
    ],
)
def test_settings_of_cutout_and_padding_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FlipAndShift(**settings)
