"""Distributions over functions, in closed form: networks, kernels, eigenfunctions, evidence."""
