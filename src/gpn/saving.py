"""A fitted posterior as one file: safetensors with a JSON header, and no pickle.

The header has five strings: `format` ("gpn"), `version`, `method`, and, as JSON, `config` and
`signature`. A posterior that can be saved has `config`, `signature`, `tensors()` and the
classmethod `restore(config, signature, tensors)`. Loading runs no code from the file.
"""

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from gpn.core.atomic import beside as beside
from gpn.core.atomic import write_whole
from gpn.core.posterior import Posterior
from gpn.core.task import Signature
from gpn.core.train import as_device
from gpn.encoding import decode_config, encode
from gpn.methods.registry import name_of, posterior_of

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
        except (KeyError, json.JSONDecodeError) as error:
            raise ValueError(
                f"the header {name!r} of {self.path} must be JSON, got {error!r}."
            ) from error


@runtime_checkable
class Saveable(Protocol):
    """What a posterior must offer to be saved."""

    config: Any
    signature: Signature

    def tensors(self) -> dict[str, Tensor]: ...

    @classmethod
    def restore(cls, config: Any, signature: Signature, tensors: dict[str, Tensor]) -> Any: ...


def save(posterior: Posterior, path: str | os.PathLike[str]) -> None:
    """Write `posterior` to `path`; the file appears complete or not at all."""
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
    """What was saved to `path`, a posterior or a model: the same draws for the same `rng`."""
    saved = _read(Path(path))
    if "estimator" not in saved.header:
        return restore_posterior(saved, device)
    from gpn.model_file import load_model

    return load_model(saved, device)


def restore_posterior(saved: Saved, device: str | torch.device) -> Posterior:
    method = saved.header["method"]
    kind: Any = posterior_of(method)
    config, where = decode_config(saved.json("config")), as_device(device)
    moved = {name: tensor.to(where) for name, tensor in saved.tensors.items()}
    try:
        return kind.restore(config, _signature(saved.json("signature")), moved)
    except (KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(
            f"what {saved.path} holds must fit its method {method!r}, got {error!r}; "
            "the file is damaged, save it again."
        ) from error


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
    }


def _signature(fields: dict[str, Any]) -> Signature:
    return Signature(**{**fields, "input_shape": tuple(fields["input_shape"])})


def write(saved: Saved) -> None:
    """Write the file whole, or leave what was there before."""
    write_whole(saved.path, to_bytes(saved.tensors, metadata=saved.header))


def _read(path: Path) -> Saved:
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            header = dict(file.metadata() or {})
    except SafetensorError as error:
        raise ValueError(
            f"{path} must be a complete file that gpn.save wrote, got something that is truncated "
            f"or of another kind ({error})."
        ) from error
    _check_header(path, header)
    return Saved(path, header, tensors)


def _check_header(path: Path, header: dict[str, str]) -> None:
    if header.get("format") != FORMAT:
        raise ValueError(
            f"{path} must be a file that gpn.save wrote, got format {header.get('format')!r}."
        )
    if header["version"] != str(VERSION):
        raise ValueError(
            f"{path} must have format version {VERSION}, which this gpn reads, got "
            f"{header['version']}; upgrade gpn."
        )
