"""The base of all configurations: frozen, keyword-only, and an unknown key is an error."""

import dataclasses
import difflib
import warnings
from abc import ABCMeta
from collections.abc import Callable, Collection
from numbers import Real
from typing import Any, ClassVar, TypeVar

from gpn.core.checks import is_count

C = TypeVar("C", bound="Config")

MAX_SETTING = 1e100


class _ConfigType(ABCMeta):
    """Checks the keys before a configuration is made; it is abstract as some of them are."""

    def __call__(cls, *args: Any, **settings: Any) -> Any:
        settings = _current_names(cls, settings)
        known = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        for name in settings:
            if name not in known:
                hint = _nearest(name, known) or f"its keys are {', '.join(known)}."
                raise TypeError(
                    f"every key of {cls.__name__} must be one that it has, got {name!r}; {hint}"
                )
        return super().__call__(*args, **settings)


class Config(metaclass=_ConfigType):
    """Base of the frozen dataclasses that configure one thing each.

    A subclass checks its own values in `__post_init__`. `renamed` maps the old name of a field to
    its new one: the old name still works, in Python with a DeprecationWarning, and in model files.
    `added` has the values of later fields in model files that lack them, where these are not the
    defaults: what an old file means does not change with a default.
    """

    renamed: ClassVar[dict[str, str]] = {}
    added: ClassVar[dict[str, Any]] = {}

    def replace(self: C, **changes: Any) -> C:
        """The same configuration but for `changes`."""
        return dataclasses.replace(self, **_current_names(type(self), changes))  # type: ignore[type-var]


def _current_names(kind: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings under the names that their fields have today."""
    for old in kind.renamed.keys() & settings.keys():
        new = kind.renamed[old]
        if new in settings:
            raise TypeError(f"{kind.__name__} must get {new} once, got its old name {old}, too.")
        warnings.warn(
            f"{old} of {kind.__name__} is now called {new}.",
            DeprecationWarning,
            stacklevel=3,
        )
    return {kind.renamed.get(name, name): value for name, value in settings.items()}


def require_positive(owner: Config, *names: str) -> None:
    """Raise unless each named setting is a positive number."""
    _require(owner, names, _is_positive, "be positive")


def require_not_negative(owner: Config, *names: str) -> None:
    """Raise unless each named setting is zero or a positive number."""
    _require(owner, names, lambda value: value == 0 or _is_positive(value), "not be negative")


def require_positive_if_given(owner: Config, *names: str) -> None:
    """Raise unless each named setting is a positive number, or None."""
    rule = f"be positive, or None for a choice by the fit, and at most {MAX_SETTING:g}"
    _require(owner, names, lambda value: value is None or _is_positive(value), rule)


def require_counts(owner: Config, *names: str) -> None:
    """Raise unless each named setting is a whole number of at least 1."""
    _require(owner, names, is_count, "be a whole number of at least 1")


def _require(
    owner: Config, names: tuple[str, ...], holds: Callable[[Any], bool], rule: str
) -> None:
    for name in names:
        value = getattr(owner, name)
        if not holds(value):
            raise ValueError(f"{name} must {rule}, got {value!r:.60}.")


def _is_positive(value: Any) -> bool:
    """Larger numbers than `MAX_SETTING` would overflow in a fit."""
    return isinstance(value, Real) and bool(0 < value <= MAX_SETTING)  # type: ignore[operator]


def require_sizes(sizes: tuple[int, ...]) -> None:
    """Raise unless every layer has at least one unit."""
    if min(sizes, default=1) < 1:
        raise ValueError(f"layer sizes must be positive numbers, got {sizes}.")


def require_one_of(owner: Config, name: str, choices: tuple[str, ...]) -> None:
    """Raise unless the named setting is one of `choices`."""
    require_choice(name, getattr(owner, name), choices)


def require_choice(name: str, value: Any, choices: Collection[str]) -> None:
    """Raise unless `value` is one of `choices`; the error names the nearest one."""
    if value not in choices:
        hint = _nearest(str(value), choices)
        end = f"; {hint}" if hint else "."
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}{end}")


def _nearest(name: str, choices: Collection[str]) -> str:
    close = difflib.get_close_matches(name, choices, n=1)
    return f"did you mean {close[0]!r}?" if close else ""
