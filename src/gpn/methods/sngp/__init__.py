"""SNGP: the method, and the spectral norm that bounds its layers."""

from gpn.methods.sngp.sngp import SNGP, SNGPConfig, SNGPPosterior

__all__ = ["SNGP", "SNGPConfig", "SNGPPosterior"]
