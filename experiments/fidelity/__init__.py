"""How far from the Bayesian posterior: small problems with a known truth."""
