"""One file per method; each has the same order inside: config, fit, posterior.

`get(name)` builds any of them, `names()` lists them, `register(name, factory)` adds yours.
"""

from gpn.methods.registry import Method, get, names, register

__all__ = ["Method", "get", "names", "register"]
