"""A fitted posterior as one file: safetensors with a JSON header, and no pickle.

The header has six strings: `format` ("gpn"), `version`, `method`, and, as JSON, `config`,
`signature` and `diagnostics`. A posterior that can be saved has `config`, `signature`, `tensors()`
and the classmethod `restore(config, signature, tensors)`. Loading runs no code from the file.
"""

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from safetensors import safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from gpn.core.files import write_atomically
from gpn.core.posterior.base import Posterior
from gpn.core.task import Signature
from gpn.core.warnings import Diagnostic
from gpn.methods.registry import name_of, posterior_of
from gpn.saving.encoding import decode_config, encode
from gpn.saving.loaders import loader_of
from gpn.saving.validation import (
    Budget,
    ModelError,
    as_model_error,
    check_answer,
    check_tensors,
    checked_diagnostics,
    checked_signature,
)
from gpn.training.config import as_device

FORMAT, VERSION = "gpn", 1


@dataclass(frozen=True)
class Saved:
    """What a file holds, and where it is or will be."""

    path: Path
    header: dict[str, str]
    tensors: dict[str, Tensor]

    def json(self, name: str) -> Any:
        """The header's entry `name`, decoded."""
        try:
            return json.loads(self.header[name])
        except (KeyError, ValueError, RecursionError) as error:
            raise ModelError(
                f"the header {name!r} of {self.path} must be JSON, got {error!r:.500}."
            ) from error


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
    """A model that knows more than its posterior: an estimator, or a model of a table."""

    def save(self, path: str | os.PathLike[str]) -> None: ...


def save(posterior: Any, path: str | os.PathLike[str]) -> None:
    """Write a posterior, or a model as its own `save` does; the file is complete or not there."""
    if isinstance(posterior, SavesItself):
        posterior.save(path)
        return
    if not isinstance(posterior, Saveable):
        raise TypeError(
            "a posterior must have config, tensors() and restore() to be saved, "
            f"got {type(posterior).__name__}, which has not."
        )
    write(as_saved(posterior, path))


def as_saved(posterior: Saveable, path: str | os.PathLike[str]) -> Saved:
    """What a file of this posterior holds."""
    tensors = {name: _plain(tensor) for name, tensor in posterior.tensors().items()}
    return Saved(Path(path), _header(posterior), tensors)


def load(path: str | os.PathLike[str], device: str | torch.device = "cpu") -> Any:
    """What was saved to `path`, a posterior or a model: the same draws for the same `rng`.

    A file that is damaged or of another kind is a `ModelError`, which is a ValueError. Nothing in
    it is run, and no more memory is taken than its own size asks for.
    """
    where, saved = as_device(device), _read(Path(path))
    if "estimator" not in saved.header:
        return restore_posterior(saved, where)
    kind = "table" if "columns" in saved.json("estimator") else "estimator"
    return loader_of(kind)(saved, where)


def restore_posterior(saved: Saved, device: torch.device) -> Posterior:
    method = saved.header.get("method", "")
    fields = saved.json("config"), saved.json("signature")
    whole = as_model_error(f"what {saved.path} holds must fit its method {method!r:.100}")
    with whole, Budget(saved.tensors):
        kind: Any = posterior_of(method)
        config, signature = decode_config(fields[0]), checked_signature(fields[1])
        check_tensors(config, saved.tensors)
        moved = {name: tensor.to(device) for name, tensor in saved.tensors.items()}
        posterior: Posterior = kind.restore(config, signature, moved)
        check_answer(posterior)
        if "diagnostics" in saved.header:
            posterior.checks = checked_diagnostics(saved.json("diagnostics"))
        return posterior


def _plain(tensor: Tensor) -> Tensor:
    """A copy that shares no memory with others, as the format wants it."""
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)


def _header(posterior: Saveable) -> dict[str, str]:
    return {
        "format": FORMAT,
        "version": str(VERSION),
        "method": name_of(posterior),  # type: ignore[arg-type]
        "config": json.dumps(encode(posterior.config)),
        "signature": json.dumps(dataclasses.asdict(posterior.signature)),
        "diagnostics": json.dumps(_plain_checks(posterior.diagnostics())),
    }


def _plain_checks(found: dict[str, Diagnostic]) -> dict[str, Any]:
    return {name: dataclasses.asdict(diagnostic) for name, diagnostic in found.items()}


def write(saved: Saved) -> None:
    """Write the file whole, or leave what was there before."""
    write_atomically(saved.path, to_bytes(saved.tensors, metadata=saved.header))


def _read(path: Path) -> Saved:
    """The whole file; tensors are copies, so that what happens to the file later is no matter."""
    path.open("rb").close()  # a file that cannot be opened is no damaged one
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            header = dict(file.metadata() or {})
    except Exception as error:  # of safetensors, or of torch over what safetensors lets through
        raise ModelError(
            f"{path} must be a complete file that gpn.save wrote, got something that is truncated "
            f"or of another kind ({error!s:.500})."
        ) from error
    _check_header(path, header)
    return Saved(path, header, tensors)


def _check_header(path: Path, header: dict[str, str]) -> None:
    if header.get("format") != FORMAT:
        raise ModelError(
            f"{path} must be a file that gpn.save wrote, got format {header.get('format')!r:.100}."
        )
    if header.get("version") != str(VERSION):
        raise ModelError(
            f"{path} must have format version {VERSION}, which this gpn reads, got "
            f"{header.get('version')!s:.100}; upgrade gpn."
        )
