"""Which module loads which kind of model file: found by name, as `saving` lies below them."""

import importlib
from collections.abc import Callable
from typing import Any

_LOADERS = {
    "estimator": "gpn.estimators.persistence:load_model",
    "table": "gpn.tables.model:load_table_model",
}


def loader_of(kind: str) -> Callable[..., Any]:
    """The function `(saved, device) → model` for a file of that kind."""
    module, _, name = _LOADERS[kind].partition(":")
    return getattr(importlib.import_module(module), name)
