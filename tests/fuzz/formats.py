"""Damage that respects a format, so that it reaches what lies behind checksums and syntax."""

import gzip
import io
import json
import random
import struct
import zipfile
from collections.abc import Callable
from typing import Any

from tests.fuzz.mutate import mutated

Change = Callable[[list[bytes], random.Random], bytes]
NUMBERS = (0, -1, 1, 2, 3, 1000, 2**31, 2**40, 2**63, 10**400, 0.5, -0.0, 1e308)
STRANGE: tuple[Any, ...] = (
    *NUMBERS,
    *(None, True, False, "", "x", "nan", "MLPTrunk", "ModuleTrunk", "GPNConfig", "Trunk", "object"),
    *([], {}, [[]], [0], [1, 2, 3], ["a"], {"class": "MLPTrunk", "settings": {}}, {"a": None}),
)
CELLS = (
    *(
        "",
        "nan",
        "inf",
        "-inf",
        "1e999",
        "1e-400",
        "0x10",
        "1_000",
        "01",
        "-0",
        "True",
        "None",
        "NA",
    ),
    *("9" * 30, "9" * 400, '"', '""', "'", '"a,b"', "a\nb", "\x00", "é", "\u202e", "=1+1", " 1 "),
    *("2020-01-01", "<script>", "1,2", "\r", "\t", "a" * 300),
)


def gzipped(seeds: list[bytes], rng: random.Random) -> bytes:
    """Damage inside the compression."""
    return gzip.compress(mutated([gzip.decompress(seed) for seed in seeds], rng), 1)


def zipped(seeds: list[bytes], rng: random.Random) -> bytes:
    """Damage inside one member, or to its name, with a checksum that is right."""
    with zipfile.ZipFile(io.BytesIO(rng.choice(seeds))) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    hit = rng.choice(list(members))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", rng.choice((0, 8, 12, 14))) as archive:
        for name, content in members.items():
            changed = mutated([content], rng) if name == hit else content
            archive.writestr(name if rng.random() < 0.95 else "../" + name, changed)
    return packed.getvalue()


def model_header(seeds: list[bytes], rng: random.Random) -> bytes:
    """A model file whose header says something else, in valid JSON and with the right length."""
    seed = rng.choice(seeds)
    size = struct.unpack("<Q", seed[:8])[0]
    header = json.loads(seed[8 : 8 + size])
    fields = header["__metadata__"]
    for name in ("config", "signature", "estimator", "facts", "trainings"):
        if name in fields:
            fields[name] = json.loads(fields[name])
    for _ in range(rng.choice((1, 1, 2))):
        if rng.random() < 0.2:
            header = changed(header, rng)
        else:
            header["__metadata__"] = changed(fields, rng)
        fields = header.get("__metadata__")
        if not isinstance(fields, dict):
            break
    if isinstance(fields, dict):
        texts = {k: v if isinstance(v, str) else as_text(v, rng) for k, v in fields.items()}
        header["__metadata__"] = texts
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + seed[8 + size :]


def as_text(value: Any, rng: random.Random) -> str:
    """JSON, a few times with a number that Python would not read, or nested beyond its stack."""
    text = json.dumps(value)
    if rng.random() > 0.02:
        return text
    return rng.choice(("[" * 100_000, "1" * 5000, text[:-1], '{"a":' * 50_000, text + "\x00"))


def changed(value: Any, rng: random.Random) -> Any:
    """The same JSON but for one value somewhere inside: gone, replaced, doubled or renamed."""
    places = list(_places(value))
    if not places:
        return rng.choice(STRANGE)
    holder, key = rng.choice(places)
    what = rng.random()
    if what < 0.35:
        holder[key] = alike(holder[key], rng)
    elif what < 0.55:
        holder[key] = rng.choice(STRANGE)
    elif what < 0.7:
        del holder[key]
    elif isinstance(holder, dict):
        holder[rng.choice((str(key) + "x", "", *map(str, holder)))] = holder[key]
    else:
        holder.insert(0, holder[key])
    return value


def alike(value: Any, rng: random.Random) -> Any:
    """Another value of the same type, which gets past the first look."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int | float):
        return type(value)(rng.choice((value + 1, value - 1, -value, 2**20, 2**31, 2**40, 0)))
    if isinstance(value, str):
        return rng.choice((value[:-1], value + "x", value * 2, value.upper(), "[/b]", "\x1b[2J"))
    if isinstance(value, list):
        return rng.choice((value[1:], value * 2, value[::-1], [value]))
    return dict(list(value.items())[1:])


def _places(value: Any) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(items):
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner)


def cells(seeds: list[bytes], rng: random.Random) -> bytes:
    """A CSV with strange cells, columns gone, doubled or renamed, and rows of other lengths."""
    rows = [line.split(",") for line in rng.choice(seeds).decode().splitlines()]
    for _ in range(rng.choice((1, 2, 3))):
        row, column = rng.randrange(len(rows)), rng.randrange(len(rows[0]))
        what = rng.random()
        if what < 0.5:
            rows[row] = [*rows[row][:column], rng.choice(CELLS), *rows[row][column + 1 :]]
        elif what < 0.65:
            rows = [line[:column] + line[column + 1 :] for line in rows]
        elif what < 0.8:
            rows = [[*line, *line[column : column + 1]] for line in rows]
        elif what < 0.9:
            rows[row] = rows[row][: -rng.randrange(1, 3)] if rng.random() < 0.5 else rows[row] * 2
        else:
            rows = [[*line[:column], rng.choice(CELLS), *line[column + 1 :]] for line in rows]
        if not rows[0]:
            break
    return "\n".join(",".join(line) for line in rows).encode()
