"""A fitted posterior as one file: safetensors with a JSON header, and no pickle.

The header has eight strings: `format` ("gpn"), `version` of the format, `written_by`, the version
of gpn, `checksum`, `method`, and, as JSON, `config`, `signature` and `diagnostics`. Files of gpn
0.1.0 have neither `written_by` nor `checksum`, and open all the same. A posterior that can be saved
has `config`, `signature`, `tensors()` and the classmethod `restore(config, signature, tensors)`.
Loading runs no code from the file.
"""

import dataclasses
import importlib
import json
import os
import re
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

import torch
from safetensors import safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from gpn.core.files import checksum, write_atomically
from gpn.core.posterior.base import Posterior
from gpn.core.task import Signature
from gpn.core.types import plain_copy
from gpn.core.warnings import Diagnostic
from gpn.methods.registry import name_of, posterior_of
from gpn.saving.encoding import decode_config, encode
from gpn.saving.validation import (
    AllocationLimit,
    ModelError,
    as_model_error,
    check_answer,
    check_tensors,
    checked_diagnostics,
    checked_signature,
)
from gpn.training.config import as_device

FORMAT, VERSION = "gpn", "1"
# Module and function, found by name because they lie in layers above this one.
ESTIMATOR_LOADER = "gpn.estimators.persistence", "load_model"
TABLE_LOADER = "gpn.tables.model", "load_table_model"


@runtime_checkable
class Saveable(Protocol):
    """What a posterior must offer to be saved."""

    config: Any
    signature: Signature

    def diagnostics(self) -> dict[str, Diagnostic]: ...

    def tensors(self) -> dict[str, Tensor]: ...

    @classmethod
    def restore(cls, config: Any, signature: Signature, tensors: dict[str, Tensor]) -> Any: ...


@runtime_checkable
class SavesItself(Protocol):
    """A model that holds more than its posterior: an estimator, or a model of a table."""

    def save(self, path: str | os.PathLike[str]) -> None: ...


def save(posterior: Any, path: str | os.PathLike[str]) -> None:
    """Write a posterior, or a model by its own `save`; the file is complete or does not appear."""
    if isinstance(posterior, SavesItself):
        posterior.save(path)
        return
    if not isinstance(posterior, Saveable):
        raise TypeError(
            "a posterior must have config, tensors() and restore() to be saved, "
            f"got {type(posterior).__name__}, which has not."
        )
    SavedModel.of(posterior, path).write()


def load(path: str | os.PathLike[str], device: str | torch.device = "cpu") -> Any:
    """The posterior or model that was saved to `path`: the same draws for the same `rng`.

    A file that is damaged or of another kind is a `ModelError`, which is a ValueError. Loading runs
    no code from the file, and takes little more memory than the file's own size.
    """
    where, saved = as_device(device), SavedModel.read(Path(path))
    try:
        return _restored(saved, where)
    except ModelError as error:
        if not _is_newer(saved.written_by):
            raise
        raise ModelError(
            f"{path} must be opened by gpn {saved.written_by} or newer, which wrote it, this is "
            f"gpn {version('gpn')}; upgrade gpn. ({error!s:.1000})"
        ) from error


def _restored(saved: "SavedModel", where: torch.device) -> Any:
    if "estimator" not in saved.header:
        return restore_posterior(saved, where)
    fields = saved.json("estimator")
    is_table = isinstance(fields, dict) and "columns" in fields
    module, loader = TABLE_LOADER if is_table else ESTIMATOR_LOADER
    return getattr(importlib.import_module(module), loader)(saved, where)


def _is_newer(written_by: str) -> bool:
    """Whether a version such as "0.10.2" is newer than ours; other texts are not."""
    theirs, ours = (
        re.fullmatch(r"(\d{1,9})\.(\d{1,9})(\.\d{1,9})?.{0,99}", text)
        for text in (written_by, version("gpn"))
    )
    if theirs is None or ours is None:
        return False
    numbers = [
        [int((part or "0").strip(".")) for part in found.groups()] for found in (theirs, ours)
    ]
    return numbers[0] > numbers[1]


