"""Deep kernel learning: the method, and the Gaussian process on a grid that it trains."""

from gpn.methods.dkl.dkl import DKL, DKLConfig, DKLPosterior

__all__ = ["DKL", "DKLConfig", "DKLPosterior"]
