"""Markov chains over the prior network's weights: slow, and the truth."""

from gpn.methods.mcmc.method import MCMC, MCMCConfig, MCMCPosterior

__all__ = ["MCMC", "MCMCConfig", "MCMCPosterior"]
