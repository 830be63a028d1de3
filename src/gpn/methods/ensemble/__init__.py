"""Ensembles of networks: plain, anchored in their parameters, or anchored in their outputs."""

from gpn.methods.ensemble.method import Ensemble, EnsembleConfig, EnsemblePosterior

__all__ = ["Ensemble", "EnsembleConfig", "EnsemblePosterior"]
