"""Gaussian processes on a grid in [−1, 1]^d, and natural-gradient steps of q(u), with GPyTorch."""

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
from gpn.methods.linear_gaussian import CHUNK_ROWS
from gpn.training.batches import LabelBatches
from gpn.training.state import Terms

MAX_HALVINGS = 10


class GridProcess(gpytorch.models.ApproximateGP):
    """One process per output, with q(u) over the values at the grid's nodes, and a likelihood.

    In float64, because K_grid is nearly singular.
    """

    def __init__(
        self, grid_size: int, dim: int, length_scale: float, noise_std: float, signature: Signature
    ) -> None:
        batch, bounds = torch.Size([signature.n_outputs]), [(-1.0, 1.0)] * dim
        q_u = NaturalVariationalDistribution(grid_size**dim, batch, mean_init_std=0.0)
        super().__init__(GridInterpolationVariationalStrategy(self, grid_size, bounds, q_u))
        self.mean_module = gpytorch.means.ConstantMean(batch_shape=batch)
        kernel = gpytorch.kernels.RBFKernel(ard_num_dims=dim, batch_shape=batch)
        kernel.lengthscale = length_scale
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel, batch_shape=batch)
        self.is_classification = signature.is_classification
        if self.is_classification:
            self.likelihood = gpytorch.likelihoods.SoftmaxLikelihood(
                num_classes=signature.n_outputs, mixing_weights=False
            )
        else:
            self.likelihood = gpytorch.likelihoods.GaussianLikelihood()
            self.likelihood.noise = noise_std**2
        self.hyperparameters = [self.mean_module, self.covar_module, self.likelihood]
        self.double()

    def forward(self, x: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))

    def log_likelihood(self, embedded: Float[Tensor, "n e"], y: Tensor) -> Float[Tensor, ""]:
        """Σ_i E_q log p(y_i | f(x_i)), over rows and outputs.

        A likelihood needs the marginals q(f(x_i)) only, which cost less than their joint.
        """
        q_u = self.variational_strategy.variational_distribution
        weights = interpolation(self.variational_strategy.grid, embedded)
        variance = (weights @ q_u.lazy_covariance_matrix.cholesky().to_dense()).square().sum(-1)
        q_f = MultivariateNormal(q_u.mean @ weights.T, DiagLinearOperator(variance))
        if not self.is_classification:
            return self.likelihood.expected_log_prob(y.T.double(), q_f).sum()
        q_logits = MultitaskMultivariateNormal.from_batch_mvn(q_f)
        return self.likelihood.expected_log_prob(y, q_logits).sum()

    def divergence(self) -> Float[Tensor, ""]:
        """KL(q(u) ‖ p(u)), over outputs."""
        return self.variational_strategy.kl_divergence().sum()

    @torch.no_grad()
    def posterior(self) -> tuple[Float[Tensor, "g e"], Tensor, Tensor, float | None]:
        """The grid's axes, the mean (o, u) and a root (o, u, u) of q(u), and σ_ε."""
        q_u = self.variational_strategy.variational_distribution
        root = q_u.lazy_covariance_matrix.cholesky().to_dense()
        noise_std = None if self.is_classification else float(self.likelihood.noise) ** 0.5
        return self.variational_strategy.grid.clone(), q_u.mean.clone(), root.clone(), noise_std


def interpolation(grid: Float[Tensor, "g e"], x: Float[Tensor, "n e"]) -> Float[Tensor, "n u"]:
    """The weights w(x) of every node at every row, of which 4^e are not zero.

    GPyTorch's interpolation numbers the nodes with the last axis fastest, its variational strategy
    with the first axis fastest. All axes are alike, so reversing x makes the two agree.
    """
    nodes, weights = Interpolation().interpolate(grid, x.double().flip(1))
    empty = weights.new_zeros(len(x), grid.shape[0] ** grid.shape[1])
    return empty.scatter_add(1, nodes, weights)


