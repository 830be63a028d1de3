"""Distance to the Bayesian posterior on small problems whose posterior is known."""
