"""Made-up strangers: like the labeled rows in their statistics, unlike them in what they are.

A pool holds the strangers that somebody thought of, and sometimes none. Images of random phases
have the colours and the spectrum of real ones and no outline, those of shuffled patches have real
details in the wrong places, and rows of shuffled columns have real values that do not belong
together; anchored to the prior, they teach a generator that details alone are not enough.
"""

import torch
from jaxtyping import Float
from torch import Tensor

Images = Float[Tensor, "n c h w"]

PATCHES = 4


def made_up(rows: Tensor, count: int, rng: torch.Generator) -> Tensor:
    """`count` strangers to images, or to rows of a table; other rows are taken for such."""
    if rows.ndim == 4:
        return made_up_images(rows, count, rng)
    return made_up_rows(rows.flatten(1), count, rng).unflatten(1, rows.shape[1:])


def made_up_images(images: Images, count: int, rng: torch.Generator) -> Float[Tensor, "m c h w"]:
    """`count` strangers out of random images, every other one of each kind."""
    picked = torch.randint(len(images), (count,), generator=rng, device=rng.device)
    half = count // 2
    some = images[picked.to(images.device)]
    return torch.cat([random_phases(some[:half], rng), shuffled_patches(some[half:], rng)])


def random_phases(images: Images, rng: torch.Generator) -> Images:
    """The same power at every frequency, shifted by random phases that all channels share.

    Waves that have to be their own mirror image to be real, among them an image's mean, keep half
    of their power on average: what a phase leaves of them.
    """
    if len(images) == 0:
        return images
    waves = torch.fft.rfft2(images)
    angles = _uniform((len(images), 1, *waves.shape[2:]), rng, images) * 2 * torch.pi
    turned = waves * torch.polar(torch.ones_like(angles), angles)
    return torch.fft.irfft2(turned, s=images.shape[2:])


def shuffled_patches(images: Images, rng: torch.Generator) -> Images:
    """Each image cut into 4 by 4 patches that change places; what is left over stays as it is."""
    n, c, h, w = images.shape
    rows, columns = min(PATCHES, h), min(PATCHES, w)
    tall, wide = h // rows, w // columns
    order = _uniform((n, rows * columns), rng, images).argsort(1)
    part = images[:, :, : rows * tall, : columns * wide]
    patches = part.reshape(n, c, rows, tall, columns, wide).permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
    moved = patches[torch.arange(n, device=images.device)[:, None], order]
    back = moved.unflatten(1, (rows, columns)).permute(0, 3, 1, 4, 2, 5)
    shuffled = images.clone()
    shuffled[:, :, : rows * tall, : columns * wide] = back.reshape(part.shape)
    return shuffled


def _uniform(shape: tuple[int, ...], rng: torch.Generator, like: Tensor) -> Tensor:
    return torch.rand(shape, generator=rng, device=rng.device).to(like)


def made_up_rows(rows: Float[Tensor, "n d"], count: int, rng: torch.Generator) -> Tensor:
    """`count` rows out of nothing but labeled ones, every other one of each kind.

    Uniform over each column's range, a fifth wider on both sides; and real values, but each column
    taken from a row of its own, so that what belongs together no longer does.
    """
    low, high = rows.amin(0), rows.amax(0)
    spare, half = 0.2 * (high - low), count // 2
    unit = _uniform((half, rows.shape[1]), rng, rows)
    anywhere = low - spare + (high - low + 2 * spare) * unit
    shape = (count - half, rows.shape[1])
    picked = torch.randint(len(rows), shape, generator=rng, device=rng.device).to(rows.device)
    return torch.cat([anywhere, rows.gather(0, picked)])