@dataclass(frozen=True)
class SavedModel:
    """The content of a model file, and its path."""

    path: Path
    header: dict[str, str]
    tensors: dict[str, Tensor]

    @classmethod
    def of(cls, posterior: Saveable, path: str | os.PathLike[str]) -> Self:
        """What the file of a posterior holds."""
        found = posterior.diagnostics().items()
        header = {
            "format": FORMAT,
            "version": VERSION,
            "written_by": version("gpn"),
            "method": name_of(posterior),  # type: ignore[arg-type]
            "config": json.dumps(encode(posterior.config)),
            "signature": json.dumps(dataclasses.asdict(posterior.signature)),
            "diagnostics": json.dumps({name: dataclasses.asdict(each) for name, each in found}),
        }
        tensors = {name: plain_copy(tensor) for name, tensor in posterior.tensors().items()}
        return cls(Path(path), header, tensors)

    @classmethod
    def read(cls, path: Path) -> Self:
        """The whole file; tensors are copies, so that the file may change later."""
        path.open("rb").close()  # a file that cannot be opened is not a damaged one
        try:
            with safe_open(path, framework="pt") as file:
                tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
                header = dict(file.metadata() or {})
        except Exception as error:  # of safetensors, or of torch where safetensors lets it through
            raise ModelError(
                f"{path} must be a complete file that gpn.save wrote, got something that is "
                f"truncated or of another kind ({error!s:.500})."
            ) from error
        if header.get("format") != FORMAT:
            raise ModelError(
                f"{path} must be a file that gpn.save wrote, got format "
                f"{header.get('format')!r:.100}."
            )
        saved = cls(path, header, tensors)
        if header.get("version") != VERSION:
            needed = saved.written_by or "a newer version"
            raise ModelError(
                f"{path} must have format version {VERSION}, which gpn {version('gpn')} reads, got "
                f"{header.get('version')!s:.100}, which needs gpn {needed!s:.100}; upgrade gpn."
            )
        if header.get("checksum", checksum(header, tensors)) != checksum(header, tensors):
            raise ModelError(
                f"{path} must hold what gpn.save wrote, got something else: its checksum differs, "
                "so that some bytes have changed; copy the file again, or save the model again."
            )
        return saved

    @property
    def written_by(self) -> str:
        """The version of gpn that wrote the file; "" where it does not say."""
        return self.header.get("written_by", "")

    def write(self) -> None:
        """Write the file whole, or leave what was there before."""
        header = {**self.header, "checksum": checksum(self.header, self.tensors)}
        write_atomically(self.path, to_bytes(self.tensors, metadata=header))

    def json(self, name: str) -> Any:
        """The header's entry `name`, decoded."""
        try:
            return json.loads(self.header[name])
        except (KeyError, ValueError, RecursionError) as error:
            raise ModelError(
                f"the header {name!r} of {self.path} must be JSON, got {error!r:.500}."
            ) from error


def restore_posterior(saved: SavedModel, device: torch.device) -> Posterior:
    """The posterior of a file, after every check."""
    method = saved.header.get("method", "")
    fields = saved.json("config"), saved.json("signature")
    rule = f"the content of {saved.path} must fit its method {method!r:.100}"
    with as_model_error(rule), AllocationLimit(saved.tensors):
        kind: Any = posterior_of(method)
        config, signature = decode_config(fields[0]), checked_signature(fields[1])
        check_tensors(config, saved.tensors)
        tensors = {name: tensor.to(device) for name, tensor in saved.tensors.items()}
        posterior: Posterior = kind.restore(config, signature, tensors)
        check_answer(posterior)
        if "diagnostics" in saved.header:
            posterior.checks = checked_diagnostics(saved.json("diagnostics"))
        return posterior
