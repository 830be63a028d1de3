"""A fit that survives being killed: one file holds its training runs as they were at some step.

    posterior = gpn.GPN().fit(task, rng=0, checkpoint="fit.ckpt")

A fit is a sequence of training runs (trials of β, the final one); what happens between them depends
on the seed alone. So the file holds one snapshot per run: finished ones as they ended, the current
one with its optimiser and its randomness. The same call, made again, takes the finished runs from
the file, resumes the current one, and reaches the same weights bit for bit (on a CPU, with as many
threads). The file is safetensors with a JSON header and a checksum: reading it runs no code. It is
written atomically, and removed when the fit is done.
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
from gpn.core.files import checksum, remove_temporary_files, write_atomically
from gpn.core.task import Task
from gpn.core.types import Rng
from gpn.training.fingerprint import fingerprint
from gpn.training.state import Snapshot, TrainingState

FORMAT, VERSION = "gpn-checkpoint", "4"

MAX_WRITING_SHARE = 0.05


@dataclass(frozen=True)
class Checkpoint:
    """Where a fit is saved while it runs, and how many seconds lie between two writes.

    Writing takes at most a twentieth of the time: where it is slow, it is done less often.
    """

    path: str | os.PathLike[str]
    every: float = 30.0

    def __post_init__(self) -> None:
        if not self.every >= 0:
            raise ValueError(f"every must be a number of seconds, 0 or more, got {self.every!r}.")


CheckpointLike = Checkpoint | str | os.PathLike[str] | None


class CheckpointSession:
    """The training runs of one fit and their file; of several processes, one is the `writer`."""

    def __init__(
        self, checkpoint: Checkpoint, facts: dict[str, str], *, writer: bool = True
    ) -> None:
        self.path, self.every, self.facts = Path(checkpoint.path), checkpoint.every, facts
        self.writer = writer
        self.runs: list[Snapshot] = []
        self.number, self.due = -1, time.monotonic() + checkpoint.every
        if not self.path.parent.is_dir():
            raise FileNotFoundError(
                f"a checkpoint must lie in a folder that exists, got {self.path}; make the folder."
            )
        if writer:
            remove_temporary_files(self.path)
        if self.path.exists():
            self.runs = _read(self.path, facts)

    def resume(self, state: TrainingState) -> None:
        """Begin the fit's next run: as the file has it, if it does."""
        self.number += 1
        if self.number < len(self.runs):
            try:
                state.restore(self.runs[self.number])
            except (KeyError, ValueError, TypeError, RuntimeError) as error:
                raise _damaged(self.path, error) from error

    def after_step(self, state: TrainingState) -> None:
        """Write the run's state if it is time, or if this was its last step."""
        if self.writer and (state.finished or time.monotonic() >= self.due):
            self.write(state)

    def write(self, state: TrainingState) -> None:
        started = time.monotonic()
        self.runs[self.number :] = [state.snapshot()]
        tensors = {
            f"{number}/{name}": tensor
            for number, run in enumerate(self.runs)
            for name, tensor in run.tensors.items()
        }
        header = {
            "format": FORMAT,
            "version": VERSION,
            "facts": json.dumps(self.facts),
            "trainings": json.dumps([run.facts for run in self.runs]),
        }
        header["checksum"] = checksum(header, tensors)
        write_atomically(self.path, to_bytes(tensors, metadata=header))
        now = time.monotonic()
        self.due = now + max(self.every, (now - started) / MAX_WRITING_SHARE)

    def close(self) -> None:
        """Remove the file, unless a run was stopped that can be resumed."""
        done = len(self.runs) == self.number + 1 and self.runs[-1].finished
        if self.writer and done:
            self.path.unlink(missing_ok=True)


@contextmanager
def checkpoint_session(
    checkpoint: CheckpointLike,
    config: Config,
    task: Task,
    rng: Rng,
    device: torch.device,
    *,
    writer: bool = True,
) -> Iterator[CheckpointSession | None]:
    """The session of the fit that `config`, `task` and `rng` define; None without a checkpoint."""
    if checkpoint is None:
        yield None
        return
    where = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
    session = CheckpointSession(where, fingerprint(config, task, rng, device), writer=writer)
    yield session
    session.close()


def _read(path: Path, facts: dict[str, str]) -> list[Snapshot]:
    try:
        with safe_open(path, framework="pt") as file:
            header = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise _damaged(path, error) from error
    _check_format(path, header)
    if header.get("checksum") != checksum(header, tensors):
        raise _damaged(path, ValueError("its checksum differs"))
    _check_facts(path, header, facts)
    try:
        runs: list[dict[str, Any]] = json.loads(header["trainings"])
        every = Snapshot({}, tensors)
        return [Snapshot(facts, every.under(str(i))) for i, facts in enumerate(runs)]
    except (KeyError, json.JSONDecodeError) as error:
        raise _damaged(path, error) from error


def _check_format(path: Path, header: dict[str, str]) -> None:
    if (header.get("format"), header.get("version")) != (FORMAT, VERSION):
        raise ValueError(
            f"{path} must be a checkpoint that this gpn wrote, got format "
            f"{header.get('format')!r}, version {header.get('version')!r}; choose another path."
        )


def _check_facts(path: Path, header: dict[str, str], facts: dict[str, str]) -> None:
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
