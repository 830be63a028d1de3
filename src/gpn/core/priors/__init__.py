"""Distributions over functions in closed form, and what labels say about them.

prior          random networks: configurations, and functions drawn from them
kernel         the covariance of their infinitely wide limits
spectral       a kernel's eigenfunctions as features ψ(x); other kernel features belong there
ard            a prior for tables: one scale per column, and a linear part
ard_evidence   its scales, by marginal likelihood
evidence       prior scales and label noise by marginal likelihood
expectation_propagation  a Gaussian posterior of two classes, by moments
leave_one_out  the variance at a label without that label
cholesky       factors of covariances, in floating point
"""
