"""Gaussian processes on a grid in a box, from GPyTorch's parts: the work under `dkl`."""

from collections.abc import Callable
from typing import Any

import gpytorch
import torch
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.utils.interpolation import Interpolation
from gpytorch.variational import (
    GridInterpolationVariationalStrategy,
    NaturalVariationalDistribution,
)
from jaxtyping import Float
from linear_operator.operators import DiagLinearOperator
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor, nn

from gpn.core.task import Signature, Task
from gpn.training.batches import LabelBatches
from gpn.training.state import Terms

CHUNK_ROWS = 1024

MAX_HALVINGS = 10


class GridProcess(gpytorch.models.ApproximateGP):
    """One process per output on the box, with q(u) over the values at the grid's nodes."""

    def __init__(self, grid_size: int, dim: int, length_scale: float, n_outputs: int) -> None:
        batch = torch.Size([n_outputs])
        law = NaturalVariationalDistribution(grid_size**dim, batch, mean_init_std=0.0)
        bounds = [(-1.0, 1.0)] * dim
        super().__init__(GridInterpolationVariationalStrategy(self, grid_size, bounds, law))
        self.mean_module = gpytorch.means.ConstantMean(batch_shape=batch)
        kernel = gpytorch.kernels.RBFKernel(ard_num_dims=dim, batch_shape=batch)
        kernel.lengthscale = length_scale
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel, batch_shape=batch)

    def forward(self, x: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def interpolation(grid: Float[Tensor, "g e"], x: Float[Tensor, "n e"]) -> Float[Tensor, "n u"]:
    """The weights w(x) of every node at every row: 4^e of them are not zero.

    GPyTorch numbers the nodes with the last axis fastest here, and with the first one fastest in
    its variational strategy; all axes being alike, the reversed x makes the two agree.
    """
    nodes, weights = Interpolation().interpolate(grid, x.double().flip(1))
    empty = weights.new_zeros(len(x), grid.shape[0] ** grid.shape[1])
    return empty.scatter_add(1, nodes, weights)


class DeepProcess(nn.Module):
    """Embedding, process (in float64: a grid's covariance is nearly singular) and likelihood."""

    def __init__(
        self, embedding: nn.Module, grid: GridProcess, signature: Signature, noise_std: float
    ) -> None:
        super().__init__()
        self.is_classification = signature.is_classification
        self.embedding = embedding
        self.grid = grid.double()
        self.likelihood = _likelihood(signature, noise_std).double()
        self.hyperparameters = [grid.mean_module, grid.covar_module, self.likelihood]
        self.learnt = nn.ModuleList([embedding, *self.hyperparameters])

    def log_likelihood(self, embedded: Float[Tensor, "n e"], y: Tensor) -> Float[Tensor, ""]:
        """Σ_i E_q log p(y_i | f(x_i)), over rows and outputs."""
        law = self._marginals(embedded)
        if not self.is_classification:
            return self.likelihood.expected_log_prob(y.T.double(), law).sum()
        return self.likelihood.expected_log_prob(
            y, MultitaskMultivariateNormal.from_batch_mvn(law)
        ).sum()

    def divergence(self) -> Float[Tensor, ""]:
        """KL(q(u) ‖ p(u)), over outputs."""
        return self.grid.variational_strategy.kl_divergence().sum()

    def _marginals(self, embedded: Float[Tensor, "n e"]) -> MultivariateNormal:
        """q(f(x_i)) row by row: all that a likelihood needs, and cheaper than the joint law."""
        law = self.grid.variational_strategy.variational_distribution
        weights = interpolation(self.grid.variational_strategy.grid, embedded)
        variance = (weights @ law.lazy_covariance_matrix.cholesky().to_dense()).square().sum(-1)
        return MultivariateNormal(law.mean @ weights.T, DiagLinearOperator(variance))

    @torch.no_grad()
    def grid_law(self) -> tuple[Float[Tensor, "g e"], Tensor, Tensor, float | None]:
        """The grid's axes, the mean (o, u) and a root (o, u, u) of q(u), and σ_ε."""
        strategy = self.grid.variational_strategy
        law = strategy.variational_distribution
        root = law.lazy_covariance_matrix.cholesky().to_dense()
        noise_std = None if self.is_classification else float(self.likelihood.noise) ** 0.5
        return strategy.grid.clone(), law.mean.clone(), root.clone(), noise_std


def _likelihood(signature: Signature, noise_std: float) -> Any:
    if signature.is_classification:
        return gpytorch.likelihoods.SoftmaxLikelihood(
            num_classes=signature.n_outputs, mixing_weights=False
        )
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = noise_std**2
    return likelihood


class Natural:
    """Natural-gradient steps of q(u), beside the steps that the loop takes for everything else."""

    def __init__(self, process: DeepProcess, task: Task, rate: float) -> None:
        self.process, self.task = process, task
        parameters = list(process.grid.variational_parameters())
        self.optimiser = gpytorch.optim.NGD(parameters, num_data=len(task.x_obs), lr=rate)
        self.strategy = process.grid.variational_strategy
        self._begin(self.strategy.prior_distribution)

    @torch.no_grad()
    def _begin(self, prior: MultivariateNormal) -> None:
        """q(u) = p(u): natural parameters K⁻¹ μ and −K⁻¹ / 2.

        By Cholesky factors: GPyTorch's own start takes a batched LU, which in torch 2.13 never
        returns on two threads of a CPU.
        """
        law = self.strategy._variational_distribution
        precision = torch.cholesky_inverse(psd_safe_cholesky(prior.covariance_matrix))
        law.natural_vec.copy_((precision @ prior.mean[..., None])[..., 0])
        law.natural_mat.copy_(-0.5 * precision)

    def steps(self, batches: LabelBatches) -> Callable[[], Terms]:
        """−ELBO per label on one batch; q(u) first follows the gradient of the step before."""
        process, task = self.process.train(), self.task

        def terms() -> Terms:
            self._follow()
            self.optimiser.zero_grad()
            self.strategy._clear_cache()
            rows = _not_square(batches.next().to(task.x_obs.device), task)
            embedded = process.embedding(task.augmented(task.x_obs[rows], batches.rng))
            data = process.log_likelihood(embedded, task.y_obs[rows]) / len(rows)
            return {"data": -data, "kl": process.divergence() / len(task.x_obs)}

        return terms

    def _follow(self) -> None:
        """One natural step, halved until q(u) is a Gaussian again.

        Where a likelihood is not conjugate, a long step can leave the cone of precisions.
        """
        group = self.optimiser.param_groups[0]
        before, rate = [p.detach().clone() for p in group["params"]], group["lr"]
        for _ in range(MAX_HALVINGS):
            self.optimiser.step()
            if self._is_gaussian():
                break
            self._put_back(before)
            group["lr"] /= 2
        group["lr"] = rate

    @torch.no_grad()
    def _is_gaussian(self) -> bool:
        """Whether the precision −2 θ₂ is positive definite."""
        precision = -2.0 * self.strategy._variational_distribution.natural_mat
        return bool((torch.linalg.cholesky_ex(precision).info == 0).all())

    @torch.no_grad()
    def _put_back(self, before: list[Tensor]) -> None:
        for parameter, value in zip(self.optimiser.param_groups[0]["params"], before, strict=True):
            parameter.copy_(value)

    def get_state(self) -> Tensor:
        """q(u), and the gradient that it is to follow at the next step."""
        parameters = self.optimiser.param_groups[0]["params"]
        return torch.cat([part.flatten() for p in parameters for part in (p.detach(), p.grad)])

    @torch.no_grad()
    def set_state(self, state: Tensor) -> None:
        parameters = self.optimiser.param_groups[0]["params"]
        parts = iter(state.to(parameters[0]).split([p.numel() for p in parameters for _ in "01"]))
        for parameter in parameters:
            parameter.copy_(next(parts).view_as(parameter))
            parameter.grad = next(parts).reshape(parameter.shape).clone()

    def solve(self) -> None:
        """One step of length 1 over all labels: exact where the likelihood is Gaussian."""
        process, task = self.process, self.task
        process.embedding.eval()
        self.strategy._clear_cache()
        loss = torch.zeros((), dtype=torch.float64, device=task.x_obs.device)
        for rows in torch.arange(len(task.x_obs)).split(CHUNK_ROWS):
            with torch.no_grad():
                embedded = process.embedding(task.x_obs[rows])
            loss = loss - process.log_likelihood(embedded, task.y_obs[rows])
        self.optimiser.zero_grad()
        ((loss + process.divergence()) / len(task.x_obs)).backward()
        self.optimiser.param_groups[0]["lr"] = 1.0
        self.optimiser.step()
        self.strategy._clear_cache()


def _not_square(rows: Tensor, task: Task) -> Tensor:
    """GPyTorch's softmax takes a batch with as many rows as classes for a transposed one."""
    is_square = task.is_classification and len(rows) == task.n_outputs
    return torch.cat([rows, rows]) if is_square else rows
