"""Bytes, damaged: cut, flipped, inserted, deleted, spliced, and header numbers made extreme."""

import random
import struct

EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF)
WIDE = (*EXTREMES, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
HEADER = 512  # where most formats keep their claims


def mutated(seeds: list[bytes], rng: random.Random) -> bytes:
    """One of the seeds after one to four changes."""
    content = rng.choice(seeds)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        content = rng.choice(MUTATORS)(content, seeds, rng)
    return content


def truncate(content: bytes, seeds: list[bytes], rng: random.Random) -> bytes:
    return content[: _place(content, rng)]


def flip(content: bytes, seeds: list[bytes], rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8)) if content else 0):
        changed[_place(content, rng) % len(content)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def insert(content: bytes, seeds: list[bytes], rng: random.Random) -> bytes:
    place = _place(content, rng)
    return content[:place] + rng.randbytes(rng.choice((1, 2, 7, 64))) + content[place:]


def delete(content: bytes, seeds: list[bytes], rng: random.Random) -> bytes:
    place = _place(content, rng)
    return content[:place] + content[place + rng.choice((1, 2, 7, 64, 1000)) :]


def splice(content: bytes, seeds: list[bytes], rng: random.Random) -> bytes:
    """The beginning of this with the end of another, or of itself from elsewhere."""
    other = rng.choice(seeds)
    return content[: _place(content, rng)] + other[_place(other, rng) :]


def repeat(content: bytes, seeds: list[bytes], rng: random.Random) -> bytes:
    start = _place(content, rng)
    part = content[start : start + rng.choice((1, 8, 100))]
    return content[:start] + part * rng.choice((2, 3, 50)) + content[start:]


def overwrite(content: bytes, seeds: list[bytes], rng: random.Random) -> bytes:
    """A number of 1, 2, 4 or 8 bytes becomes an extreme one, near the beginning or the end."""
    size, order = rng.choice("BHIQ"), rng.choice("<>")
    values = [value for value in WIDE if value < 1 << 8 * struct.calcsize(size)]
    number = struct.pack(order + size, rng.choice(values))
    place = _place(content, rng)
    return content[:place] + number + content[place + len(number) :]


def _place(content: bytes, rng: random.Random) -> int:
    """Anywhere, but every other time in the first or the last bytes."""
    end = len(content)
    near = min(HEADER, end)
    return rng.choice((rng.randint(0, end), rng.randint(0, near), end - rng.randint(0, near)))


MUTATORS = (truncate, flip, flip, insert, delete, splice, repeat, overwrite, overwrite)
