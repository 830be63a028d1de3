"""Thirty evaluations of the Branin function: a GPN, a Gaussian process and random search.

All start from the same six points. About a minute; needs pip install 'gpn[botorch,plots]'.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from botorch.acquisition import qLogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf
from botorch.test_functions import Branin
from botorch.utils.sampling import draw_sobol_samples
from gpytorch.mlls import ExactMarginalLogLikelihood

from gpn.botorch import GPNModel
from gpn.plots.palette import CYCLE

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--out", type=Path, default=Path("demo/bayesian_optimisation.png"))
options = parser.parse_args()
function = Branin(negate=True, dtype=torch.float64)
sobol = draw_sobol_samples(function.bounds, n=6 + options.steps, q=1, seed=0).squeeze(1)


def by_gpn(x, y):
    return best_candidate(GPNModel.fit(x, y, function.bounds, rng=0), y)


def by_gaussian_process(x, y):
    model = SingleTaskGP(x, y, input_transform=Normalize(2, bounds=function.bounds))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return best_candidate(model, y)


def best_candidate(model, y):
    improvement = qLogExpectedImprovement(model, best_f=y.max())
    return optimize_acqf(improvement, function.bounds, q=1, num_restarts=4, raw_samples=128)[0]


figure, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
ax.set_prop_cycle(color=CYCLE)
models = {"GPN": by_gpn, "Gaussian process": by_gaussian_process}
for name, next_point in {**models, "random search": lambda x, y: sobol[len(x), None]}.items():
    torch.manual_seed(0)
    x = sobol[:6]
    while len(x) < len(sobol):
        x = torch.cat([x, next_point(x, function(x)[:, None])])
    regret = function.optimal_value - function(x).cummax(0).values[5:]
    ax.step(range(len(regret)), regret, where="post", label=f"{name}: {regret[-1]:.2g}")
ax.set(yscale="log", xlabel="evaluations after the first six", ylabel="regret")
figure.legend(loc="outside lower center", ncols=3, frameon=False, title="regret at the end")
options.out.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(options.out, dpi=150)
