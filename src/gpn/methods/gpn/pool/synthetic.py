"""Synthetic outliers: rows with the statistics of labeled ones, but from another distribution.

A pool holds the OOD rows that somebody thought of, and sometimes none. Each kind of synthetic image
takes something away from real ones: outlines (random phases, smooth noise, warped images), the
order of parts (shuffled patches), the whole (enlarged crops, tiles), all detail but one outline
(silhouettes), or all but a pattern that repeats (waves). Rows of shuffled columns have real values
in impossible combinations. Anchored to the prior, they teach a generator that details alone are not
enough.
"""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

Images = Float[Tensor, "n c h w"]
MakeImages = Callable[[Images, torch.Generator], Images]
CHUNK_IMAGES = 5000
NOISE_SIZES = 2, 3, 4, 6, 8, 12, 16


def synthetic_outliers(rows: Tensor, count: int, rng: torch.Generator) -> Tensor:
    """`count` outliers made from images, or from rows of a table; other rows are flattened."""
    if rows.ndim == 4:
        return synthetic_images(rows, count, rng)
    return synthetic_rows(rows.flatten(1), count, rng).unflatten(1, rows.shape[1:])


def synthetic_images(images: Images, count: int, rng: torch.Generator) -> Float[Tensor, "m c h w"]:
    """`count` outliers from random images, as many of each kind."""
    picked = torch.randint(len(images), (count,), generator=rng, device=rng.device)
    picked = picked.to(images.device)
    parts = picked.tensor_split(len(IMAGE_KINDS))
    made = [
        make(images[chunk], rng)
        for make, rows in zip(IMAGE_KINDS.values(), parts, strict=True)
        for chunk in rows.split(CHUNK_IMAGES)
        if len(chunk) > 0
    ]
    return torch.cat([images[:0], *made])


def random_phases(images: Images, rng: torch.Generator) -> Images:
    """The same power at every frequency, with random phases that all channels share.

    The phases are those of white noise, so that the image is real; its mean keeps its own.
    """
    noise = torch.fft.rfft2(_normal((len(images), 1, *images.shape[2:]), rng, images))
    phases = torch.polar(torch.ones_like(noise.real), noise.angle())
    phases[..., 0, 0] = 1.0
    return torch.fft.irfft2(torch.fft.rfft2(images) * phases, s=images.shape[2:])


def shuffled_patches(images: Images, rng: torch.Generator, *, side: int = 4) -> Images:
    """Each image cut into side × side patches in random order; left-over pixels stay in place."""
    n, c, h, w = images.shape
    rows, columns = min(side, h), min(side, w)
    tall, wide = h // rows, w // columns
    order = _uniform((n, rows * columns), rng, images).argsort(1)
    area = images[:, :, : rows * tall, : columns * wide]
    patches = area.reshape(n, c, rows, tall, columns, wide).permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
    moved = patches[torch.arange(n, device=images.device)[:, None], order]
    back = moved.unflatten(1, (rows, columns)).permute(0, 3, 1, 4, 2, 5)
    shuffled = images.clone()
    shuffled[:, :, : rows * tall, : columns * wide] = back.reshape(area.shape)
    return shuffled


def smooth_noise(images: Images, rng: torch.Generator) -> Images:
    """Noise of a random scale in random colours, with the images' mean and deviation."""
    n, c = images.shape[:2]
    mean, std = _mean_and_std(images)
    contrast = 0.3 + 1.2 * _uniform((n, 1, 1, 1), rng, images)
    colour = 0.8 * _normal((n, c, 1, 1), rng, images)
    return mean + std * (colour + contrast * _noise_field(images, c, rng))


def enlarged_crops(images: Images, rng: torch.Generator) -> Images:
    """A sixteenth to a quarter of each image, enlarged to its full size."""
    share = 0.25 + 0.25 * _uniform((len(images), 1, 1), rng, images)
    return _resampled(images, share * _grid(images), share, rng)


def tiled_crops(images: Images, rng: torch.Generator) -> Images:
    """A small crop repeated over the image, each tile the mirror image of its neighbours."""
    share = 0.15 + 0.2 * _uniform((len(images), 1, 1), rng, images)
    tiles = _grid(images) / share / (1.0 + _uniform((len(images), 1, 1), rng, images))
    folded = ((tiles + 1) % 4 - 2).abs() - 1  # back and forth between −1 and 1
    return _resampled(images, share * folded, share, rng)


def silhouettes(images: Images, rng: torch.Generator) -> Images:
    """Two plain colours of each image, with a random outline between them."""
    n, c = images.shape[:2]
    first, second = _two_colours(images, rng)
    sharp = 20 * _uniform((n, 1, 1, 1), rng, images) + 2
    mask = torch.sigmoid(sharp * _noise_field(images, 1, rng))
    _, std = _mean_and_std(images)
    grain = 0.2 * std * _uniform((n, 1, 1, 1), rng, images) * _noise_field(images, c, rng)
    return torch.lerp(first, second, mask) + grain


