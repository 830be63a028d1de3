"""Every method by name; a module is imported only when one of its methods is asked for."""

import difflib
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

from gpn.core.posterior.base import Posterior
from gpn.core.task import Task
from gpn.core.types import Rng


@runtime_checkable
class Method(Protocol):
    """What a method is: one verb that turns a task into a posterior."""

    def fit(self, task: Task, rng: Rng = None, *, progress: bool | None = None) -> Posterior: ...


Factory = Callable[..., Method]
FILES = {
    "gpn": ".posterior",
    "ensemble": ".method",
    "mcmc": ".method",
    "dkl": ".method",
    "sngp": ".method",
}


@dataclass(frozen=True)
class Entry:
    """How a method is built, and where its posterior's class is ("module:Class")."""

    build: Factory
    posterior: str | None
    find_posterior: Callable[[], type[Posterior] | None]


def get(name: str, **changes: Any) -> Method:
    """The method of that name, with its default configuration but for `changes`."""
    return _entry(name).build(**changes)


def names() -> tuple[str, ...]:
    """Every name that `get` knows."""
    return tuple(_ENTRIES)


def register(name: str, factory: Factory, *, posterior: type[Posterior] | None = None) -> None:
    """Add a method: `factory(**changes)` builds it with its default configuration but for changes.

    With `posterior`, the class of what it fits, its posteriors can be saved and loaded too.
    """
    if name in _ENTRIES:
        raise ValueError(f"a method's name must be new, got {name!r}, which exists; pick another.")
    _ENTRIES[name] = Entry(factory, _path(posterior), lambda: posterior)


def name_of(posterior: Posterior) -> str:
    """The method that a posterior's class belongs to (of several presets, the shortest name)."""
    paths = {_path(kind) for kind in type(posterior).__mro__ if issubclass(kind, Posterior)}
    found = [name for name, entry in _ENTRIES.items() if entry.posterior in paths - {None}]
    if not found:
        raise TypeError(
            f"a posterior must belong to a registered method, got {type(posterior).__name__}; "
            "try gpn.methods.register(name, factory, posterior=...)."
        )
    return min(found, key=len)


def posterior_of(name: str) -> type[Posterior]:
    """The class of what the method of that name fits."""
    found = _entry(name).find_posterior()
    if found is None:
        raise TypeError(
            f"the method {name!r} must name its posterior to be loaded; "
            "try gpn.methods.register(name, factory, posterior=...)."
        )
    return found


def _entry(name: str) -> Entry:
    if name not in _ENTRIES:
        close = difflib.get_close_matches(name, _ENTRIES, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        raise ValueError(f"a method must be one of {', '.join(_ENTRIES)}, got {name!r}{hint}")
    return _ENTRIES[name]


def _path(posterior: type[Posterior] | None) -> str | None:
    return None if posterior is None else f"{posterior.__module__}:{posterior.__qualname__}"


def _built_in(
    stem: str, method: str, *, preset: str | None = None, extra: str = "", **settings: Any
) -> Entry:
    """The entry of gpn.methods.<stem>, which holds <method>, <method>Config, <method>Posterior."""

    def build(**changes: Any) -> Method:
        home = _import(stem, extra)
        config = getattr(home, f"{method}Config")
        make = config if preset is None else getattr(config, preset)
        return getattr(home, method)(make(**{**settings, **changes}))

    def find_posterior() -> type[Posterior]:
        return getattr(_import(stem, extra), f"{method}Posterior")

    home = f"gpn.methods.{stem}{FILES.get(stem, '')}"
    return Entry(build, f"{home}:{method}Posterior", find_posterior)


def _import(stem: str, extra: str) -> ModuleType:
    try:
        return importlib.import_module(f"gpn.methods.{stem}")
    except ModuleNotFoundError as error:
        if not extra or str(error.name).partition(".")[0] == "gpn":
            raise
        raise ImportError(
            f"the method {stem!r} needs {error.name}, which is not installed; "
            f"try pip install 'gpn[{extra}]'."
        ) from error


_ENTRIES: dict[str, Entry] = {
    "gpn": _built_in("gpn", "GPN"),
    "gpn-paper": _built_in("gpn", "GPN", preset="paper"),
    "dropout": _built_in("dropout", "Dropout"),
    "dkl": _built_in("dkl", "DKL", extra="gp"),
    "sngp": _built_in("sngp", "SNGP"),
    "ensemble-pr": _built_in("ensemble", "Ensemble", regularise="parameters"),
    "ensemble-or": _built_in("ensemble", "Ensemble", regularise="outputs"),
    "ensemble": _built_in("ensemble", "Ensemble", regularise="none"),
    "gp": _built_in("gp", "GP"),
    "mcmc": _built_in("mcmc", "MCMC"),
}
