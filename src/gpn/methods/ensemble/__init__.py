"""Ensembles of networks: the method, and its stacked members with their parameter prior."""

from gpn.methods.ensemble.ensemble import Ensemble, EnsembleConfig, EnsemblePosterior

__all__ = ["Ensemble", "EnsembleConfig", "EnsemblePosterior"]
