"""The options that an estimator was made with, as JSON and back: a clone of it fits as it did.

A seed is kept as a number; a generator in its place cannot be, and becomes None.
"""

from collections.abc import Callable
from numbers import Integral
from typing import Any

from gpn.core.config import Config
from gpn.core.networks import Trunk
from gpn.encoding import decode_config, encode
from gpn.methods.gpn import GPNConfig
from gpn.restoring import require

LARGEST_SEED = 2**32 - 1
ELSEWHERE = ("method", "settings")  # kept under their own names


def given_to(model: Any) -> dict[str, Any]:
    """What the constructor was given, each option by its name."""
    given = {k: v for k, v in model.get_params(deep=False).items() if k not in ELSEWHERE}
    seed = given["random_state"]
    given["random_state"] = int(seed) if isinstance(seed, Integral) else None
    given["verbose"] = bool(given["verbose"])
    return {name: encode(value) for name, value in given.items()}


def options_of(given: Any, kind: type) -> dict[str, Any]:
    """The constructor's arguments, each checked; an option that `kind` lacks is refused."""
    require(isinstance(given, dict), "options must have names", given)
    known = set(kind._get_param_names()) - set(ELSEWHERE)  # type: ignore[attr-defined]
    require(set(given) == known, f"options must be {sorted(known)}", sorted(given))
    return {name: READ[name](value) for name, value in given.items()}


def _config(kind: type[Config]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else decode_config(value, kind)


def _seed(value: Any) -> int | None:
    right = value is None or (type(value) is int and 0 <= value <= LARGEST_SEED)
    require(right, "random_state must be a seed", value)
    return value


def _plain(kind: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        require(type(value) is kind, f"an option must be a {kind.__name__} here", value)
        return value

    return read


READ: dict[str, Callable[[Any], Any]] = {
    "config": _config(GPNConfig),
    "module": _config(Trunk),
    "device": _plain(str),
    "random_state": _seed,
    "verbose": _plain(bool),
}
