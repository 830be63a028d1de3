"""Configurations as JSON and back: each by the name of its class, each value checked by its type.

    MLPTrunk(widths=(8,)) ⇄ {"class": "MLPTrunk", "settings": {"widths": [8], ...}}

Decoding makes `Config` classes and plain values only, whatever the JSON holds.
"""

import dataclasses
import types
import typing
from collections.abc import Iterator
from typing import Any

from gpn.core.config import Config

PLAIN = (bool, int, float, str, type(None))
MAX_TUPLE_LENGTH = 1000  # no network has more layers


def encode(value: Any) -> Any:
    """A configuration, or one of its values, as JSON can hold it."""
    if isinstance(value, Config):
        fields = dataclasses.fields(value)  # type: ignore[arg-type]
        settings = {field.name: encode(getattr(value, field.name)) for field in fields}
        return {"class": type(value).__name__, "settings": settings}
    if isinstance(value, tuple):
        return [encode(item) for item in value]
    if isinstance(value, PLAIN):
        return value
    raise TypeError(
        "a configuration must hold numbers, texts, tuples and other configurations to be saved, "
        f"got {type(value).__name__}; use pickle or joblib for a model with your own nn.Module, "
        "which keep its class by name."
    )


def decode_config(value: Any, base: type[Config] = Config) -> Any:
    """The configuration that `encode` wrote; its class must be `base` or below it."""
    if not isinstance(value, dict) or set(value) != {"class", "settings"}:
        raise _wrong(base.__name__, value)
    kind, settings = _class(value["class"]), value["settings"]
    if not issubclass(kind, base):
        raise _wrong(f"a {base.__name__}", value["class"])
    if not isinstance(settings, dict):
        raise _wrong("settings by name", settings)
    return kind(**decode_settings(settings, kind))


def decode_settings(settings: dict[str, Any], kind: type[Config]) -> dict[str, Any]:
    """Encoded values by name, each as the type that `kind` has for it.

    Old names are renamed; a field that was added later has the value that it had before.
    """
    hints = typing.get_type_hints(kind)
    current = {kind.renamed.get(name, name): value for name, value in settings.items()}
    current = {**kind.added, **current}
    for name in current:
        if name not in hints:
            raise _wrong(f"a key of {kind.__name__}", name)
    return {name: decode(value, hints[name]) for name, value in current.items()}


def decode(value: Any, hint: Any) -> Any:
    """`value` as the type `hint` of a configuration's field."""
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _first_that_fits(value, options)
    if origin is typing.Literal and value in options:
        return value
    if origin is tuple and isinstance(value, list):
        return _decode_tuple(value, options)
    if isinstance(hint, type) and issubclass(hint, Config):
        return decode_config(value, hint)
    if type(value) is hint or (hint is float and type(value) is int):
        return value
    raise _wrong(str(getattr(hint, "__name__", hint)), value)


def _decode_tuple(value: list[Any], options: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(value) > MAX_TUPLE_LENGTH:
        raise _wrong(f"at most {MAX_TUPLE_LENGTH} values", value)
    hints = (options[0],) * len(value) if options[-1] is Ellipsis else options
    if len(hints) != len(value):
        raise _wrong(f"{len(hints)} values", value)
    return tuple(decode(item, hint) for item, hint in zip(value, hints, strict=True))


def _first_that_fits(value: Any, options: tuple[Any, ...]) -> Any:
    for option in options:
        try:
            return decode(value, type(None) if option is None else option)
        except ValueError:
            continue
    raise _wrong(" or ".join(str(getattr(o, "__name__", o)) for o in options), value)


def _class(name: Any) -> type[Config]:
    """The configuration class of that name; of two, the one that was defined last."""
    found = [kind for kind in _descendants(Config) if kind.__name__ == name]
    if not found:
        raise ValueError(
            f"a saved configuration must be of a known class, got {name!r:.200}; "
            "import the module that defines it first."
        )
    return found[-1]


def _descendants(kind: type[Config]) -> Iterator[type[Config]]:
    for child in kind.__subclasses__():
        yield child
        yield from _descendants(child)


def _wrong(rule: str, value: Any) -> ValueError:
    return ValueError(f"a saved configuration must have {rule} here, got {value!r:.200}.")
