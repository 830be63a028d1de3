"""Every method by name. A method's module is imported when one of its names is first used."""

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from gpn.core.config import require_choice
from gpn.core.posterior.base import Posterior
from gpn.core.task import Task
from gpn.core.types import Rng


@runtime_checkable
class Method(Protocol):
    """A method turns a task into a posterior."""

    def fit(self, task: Task, rng: Rng = None, *, progress: bool | None = None) -> Posterior: ...


@dataclass(frozen=True)
class Entry:
    """A factory for the method, and a function that finds the class of its posteriors.

    Only posteriors of an imported `module` can exist; that of a registered method is imported.
    """

    build: Callable[..., Method]
    find_posterior: Callable[[], type[Posterior] | None]
    module: str = __name__


def get(name: str, **changes: Any) -> Method:
    """The method of that name, with its default configuration except for `changes`."""
    return _entry(name).build(**changes)


def names() -> tuple[str, ...]:
    """Every name that `get` accepts."""
    return tuple(_ENTRIES)


def register(
    name: str, factory: Callable[..., Method], *, posterior: type[Posterior] | None = None
) -> None:
    """Add a method that `factory(**changes)` builds from its default configuration and `changes`.

    `posterior` is the class that its `fit` returns; saving and loading need it.
    """
    if name in _ENTRIES:
        raise ValueError(f"a method's name must be new, got {name!r}, which exists; pick another.")
    _ENTRIES[name] = Entry(factory, lambda: posterior)


def name_of(posterior: Posterior) -> str:
    """The method of a posterior's class, or of its nearest registered base class.

    Presets share a class: the shortest of their names is returned.
    """
    imported = [item for item in _ENTRIES.items() if item[1].module in sys.modules]
    for kind in type(posterior).__mro__:
        found = [name for name, entry in imported if entry.find_posterior() is kind]
        if found:
            return min(found, key=len)
    raise TypeError(
        f"a posterior must belong to a registered method, got {type(posterior).__name__}; "
        "try gpn.methods.register(name, factory, posterior=...)."
    )


def posterior_of(name: str) -> type[Posterior]:
    """The class of the posteriors that the method of that name fits."""
    found = _entry(name).find_posterior()
    if found is None:
        raise TypeError(
            f"the method {name!r} must name its posterior to be loaded; "
            "try gpn.methods.register(name, factory, posterior=...)."
        )
    return found


def _entry(name: str) -> Entry:
    require_choice("a method", name, _ENTRIES)
    return _ENTRIES[name]


def _built_in(method: str, *, preset: str = "", extra: str = "", **settings: Any) -> Entry:
    """The entry of a class X whose module gpn.methods.x also holds XConfig and XPosterior.

    `preset` is a constructor of XConfig, `extra` the optional dependencies that the module needs.
    """
    module = f"gpn.methods.{method.lower()}"

    def find(suffix: str) -> Any:
        try:
            return getattr(importlib.import_module(module), method + suffix)
        except ModuleNotFoundError as error:
            if not extra or str(error.name).partition(".")[0] == "gpn":
                raise
            raise ImportError(
                f"the method {method.lower()!r} needs {error.name}, which is not installed; "
                f"try pip install 'gpn[{extra}]'."
            ) from error

    def build(**changes: Any) -> Method:
        config = find("Config")
        make = getattr(config, preset) if preset else config
        return find("")(make(**{**settings, **changes}))

    return Entry(build, lambda: find("Posterior"), module)


_ENTRIES: dict[str, Entry] = {
    "gpn": _built_in("GPN"),
    "gpn-paper": _built_in("GPN", preset="paper"),
    "dropout": _built_in("Dropout"),
    "dkl": _built_in("DKL", extra="gp"),
    "sngp": _built_in("SNGP"),
    "ensemble-pr": _built_in("Ensemble", regularise="parameters"),
    "ensemble-or": _built_in("Ensemble", regularise="outputs"),
    "ensemble": _built_in("Ensemble", regularise="none"),
    "ensemble-plus": _built_in("Ensemble", regularise="prior"),
    "epinet": _built_in("Epinet"),
    "gp": _built_in("GP"),
    "gpc": _built_in("GPC"),
    "mcmc": _built_in("MCMC"),
}
