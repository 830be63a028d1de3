"""`python -m tests.fuzz.drive GROUP COUNT [READER]`: damaged inputs, one result per line as JSON.

A process of its own: its memory is limited, each input has an alarm, and a crash is seen by
whoever started it. Input i of a reader is the same in every run.
"""

import faulthandler
import json
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from gpn.columns.column_types import TableError
from gpn.data import DataError, MissingData
from gpn.saving.validation import ModelError
from tests.fuzz import images, models, pools, tables
from tests.fuzz.reader import Reader

GROUPS = {
    "images": images.readers,
    "models": models.readers,
    "pools": pools.readers,
    "tables": tables.readers,
    "commands": tables.commands,
}
OWN = (DataError, MissingData, ModelError, TableError)
SECONDS, HUNG_SECONDS = 5.0, 300.0  # of work, and on the clock
ROOM = 1 << 30  # address space beyond what the imports took
GROWTH = 64 << 10  # kilobytes that one input may add to the largest memory ever used


class Hang(BaseException):
    """The alarm went off."""


def main() -> None:
    group, count, only = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGPROF, _alarm)
    with tempfile.TemporaryDirectory() as folder:
        readers = [r for r in GROUPS[group](Path(folder)) if not only or r.name in only]
        for reader in readers:
            reader.check()
        _limit_memory()
        for reader in readers:
            print(json.dumps(run(reader, count)), flush=True)


def run(reader: Reader, count: int) -> dict[str, Any]:
    """How many inputs were read and refused, and what else came out."""
    start, outcomes, wrong = time.monotonic(), Counter[str](), []
    count = max(1, round(reader.share * count))
    for number in range(count):
        rng = random.Random(f"{reader.name}/{number}")
        content = rng.choice(reader.changes)(reader.seeds, rng)
        outcome = outcome_of(reader, content)
        outcomes[outcome.split(":")[0]] += 1
        if outcome not in ("read", "refused"):
            wrong.append({"number": number, "what": outcome})
    return {
        "reader": reader.name,
        "inputs": count,
        "seconds": round(time.monotonic() - start, 1),
        **outcomes,
        "wrong": wrong,
    }


def outcome_of(reader: Reader, content: bytes) -> str:
    """ "read", "refused", or what should not have come."""
    before = _peak()
    try:
        reader.path.write_bytes(content)
        faulthandler.dump_traceback_later(HUNG_SECONDS, exit=True)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        reader.read()
        outcome = "read"
    except Hang:
        outcome = f"hang: {traceback.format_exc()[-1500:]}"
    except Exception as error:
        outcome = "refused" if is_own(error) else f"unexpected: {traceback.format_exc()[-2500:]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.cancel_dump_traceback_later()
    if not torch.is_grad_enabled():
        torch.set_grad_enabled(True)
        return f"state: gradients are off, {outcome}"
    grown = _peak() - before
    return outcome if grown < GROWTH else f"memory: {grown} kB more, {outcome}"


def is_own(error: BaseException) -> bool:
    """An error of ours that says what must hold, and not because memory ran out behind it."""
    cause = error.__cause__
    while cause is not None:
        if isinstance(cause, MemoryError) or "allocate memory" in str(cause):
            return False
        cause = cause.__cause__
    ours = type(error) in OWN or (type(error) is ValueError and _from_gpn(error))
    return ours and " must " in str(error) and len(str(error)) < 3000


def _from_gpn(error: BaseException) -> bool:
    """Whether it was raised in our own files."""
    *_, last = traceback.extract_tb(error.__traceback__)
    return "/src/gpn/" in last.filename


def _alarm(*_: Any) -> None:
    raise Hang


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _limit_memory() -> None:
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + ROOM, resource.RLIM_INFINITY))


if __name__ == "__main__":
    main()