class NaturalGradient:
    """Natural-gradient steps of q(u); the training loop takes those of all other parameters."""

    def __init__(
        self,
        process: GridProcess,
        embedding: nn.Module,
        task: Task,
        batches: LabelBatches,
        rate: float,
    ) -> None:
        self.process, self.embedding = process.train(), embedding.train()
        self.task, self.batches = task, batches
        self.strategy = process.variational_strategy
        self.parameters = list(process.variational_parameters())
        self.optimiser = gpytorch.optim.NGD(self.parameters, num_data=len(task.x_obs), lr=rate)
        self._start_at_prior()

    @torch.no_grad()
    def _start_at_prior(self) -> None:
        """q(u) = p(u): natural parameters K⁻¹ μ and −K⁻¹ / 2.

        By Cholesky factors: GPyTorch's initialisation uses a batched LU, which in torch 2.13 never
        returns on two threads of a CPU.
        """
        prior, q_u = self.strategy.prior_distribution, self.strategy._variational_distribution
        precision = torch.cholesky_inverse(psd_safe_cholesky(prior.covariance_matrix))
        q_u.natural_vec.copy_((precision @ prior.mean[..., None])[..., 0])
        q_u.natural_mat.copy_(-0.5 * precision)

    def loss_terms(self) -> Terms:
        """−ELBO per label on one batch, after q(u) has followed the gradient of the last step."""
        task, batches = self.task, self.batches
        self._step()
        self.optimiser.zero_grad()
        self.strategy._clear_cache()
        rows = batches.next().to(task.x_obs.device)
        if task.is_classification and len(rows) == task.n_outputs:
            # GPyTorch's softmax takes as many rows as classes for a transposed batch
            rows = torch.cat([rows, rows])
        embedded = self.embedding(task.augmented(task.x_obs[rows], batches.rng))
        data = self.process.log_likelihood(embedded, task.y_obs[rows]) / len(rows)
        return {"data": -data, "kl": self.process.divergence() / len(task.x_obs)}

    @torch.no_grad()
    def _step(self) -> None:
        """One natural step, halved until the precision −2 θ₂ of q(u) is positive definite.

        If a likelihood is not conjugate, a long step can leave the cone of precisions.
        """
        group, before = self.optimiser.param_groups[0], [p.clone() for p in self.parameters]
        rate = group["lr"]
        for _ in range(MAX_HALVINGS):
            self.optimiser.step()
            precision = -2.0 * self.strategy._variational_distribution.natural_mat
            if not torch.linalg.cholesky_ex(precision).info.any():
                break
            for parameter, value in zip(self.parameters, before, strict=True):
                parameter.copy_(value)
            group["lr"] /= 2
        group["lr"] = rate

    def get_state(self) -> Tensor:
        """q(u), and the gradient that it follows at the next step."""
        return torch.cat([t.flatten() for p in self.parameters for t in (p.detach(), p.grad)])

    @torch.no_grad()
    def set_state(self, state: Tensor) -> None:
        sizes = [p.numel() for p in self.parameters for _ in "01"]
        tensors = iter(state.to(self.parameters[0]).split(sizes))
        for parameter in self.parameters:
            parameter.copy_(next(tensors).view_as(parameter))
            parameter.grad = next(tensors).reshape(parameter.shape).clone()

    def solve(self) -> None:
        """One step of length 1 over all labels: exact if the likelihood is Gaussian."""
        process, embedding, task = self.process, self.embedding.eval(), self.task
        self.strategy._clear_cache()
        loss = torch.zeros((), dtype=torch.float64, device=task.x_obs.device)
        for rows in torch.arange(len(task.x_obs)).split(CHUNK_ROWS):
            with torch.no_grad():
                embedded = embedding(task.x_obs[rows])
            loss = loss - process.log_likelihood(embedded, task.y_obs[rows])
        self.optimiser.zero_grad()
        ((loss + process.divergence()) / len(task.x_obs)).backward()
        self.optimiser.param_groups[0]["lr"] = 1.0
        self.optimiser.step()
        self.strategy._clear_cache()
