"""Generative Posterior Networks (Roderick, Berkenkamp, Sheikholeslami and Kolter 2022).

One network g(x, z); each code z ~ N(0, I) is one function from the posterior. Training pulls
g(·, z) towards the labels where there are labels, and towards the prior function that belongs to
z on a pool of unlabeled inputs:

    E_z [ data(g(x_obs, z), y_obs + η(z)) + β gap(g(·, z) − f(·; z)) ]

`config.py` is what can be set, `defaults.py` what is chosen otherwise, `model/` section 4 of the
paper, `pool/` which pool rows count how much, `fitting/` the way from a task to a posterior,
`posterior.py` and `fit_report.py` what comes back.
"""

from gpn.methods.gpn.config import GPNConfig
from gpn.methods.gpn.fitting.fit import GPN
from gpn.methods.gpn.fitting.fit_many import fit_many
from gpn.methods.gpn.posterior import AffinePosterior, ConcatPosterior, GPNPosterior

fit_side_by_side = fit_many  # its name before 0.2

__all__ = [
    "GPN",
    "AffinePosterior",
    "ConcatPosterior",
    "GPNConfig",
    "GPNPosterior",
    "fit_many",
    "fit_side_by_side",
]