def waves(images: Images, rng: torch.Generator) -> Images:
    """Stripes, checks or dots in two colours of each image, somewhat bent: a pattern, no parts."""
    n, (h, w) = len(images), images.shape[2:]
    first, second = _two_colours(images, rng)
    sharpness = _uniform((n, 1, 1, 1), rng, images).square()
    level = 0.4 * _normal((n, 1, 1, 1), rng, images)
    mask = torch.sigmoid((2 + 16 * sharpness) * (_wave_heights(images, rng) - level))
    _, std = _mean_and_std(images)
    contrast = 0.3 * _uniform((n, 1, 1, 1), rng, images)
    coarse = contrast * _noise_field(images, images.shape[1], rng)
    contrast = 0.4 * _uniform((n, 1, 1, 1), rng, images).square()
    fine = contrast * _normal((n, 1, h, w), rng, images)
    return torch.lerp(first, second, mask) + std * (coarse + fine)


def warped(images: Images, rng: torch.Generator) -> Images:
    """Pixels moved far by a smooth field: local patterns without the outlines of things."""
    far = 0.3 + 0.4 * _uniform((len(images), 1, 1, 1), rng, images)
    at = _bent_grid(images, far, rng, size=5)
    return functional.grid_sample(
        images, at, mode="bilinear", padding_mode="reflection", align_corners=True
    )


IMAGE_KINDS: dict[str, MakeImages] = {
    "random_phases": random_phases,
    "patches_4": shuffled_patches,
    "patches_8": partial(shuffled_patches, side=8),
    "smooth_noise": smooth_noise,
    "enlarged_crops": enlarged_crops,
    "tiled_crops": tiled_crops,
    "silhouettes": silhouettes,
    "waves": waves,
    "warped": warped,
}


def _mean_and_std(images: Images) -> tuple[Tensor, Tensor]:
    """Of each channel."""
    var, mean = torch.var_mean(images, (0, 2, 3), correction=0, keepdim=True)
    return mean, var.sqrt()


def _two_colours(images: Images, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Of two random pixels of each image, (n, c, 1, 1) each."""
    n, c, h, w = images.shape
    pixels = torch.randint(h * w, (n, 2), generator=rng, device=rng.device).to(images.device)
    colours = images.flatten(2).gather(2, pixels[:, None].expand(-1, c, -1))
    return colours[:, :, :1, None], colours[:, :, 1:, None]


def _wave_heights(images: Images, rng: torch.Generator) -> Float[Tensor, "n 1 h w"]:
    """Of a sine, or the product or sum of two at right angles: half a wave to eight per image."""
    n = len(images)
    bend = 0.6 * _uniform((n, 1, 1, 1), rng, images).square()
    x, y = _bent_grid(images, bend, rng, size=4)[:, None].unbind(-1)
    turn = torch.pi * _uniform((n, 1, 1, 1), rng, images)
    speed = torch.pi * 2 ** (3 * _uniform((2, n, 1, 1, 1), rng, images))
    start = 2 * torch.pi * _uniform((2, n, 1, 1, 1), rng, images)
    across, along = turn.cos() * x + turn.sin() * y, turn.cos() * y - turn.sin() * x
    one, two = (speed[0] * across + start[0]).sin(), (speed[1] * along + start[1]).sin()
    kind = _uniform((n, 1, 1, 1), rng, images)
    return torch.where(kind < 0.4, one, torch.where(kind < 0.7, one * two, one + two))


def _noise_field(images: Images, channels: int, rng: torch.Generator) -> Float[Tensor, "n k h w"]:
    """Smooth noise of about unit variance, each part of the images at a scale of its own."""
    n, shape = len(images), images.shape[2:]
    fields = []
    for size, part in zip(NOISE_SIZES, torch.arange(n).tensor_split(len(NOISE_SIZES)), strict=True):
        coarse = _normal((len(part), channels, size, size), rng, images)
        fields.append(functional.interpolate(coarse, size=shape, mode="bicubic"))
    return torch.cat(fields)


def _grid(images: Images) -> Float[Tensor, "1 p 2"]:
    """The pixels' positions (x, y) between −1 and 1, row by row."""
    lines = (torch.linspace(-1, 1, size).to(images) for size in images.shape[2:])
    down, right = torch.meshgrid(*lines, indexing="ij")
    return torch.stack([right, down], dim=-1).flatten(0, 1)[None]


def _bent_grid(
    images: Images, far: Float[Tensor, "n 1 1 1"], rng: torch.Generator, *, size: int
) -> Float[Tensor, "n h w 2"]:
    """The pixels' positions, moved by smooth noise of size × size knots and deviation `far`."""
    shape = images.shape[2:]
    knots = _normal((len(images), 2, size, size), rng, images)
    field = functional.interpolate(knots, size=shape, mode="bicubic").movedim(1, -1)
    return _grid(images).unflatten(1, shape) + far * field


def _resampled(
    images: Images,
    offsets: Float[Tensor, "n p 2"],
    share: Float[Tensor, "n 1 1"],
    rng: torch.Generator,
) -> Images:
    """Pixels at `offsets` around a random centre, so that crops of that share stay inside."""
    centre = (1 - share) * (2 * _uniform((len(images), 1, 2), rng, images) - 1)
    at = (centre + offsets).unflatten(1, images.shape[2:])
    return functional.grid_sample(images, at, mode="bilinear", align_corners=True)


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


def _normal(shape: tuple[int, ...], rng: torch.Generator, like: Tensor) -> Tensor:
    return torch.randn(shape, generator=rng, device=rng.device).to(like)
