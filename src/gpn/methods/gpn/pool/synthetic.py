"""Synthetic outliers: rows with the statistics of labeled ones, but from another distribution.

A pool holds the OOD rows that somebody thought of, and sometimes none. Images with random phases
have the colours and the spectrum of real ones but no outlines, images of shuffled patches have real
details in the wrong places, and rows of shuffled columns have real values in impossible
combinations. Anchored to the prior, they teach a generator that details alone are not enough.
"""

import torch
from jaxtyping import Float
from torch import Tensor

Images = Float[Tensor, "n c h w"]
PATCHES = 4


def synthetic_outliers(rows: Tensor, count: int, rng: torch.Generator) -> Tensor:
    """`count` outliers made from images, or from rows of a table; other rows are flattened."""
    if rows.ndim == 4:
        return synthetic_images(rows, count, rng)
    return synthetic_rows(rows.flatten(1), count, rng).unflatten(1, rows.shape[1:])


def synthetic_images(images: Images, count: int, rng: torch.Generator) -> Float[Tensor, "m c h w"]:
    """`count` outliers from random images: half with random phases, half of shuffled patches."""
    picked = torch.randint(len(images), (count,), generator=rng, device=rng.device)
    half = count // 2
    some = images[picked.to(images.device)]
    return torch.cat([random_phases(some[:half], rng), shuffled_patches(some[half:], rng)])


def random_phases(images: Images, rng: torch.Generator) -> Images:
    """The same power at every frequency, shifted by random phases that all channels share.

    Frequencies that are their own mirror image, among them an image's mean, must stay real, and
    keep half of their power on average.
    """
    if len(images) == 0:
        return images
    spectrum = torch.fft.rfft2(images)
    angles = _uniform((len(images), 1, *spectrum.shape[2:]), rng, images) * 2 * torch.pi
    turned = spectrum * torch.polar(torch.ones_like(angles), angles)
    return torch.fft.irfft2(turned, s=images.shape[2:])


def shuffled_patches(images: Images, rng: torch.Generator) -> Images:
    """Each image cut into 4 × 4 patches in random order; left-over pixels stay in place."""
    n, c, h, w = images.shape
    rows, columns = min(PATCHES, h), min(PATCHES, w)
    tall, wide = h // rows, w // columns
    order = _uniform((n, rows * columns), rng, images).argsort(1)
    area = images[:, :, : rows * tall, : columns * wide]
    patches = area.reshape(n, c, rows, tall, columns, wide).permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
    moved = patches[torch.arange(n, device=images.device)[:, None], order]
    back = moved.unflatten(1, (rows, columns)).permute(0, 3, 1, 4, 2, 5)
    shuffled = images.clone()
    shuffled[:, :, : rows * tall, : columns * wide] = back.reshape(area.shape)
    return shuffled


def synthetic_rows(rows: Float[Tensor, "n d"], count: int, rng: torch.Generator) -> Tensor:
    """`count` rows from labeled ones: half uniform in a box, half with shuffled columns.

    The box is each column's range, a fifth wider on both sides. A row of shuffled columns takes
    each value from another labeled row, so that values appear in new combinations.
    """
    low, high = rows.amin(0), rows.amax(0)
    margin, half = 0.2 * (high - low), count // 2
    unit = _uniform((half, rows.shape[1]), rng, rows)
    in_box = low - margin + (high - low + 2 * margin) * unit
    shape = (count - half, rows.shape[1])
    picked = torch.randint(len(rows), shape, generator=rng, device=rng.device).to(rows.device)
    return torch.cat([in_box, rows.gather(0, picked)])


def _uniform(shape: tuple[int, ...], rng: torch.Generator, like: Tensor) -> Tensor:
    return torch.rand(shape, generator=rng, device=rng.device).to(like)
