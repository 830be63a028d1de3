"""One reader under test: where its file lies, what a good one holds, and how it is read."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fuzz.formats import Change
from tests.fuzz.mutate import mutated


@dataclass(frozen=True)
class Reader:
    """`read()` reads the file at `path`, which was made by one of `changes` from the `seeds`.

    `share` of the inputs that others get, where reading takes long.
    """

    name: str
    path: Path
    seeds: list[bytes]
    read: Callable[[], Any]
    changes: tuple[Change, ...] = (mutated,)
    share: float = 1.0

    def check(self) -> None:
        """Every seed reads as it stands."""
        for seed in self.seeds:
            self.path.write_bytes(seed)
            self.read()
