"""Spectral-normalised neural Gaussian process (Liu, Lin, Padhy, Tran et al. 2020)."""

from gpn.methods.sngp.sngp import SNGP, SNGPConfig, SNGPPosterior

__all__ = ["SNGP", "SNGPConfig", "SNGPPosterior"]
