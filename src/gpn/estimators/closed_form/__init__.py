"""What an estimator chooses before a fit in closed form: the prior, and a mean model inside it."""
