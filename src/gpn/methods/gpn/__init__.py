"""Generative Posterior Networks (Roderick, Berkenkamp, Sheikholeslami and Kolter 2022).

One network g(x, z); each code z ~ N(0, I) is one function from the posterior. Training pulls
g(·, z) towards the labels where there are labels, and towards the prior function that belongs to
z on a pool of unlabeled inputs:

    E_z [ data(g(x_obs, z), y_obs + η(z)) + gap(g(·, z) − f(·; z)) ]

`config.py` says what can be chosen, `fit.py` puts the chosen parts together and trains them,
`search.py` chooses β, `posterior.py` is what comes back.
"""

from gpn.methods.gpn.config import GPNConfig
from gpn.methods.gpn.fitting.fit import GPN
from gpn.methods.gpn.posterior import AffinePosterior, ConcatPosterior, GPNPosterior

__all__ = ["GPN", "AffinePosterior", "ConcatPosterior", "GPNConfig", "GPNPosterior"]
