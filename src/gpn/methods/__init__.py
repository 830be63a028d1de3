"""One file or folder per method, each in the same order: config, fit, posterior.

`get(name)` builds a method, `names()` lists them, `register(name, factory)` adds yours.
"""

from gpn.methods.registry import Method, get, names, register

__all__ = ["Method", "get", "names", "register"]
