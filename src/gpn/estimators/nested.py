"""Settings of a configuration under scikit-learn's names: config__beta, config__train__steps."""

import dataclasses
from typing import Any, TypeVar

from gpn.core.config import Config

C = TypeVar("C", bound=Config)


def settings_of(name: str, config: Config) -> dict[str, Any]:
    """Every setting of `config`, and of the configurations within it, by its whole name."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(config):  # type: ignore[arg-type]
        value, whole = getattr(config, field.name), f"{name}__{field.name}"
        found[whole] = value
        if isinstance(value, Config):
            found |= settings_of(whole, value)
    return found


def replaced(config: C, path: list[str], value: Any) -> C:
    """The configuration with one setting changed, which may lie in a configuration within it."""
    first, *rest = path
    if not rest:
        try:
            return config.replace(**{first: value})
        except TypeError as error:  # scikit-learn's searches know a ValueError
            raise ValueError(str(error)) from error
    inner = getattr(config, first, None)
    if not isinstance(inner, Config):
        raise ValueError(
            f"{first} must be a configuration before its {'__'.join(rest)} can be set, got "
            f"{inner!r:.60}; give {type(config).__name__} one, {first}=..., and set it there."
        )
    return config.replace(**{first: replaced(inner, rest, value)})
