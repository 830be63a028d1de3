"""Checks of model files that may be damaged or hostile.

A configuration can ask for a network of any size, and a header for any shape: both are compared
with the numbers that are in the file before memory is taken for them.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.overrides import TorchFunctionMode

from gpn.core.config import Config
from gpn.core.posterior.base import Posterior
from gpn.core.task import Signature
from gpn.core.warnings import VERDICTS, Diagnostic

MAX_RATIO, FREE_NUMBERS = 4, 1 << 20  # numbers that a restored network may take: a x + b
MAX_NUMBER = 1e150
SQUARE_MATRICES, MAX_SQUARE_ROWS = 6, 5000
FACTORIES = {
    *(torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.eye),
    *(torch.empty_like, torch.zeros_like, torch.ones_like, torch.linspace, torch.arange),
}


class ModelError(ValueError):
    """A model file that is damaged, or of another kind."""


@contextmanager
def as_model_error(rule: str) -> Iterator[None]:
    """Turn whatever goes wrong with the content of a file into a ModelError."""
    try:
        yield
    except (ModelError, ImportError):
        raise
    except Exception as error:  # what a damaged file leads to can be anything at all
        raise ModelError(
            f"{rule}, got {error!r:.500}; the file is damaged, save it again."
        ) from error


def check(condition: bool, rule: str, value: Any) -> None:  # noqa: FBT001
    """Raise unless the condition holds for a value of the file."""
    if not condition:
        raise ValueError(f"{rule}, got {value!r:.200}")


class AllocationLimit(TorchFunctionMode):
    """New tensors may hold a few times as many numbers as there are in the file, in total.

    A posterior in closed form is a file of its labels; opening it takes some square matrices with
    as many rows as labels, which are at most 5,000.

    A method's `restore`, which may be a user's own, builds its network and draws initial weights
    before it loads those of the file. On the meta device it could not: constructors compute buffers
    that are in no file. So allocations are counted, each before it is made.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.left = FREE_NUMBERS + MAX_RATIO * sum(tensor.numel() for tensor in tensors.values())
        longest = max((len(tensor) for tensor in tensors.values() if tensor.ndim == 2), default=0)
        self.left += SQUARE_MATRICES * min(longest, MAX_SQUARE_ROWS) ** 2

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        options = kwargs or {}
        if func is Tensor.clone:
            taken = args[0].numel()
        elif func in FACTORIES and torch.device(options.get("device") or "cpu").type != "meta":
            taken = func(*args, **{**options, "device": "meta"}).numel()
        else:  # never raise here: leaving torch.no_grad() is such a call
            return func(*args, **options)
        self.left -= taken
        if self.left < 0:
            raise ModelError(
                "the tensors of a model file must be those that its configuration asks for, got a "
                "configuration that asks for far more numbers than there are."
            )
        return func(*args, **options)


def checked_signature(fields: Any) -> Signature:
    """The signature that a header holds."""
    shape, n_outputs = tuple(fields["input_shape"]), fields["n_outputs"]
    for size in (*shape, n_outputs):
        check(type(size) is int and size > 0, "sizes must be whole numbers from 1 on", size)
    classes = fields["is_classification"]
    check(type(classes) is bool, "is_classification must be true or false", classes)
    check(len(fields) == 3 and len(shape) > 0, "a signature must have three fields", fields)
    return Signature(shape, n_outputs, classes)


def check_tensors(config: Config, tensors: Mapping[str, Tensor]) -> None:
    """Raise unless all hold finite numbers, and there are as many members as `config` says.

    An empty tensor is refused: its other axes could claim any length.
    """
    for name, tensor in tensors.items():
        check(tensor.numel() > 0, "tensors must hold numbers", f"{name} {tuple(tensor.shape)}")
        check(bool(tensor.isfinite().all()), "tensors must hold finite numbers", name)
        if tensor.dtype == torch.float64:
            small = bool((tensor.abs() <= MAX_NUMBER).all())
            check(small, f"numbers must be at most {MAX_NUMBER:g}, to be squared", name)
    n_members = getattr(config, "n_members", None)
    lengths = {len(tensor) for tensor in tensors.values() if tensor.ndim}
    right = n_members is None or n_members in lengths
    check(right, "n_members must be those in the file", n_members)


def checked_diagnostics(fields: Any) -> dict[str, Diagnostic]:
    """What a fit found out about itself, as a header holds it."""
    check(isinstance(fields, dict), "diagnostics must have names", fields)
    diagnostics = {name: Diagnostic(**values) for name, values in fields.items()}
    for diagnostic in diagnostics.values():
        value = diagnostic.value
        finite = type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
        check(value is None or finite, "the value of a diagnostic must be a number", value)
        check(diagnostic.verdict in VERDICTS, "a verdict must be known", diagnostic.verdict)
        check(type(diagnostic.sentence) is str, "a sentence must be a text", diagnostic)
    return diagnostics


def check_answer(posterior: Posterior) -> None:
    """Raise unless the posterior works: two functions at one row have the outputs it claims."""
    draws = posterior.draw_many(2, rng=0)(torch.zeros(1, *posterior.signature.input_shape))
    right = tuple(draws.shape) == (2, 1, posterior.n_outputs) and draws.is_floating_point()
    check(right, "a posterior must give numbers for every output", tuple(draws.shape))


def finite_array(
    rule: str, values: NDArray[Any], shape: tuple[int | None, ...]
) -> NDArray[np.float64]:
    """The array, if it holds finite numbers and has this shape; None is any length."""
    fits = len(shape) == values.ndim and all(
        wanted in (None, size) for wanted, size in zip(shape, values.shape, strict=True)
    )
    check(fits and values.dtype.kind == "f", rule, f"{values.dtype} {values.shape}")
    check(bool(np.isfinite(values).all()), rule, "others")
    return values


def are_texts(values: Any, count: int | None = None) -> bool:
    """Whether the value is a list of texts, `count` of them unless it is None."""
    listed = isinstance(values, list) and all(type(value) is str for value in values)
    return listed and count in (None, len(values))
