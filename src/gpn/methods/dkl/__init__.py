"""Deep kernel learning with a grid (Wilson, Hu, Salakhutdinov and Xing 2016a, b; KISS-GP)."""

from gpn.methods.dkl.dkl import DKL, DKLConfig, DKLPosterior

__all__ = ["DKL", "DKLConfig", "DKLPosterior"]
