"""Ensembles of networks: the method, its stacked members, and the prior over their parameters."""

from gpn.methods.ensemble.ensemble import Ensemble, EnsembleConfig, EnsemblePosterior

__all__ = ["Ensemble", "EnsembleConfig", "EnsemblePosterior"]
