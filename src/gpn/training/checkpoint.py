"""A fit that survives being killed: its trainings in one file, as they were at some step.

    posterior = gpn.GPN().fit(task, rng=0, checkpoint="fit.ckpt")

A fit is a sequence of trainings (trials of β, the final one), and all that happens between them
hangs on the seed alone. So the file holds one snapshot per training: the finished ones as they
ended, the current one with its optimiser and its randomness. The same call, made again, takes the
finished ones from the file, goes on with the current one, and comes to the same weights bit for
bit (on a CPU, with as many threads). The file is safetensors with a JSON header: reading it runs
no code. It is written atomically, and removed when the fit is done.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes

from gpn.core.config import Config
from gpn.core.files import remove_temporary_files, write_atomically
from gpn.core.task import Task
from gpn.core.types import Rng
from gpn.training.fingerprint import fingerprint
from gpn.training.state import Snapshot, TrainingState

FORMAT, VERSION = "gpn-checkpoint", "3"

MAX_SHARE = 0.05


@dataclass(frozen=True)
class Checkpoint:
    """Where a fit is kept while it runs, and after how many seconds it is written again.

    Writing never takes more than a twentieth of the time: it is done less often where it is slow.
    """

    path: str | os.PathLike[str]
    every: float = 30.0

    def __post_init__(self) -> None:
        if not self.every >= 0:
            raise ValueError(f"every must be a number of seconds, 0 or more, got {self.every!r}.")


CheckpointLike = Checkpoint | str | os.PathLike[str] | None


class CheckpointSession:
    """The trainings of one fit, in its file, which of several processes one `writes`."""

    def __init__(self, where: Checkpoint, facts: dict[str, str], *, writes: bool = True) -> None:
        self.path, self.every, self.facts = Path(where.path), where.every, facts
        self.writes = writes
        self.trainings: list[Snapshot] = []
        self.number, self.due = -1, time.monotonic() + where.every
        if not self.path.parent.is_dir():
            raise FileNotFoundError(
                f"a checkpoint must lie in a folder that exists, got {self.path}; make the folder."
            )
        if writes:
            remove_temporary_files(self.path)
        if self.path.exists():
            self.trainings = _read(self.path, facts)

    def begin(self, state: TrainingState) -> None:
        """The next training of the fit: as the file has it, if it does."""
        self.number += 1
        if self.number < len(self.trainings):
            try:
                state.restore(self.trainings[self.number])
            except (KeyError, ValueError, TypeError, RuntimeError) as error:
                raise _damaged(self.path, error) from error

    def step(self, state: TrainingState) -> None:
        """Write the training's state if it is time, or if it is its last."""
        if self.writes and (state.finished or time.monotonic() >= self.due):
            self.write(state)

    def write(self, state: TrainingState) -> None:
        started = time.monotonic()
        self.trainings[self.number :] = [state.snapshot()]
        tensors = {
            f"{number}/{name}": tensor
            for number, training in enumerate(self.trainings)
            for name, tensor in training.tensors.items()
        }
        write_atomically(self.path, to_bytes(tensors, metadata=self._header()))
        now = time.monotonic()
        self.due = now + max(self.every, (now - started) / MAX_SHARE)

    def _header(self) -> dict[str, str]:
        trainings = [training.facts for training in self.trainings]
        return {
            "format": FORMAT,
            "version": VERSION,
            "facts": json.dumps(self.facts),
            "trainings": json.dumps(trainings),
        }

    def close(self) -> None:
        """Remove the file, unless a training was stopped that can be gone on with."""
        done = len(self.trainings) == self.number + 1 and self.trainings[-1].finished
        if self.writes and done:
            self.path.unlink(missing_ok=True)


@contextmanager
def kept(
    where: CheckpointLike,
    config: Config,
    task: Task,
    rng: Rng,
    device: torch.device,
    *,
    writes: bool = True,
) -> Iterator[CheckpointSession | None]:
    """The file of the fit that `config`, `task` and `rng` name, for as long as it runs."""
    if where is None:
        yield None
        return
    place = where if isinstance(where, Checkpoint) else Checkpoint(where)
    fit = CheckpointSession(place, fingerprint(config, task, rng, device), writes=writes)
    yield fit
    fit.close()


def _read(path: Path, facts: dict[str, str]) -> list[Snapshot]:
    try:
        with safe_open(path, framework="pt") as file:
            header = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise _damaged(path, error) from error
    _check(path, header, facts)
    try:
        own: list[dict[str, Any]] = json.loads(header["trainings"])
        every = Snapshot({}, tensors)
        return [Snapshot(training, every.part(str(i))) for i, training in enumerate(own)]
    except (KeyError, json.JSONDecodeError) as error:
        raise _damaged(path, error) from error


def _check(path: Path, header: dict[str, str], facts: dict[str, str]) -> None:
    if (header.get("format"), header.get("version")) != (FORMAT, VERSION):
        raise ValueError(
            f"{path} must be a checkpoint that this gpn wrote, got format "
            f"{header.get('format')!r}, version {header.get('version')!r}; choose another path."
        )
    theirs = json.loads(header["facts"])
    other = [name for name, fact in facts.items() if theirs.get(name) != fact]
    if other:
        raise ValueError(
            f"{path} must be of the same fit, got a checkpoint with another "
            f"{', '.join(other)}; choose another path, or delete the file to begin anew."
        )


def _damaged(path: Path, error: Exception) -> ValueError:
    return ValueError(
        f"{path} must be a complete checkpoint of this fit, got something else ({error!r}); "
        "delete the file to begin anew."
    )
