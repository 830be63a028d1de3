"""MCMC over the prior network's weights: the method, its samplers, and convergence diagnostics."""

from gpn.methods.mcmc.mcmc import MCMC, MCMCConfig, MCMCPosterior

__all__ = ["MCMC", "MCMCConfig", "MCMCPosterior"]
