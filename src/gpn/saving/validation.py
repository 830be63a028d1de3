"""Reading model files that may be damaged or hostile: what a file says, it must hold.

A configuration can ask for a network of any size, and a header for any shape; both are compared
with the numbers that are really in the file before memory is taken for them.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from gpn.core.config import Config
from gpn.core.posterior.base import Posterior
from gpn.core.task import Signature
from gpn.core.warnings import VERDICTS, Diagnostic

SHARE, ROOM = 4, 1 << 20  # numbers a restored network may take: so many per number in the file

BY_SIZE = (torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn, torch.full)

BY_LIKENESS = (torch.empty_like, torch.zeros_like, torch.ones_like, Tensor.clone)

BY_COUNT = (torch.linspace, torch.arange)


class ModelError(ValueError):
    """A model file that is damaged, or of another kind."""


@contextmanager
def as_model_error(what_must_hold: str) -> Iterator[None]:
    """Whatever goes wrong over the content of a file leaves as a ModelError."""
    try:
        yield
    except (ModelError, ImportError):
        raise
    except Exception as error:  # what a damaged file leads to can be anything at all
        raise ModelError(
            f"{what_must_hold}, got {error!r:.500}; the file is damaged, save it again."
        ) from error


class Budget(TorchFunctionMode):
    """New tensors may hold a few times as many numbers as there are in the file, in all."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.left = ROOM + SHARE * sum(tensor.numel() for tensor in tensors.values())

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        given = kwargs or {}
        if torch.device(given.get("device") or "cpu").type != "meta":
            self.left -= _numbers(func, args, given)
        if self.left < 0:
            raise ModelError(
                "the tensors of a model file must be those that its configuration asks for, got a "
                "configuration that asks for far more numbers than there are."
            )
        return func(*args, **given)


def _numbers(func: Any, args: tuple[Any, ...], given: dict[str, Any]) -> int:
    """How many numbers a call makes room for; 0 for all that follow from tensors at hand."""
    if func in BY_SIZE:
        size = given.get("size", args[0] if args and not isinstance(args[0], int) else args)
        return math.prod(size)
    if func in BY_LIKENESS:
        return int(args[0].numel())
    if func in BY_COUNT:
        return int(given.get("steps", max(args, default=0)))
    return int(args[0]) ** 2 if func is torch.eye else 0


def checked_signature(fields: Any) -> Signature:
    """The signature that a header holds."""
    shape, n_outputs = tuple(fields["input_shape"]), fields["n_outputs"]
    for size in (*shape, n_outputs):
        check(type(size) is int and size > 0, "sizes must be whole numbers from 1 on", size)
    classes = fields["is_classification"]
    check(type(classes) is bool, "is_classification must be true or false", classes)
    check(len(fields) == 3 and len(shape) > 0, "a signature must have three parts", fields)
    return Signature(shape, n_outputs, classes)


def check_tensors(config: Config, tensors: Mapping[str, Tensor]) -> None:
    """That all are finite numbers and none is empty, as its axes could claim anything.

    And that there are as many members as the configuration says.
    """
    for name, tensor in tensors.items():
        check(tensor.numel() > 0, "tensors must hold numbers", f"{name} {tuple(tensor.shape)}")
        check(bool(tensor.isfinite().all()), "tensors must hold finite numbers", name)
    members = getattr(config, "n_members", None)
    found = {len(tensor) for tensor in tensors.values() if tensor.ndim}
    check(members is None or members in found, "n_members must be those in the file", members)


def checked_diagnostics(given: Any) -> dict[str, Diagnostic]:
    """What a fit found out about itself, as a header holds it."""
    check(isinstance(given, dict), "diagnostics must have names", given)
    found = {name: Diagnostic(**fields) for name, fields in given.items()}
    for diagnostic in found.values():
        value = diagnostic.value
        finite = type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
        check(value is None or finite, "the value of a diagnostic must be a number", value)
        check(diagnostic.verdict in VERDICTS, "a verdict must be known", diagnostic.verdict)
        check(type(diagnostic.sentence) is str, "a sentence must be a text", diagnostic)
    return found


def check_answer(posterior: Posterior) -> None:
    """That the posterior can be asked: two functions at one row have as many outputs as it says."""
    draws = posterior.draw_many(2, rng=0)(torch.zeros(1, *posterior.signature.input_shape))
    right = tuple(draws.shape) == (2, 1, posterior.n_outputs) and draws.is_floating_point()
    check(right, "a posterior must give numbers for every output", tuple(draws.shape))


def check(holds: bool, what: str, came: Any) -> None:  # noqa: FBT001
    """Raise unless what a file says `holds`."""
    if not holds:
        raise ValueError(f"{what}, got {came!r:.200}")
