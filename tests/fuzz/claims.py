"""`python -m tests.fuzz.claims`: files that claim terabytes, or decompress to them, each refused.

Memory is limited to a little more than the imports took, so that even room which is asked for and
never touched is noticed. One line per file as JSON.
"""

import gzip
import io
import json
import struct
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gpn.data import safe_read
from tests.fuzz import drive, models

TERA = 1 << 40
BOMB = 48 << 20  # bytes; what may come of a packed file is set to a sixth of it
Claims = Iterator[tuple[str, bytes]]


def main() -> None:
    warnings.simplefilter("ignore")
    drive.ROOM = 192 << 20
    safe_read.MAX_DECOMPRESSED_BYTES = BOMB // 6
    with tempfile.TemporaryDirectory() as folder:
        groups = [drive.GROUPS[name](Path(folder)) for name in ("images", "models", "tables")]
        readers = {reader.name: reader for group in groups for reader in group}
        files = [
            (readers[which], what, made) for which, claims in CLAIMS for what, made in claims()
        ]
        for reader in readers.values():
            reader.check()
        drive._limit_memory()
        for reader, what, content in files:
            outcome = drive.outcome_of(reader, content)
            print(json.dumps({"file": f"{reader.name}: {what}", "outcome": outcome}), flush=True)


def _idx() -> Claims:
    yield "dimensions", struct.pack(">4I", 0x0803, *[2**32 - 1] * 3)
    yield "three gigabytes", struct.pack(">4I", 0x0803, 3, 1 << 15, 1 << 15) + bytes(100)


def _idx_gz() -> Claims:
    for what, content in _idx():
        yield what, gzip.compress(content)
    bomb = struct.pack(">4I", 0x0803, BOMB >> 10, 32, 32) + bytes(BOMB)
    yield "bomb", gzip.compress(bomb, 1)


def _npz() -> Claims:
    def member(shape: tuple[int, ...], content: bytes) -> bytes:
        made = io.BytesIO()
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(made, header)
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("x_test.npy", made.getvalue() + content)
        return packed.getvalue()

    yield "shape", member((TERA, 32, 32), bytes(100))
    yield "no rows of many", member((TERA, 0, 3), b"")
    yield "bomb", member((BOMB >> 10, 32, 32), bytes(BOMB))


def _model(change: Callable[[dict[str, Any], dict[str, Any]], None], number: int = 0) -> bytes:
    """A posterior's file whose configuration or signature claims something else."""
    seed = models.posteriors(Path(tempfile.mkdtemp()) / "m.gpn")[number]
    size = struct.unpack("<Q", seed[:8])[0]
    header = json.loads(seed[8 : 8 + size])
    fields = header["__metadata__"]
    config, signature = json.loads(fields["config"]), json.loads(fields["signature"])
    change(config["settings"], signature)
    fields |= {"config": json.dumps(config), "signature": json.dumps(signature)}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + seed[8 + size :]


def _posterior() -> Claims:
    def trunk(**settings: Any) -> Callable[..., None]:
        return lambda config, signature: config["trunk"]["settings"].update(settings)

    yield "length of the header", struct.pack("<Q", TERA) + b"{}"
    lie = {"w": {"dtype": "F32", "shape": [TERA], "data_offsets": [0, 4 * TERA]}}
    text = json.dumps({"__metadata__": {"format": "gpn"}, **lie}).encode()
    yield "shape", struct.pack("<Q", len(text)) + text
    nothing = {"w": {"dtype": "F32", "shape": [TERA, 0], "data_offsets": [0, 0]}}
    text = json.dumps({"__metadata__": {"format": "gpn", "version": "1"}, **nothing}).encode()
    yield "no numbers of many", struct.pack("<Q", len(text)) + text
    yield "widths", _model(trunk(widths=[TERA]))
    yield "many wide layers", _model(trunk(widths=[1 << 14] * 900))
    yield "many layers", _model(trunk(widths=[1] * 100_000))
    yield "fourier", _model(trunk(fourier=1 << 30))
    yield "ramps", _model(trunk(ramps=1 << 30))
    yield "inputs", _model(lambda config, signature: signature.update(input_shape=[TERA]))
    yield "outputs", _model(lambda config, signature: signature.update(n_outputs=1 << 30))
    yield "members", _model(lambda config, signature: config.update(n_members=TERA), 3)
    yield "features", _model(lambda config, signature: config.update(n_features=1 << 30), 4)


def _csv_gz() -> Claims:
    yield "one cell", gzip.compress(b"a,yield\n" + b"1" * BOMB, 1)
    yield "rows", gzip.compress(b"a,yield\n" + b"1,2\n" * (BOMB // 4), 1)


def _parquet() -> Claims:
    made = io.BytesIO()
    pd.DataFrame({"yield": np.zeros(BOMB // 4, np.int8)}).to_parquet(made)
    assert len(made.getvalue()) < 1 << 20
    yield "rows", made.getvalue()


CLAIMS: list[tuple[str, Callable[[], Claims]]] = [
    ("idx", _idx),
    ("idx.gz", _idx_gz),
    ("npz", _npz),
    ("posterior file", _posterior),
    ("csv.gz", _csv_gz),
    ("parquet", _parquet),
]

if __name__ == "__main__":
    main()
