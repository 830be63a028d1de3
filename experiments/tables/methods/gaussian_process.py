"""A Gaussian process with one length scale per column (ARD), by GPyTorch, in float64.

Hyperparameters: marginal likelihood of at most `evidence_labels` rows, by Adam, for a Matérn-5/2
and for an RBF kernel; the higher likelihood is taken. Posterior: exact, given all training rows, as
long as their Gram matrix fits the machine; beyond that stochastic variational inference (Hensman et
al. 2013) with `inducing` points starts from those hyperparameters.
"""

from dataclasses import dataclass
from typing import ClassVar

import gpytorch
import numpy as np
import torch
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from jaxtyping import Float
from torch import Tensor

from experiments.tables.data import Rows, Targets
from experiments.tables.methods.base import Machine, Predict, Standardiser
from experiments.tables.predictive import Prediction, gaussian, prediction

SMALLEST_NOISE = 1e-6  # in units of the target's variance
ROWS_AT_ONCE = 2_000
X, Y = Float[Tensor, "n d"], Float[Tensor, "n"]


@dataclass(frozen=True)
class Sizes:
    """How many labels a machine can take: for the evidence, and for the exact posterior."""

    evidence_labels: int
    exact_labels: int


@dataclass(frozen=True)
class GaussianProcess:
    steps: int = 100
    learning_rate: float = 0.1
    gpu: Sizes = Sizes(evidence_labels=4_000, exact_labels=20_000)
    cpu: Sizes = Sizes(evidence_labels=1_500, exact_labels=6_000)
    inducing: int = 1_000
    epochs: int = 40
    batch: int = 1_024
    uses_gpu: ClassVar[bool] = True
    packages: ClassVar[tuple[str, ...]] = ()

    def fit(self, x: Rows, y: Targets, *, seed: int, machine: Machine) -> Predict:
        of_x, of_y = Standardiser.of(x), Standardiser.of(y)
        sizes = self.gpu if machine.device.type == "cuda" else self.cpu
        rng = torch.Generator().manual_seed(seed)
        rows = torch.randperm(len(y), generator=rng).to(machine.device)
        x_all, y_all = (_tensor(part, machine.device)[rows] for part in (of_x(x), of_y(y)))
        few = min(sizes.evidence_labels, len(y))
        with cholesky():
            model = self._best_evidence(x_all[:few], y_all[:few])
            if len(y) <= sizes.exact_labels:
                model.set_train_data(x_all, y_all, strict=False)
                posterior: ExactGP | VariationalGP = model.eval()
            else:
                posterior = self._variational(model, x_all, y_all, rng)

        def predict(x_new: Rows) -> Prediction:
            mean, std = moments(posterior, _tensor(of_x(x_new), machine.device))
            return prediction(gaussian(of_y.centre + of_y.scale * mean, of_y.scale * std))

        return predict

    def _best_evidence(self, x: X, y: Y) -> "ExactGP":
        fits = [self._learn(ExactGP(x, y, of)) for of in (MaternKernel, RBFKernel)]
        return min(fits, key=lambda fit: fit[1])[0]

    def _learn(self, model: "ExactGP") -> tuple["ExactGP", float]:
        """−log p(y) / n, minimised; its value before the last step."""
        evidence = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
        optimiser = torch.optim.Adam(model.parameters(), self.learning_rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, self.steps)
        (x,), y = model.train_inputs, model.train_targets
        for _ in range(self.steps):
            loss = -evidence(model(x), y)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        return model, float(loss)

    def _variational(self, start: "ExactGP", x: X, y: Y, rng: torch.Generator) -> "VariationalGP":
        """Natural gradients for q(u), Adam for inducing points and hyperparameters."""
        model = VariationalGP(start, x[: self.inducing].clone())
        bound = gpytorch.mlls.VariationalELBO(model.likelihood, model, num_data=len(y))
        natural = gpytorch.optim.NGD(model.variational_parameters(), num_data=len(y), lr=0.1)
        adam = torch.optim.Adam(model.hyperparameters(), lr=0.01)
        steps = self.epochs * (len(y) // self.batch)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps)
        for _ in range(steps):
            rows = torch.randint(len(y), (self.batch,), generator=rng).to(x.device)
            loss = -bound(model(x[rows]), y[rows])
            model.zero_grad()
            loss.backward()
            natural.step()
            adam.step()
            schedule.step()
        return model.eval()


class ExactGP(gpytorch.models.ExactGP):
    """Constant mean, one scale per column, learnt noise; all scales in logarithms."""

    def __init__(self, x: X, y: Y, kernel: type[Kernel]) -> None:
        noise = GaussianLikelihood(noise_constraint=_above(SMALLEST_NOISE))
        super().__init__(x, y, noise)
        d = x.shape[1]
        self.mean = gpytorch.means.ConstantMean()
        self.kernel = ScaleKernel(
            kernel(ard_num_dims=d, lengthscale_constraint=_above(1e-3)),
            outputscale_constraint=_above(1e-4),
        )
        self.to(x)
        self.initialize(
            **{
                "kernel.outputscale": 1.0,
                "kernel.base_kernel.lengthscale": d**0.5,
                "likelihood.noise": 0.1,
            }
        )

    def forward(self, x: X) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))


class VariationalGP(gpytorch.models.ApproximateGP):
    """q(u) at inducing points, with the mean, kernel and noise of an exact process."""

    def __init__(self, start: ExactGP, inducing: X) -> None:
        over = gpytorch.variational.NaturalVariationalDistribution(len(inducing))
        super().__init__(gpytorch.variational.VariationalStrategy(self, inducing, over))
        self.mean, self.kernel, self.likelihood = start.mean, start.kernel, start.likelihood
        self.to(inducing)

    def forward(self, x: X) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))


@torch.no_grad()
def moments(model: ExactGP | VariationalGP, x: X) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of new labels."""
    parts = []
    with cholesky():
        for some in x.split(ROWS_AT_ONCE):
            said = model.likelihood(model(some))
            parts.append(torch.stack([said.mean, said.variance.sqrt()]))
    mean, std = torch.cat(parts, dim=1).cpu().numpy()
    return mean, std


def cholesky() -> gpytorch.settings.fast_computations:
    """Exact algebra at any size, no conjugate gradients."""
    parts = ("covar_root_decomposition", "log_prob", "solves")
    return gpytorch.settings.fast_computations(**dict.fromkeys(parts, False))


def _above(smallest: float) -> GreaterThan:
    return GreaterThan(smallest, transform=torch.exp, inv_transform=torch.log)


def _tensor(values: Float[np.ndarray, "..."], device: torch.device) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float64, device=device)
