"""A GPN as a BoTorch model: the code z is the base sample, so that one z is one function.

    model = GPNModel.fit(train_X, train_Y, bounds, rng=0)  # in the units of the data
    acquisition = qLogExpectedImprovement(model, best_f=train_Y.max())
    candidates, _ = optimize_acqf(acquisition, bounds, q=2, num_restarts=4, raw_samples=128)

`GPNModel(posterior)` takes any fitted GPN, `GPNModel.of(regressor)` a fitted `GPNRegressor`, and
`PathwiseThompsonSampling(model)` is Thompson sampling. Needs the extra: pip install 'gpn[botorch]'.
"""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
from botorch.acquisition.objective import PosteriorTransform, ScalarizedPosteriorTransform
from botorch.models.model import Model
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.posteriors.posterior import Posterior
from botorch.sampling.pathwise.posterior_samplers import DrawMatheronPaths
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from linear_operator import to_linear_operator
from numpy.typing import NDArray
from torch import Size, Tensor, nn
from torch.quasirandom import SobolEngine

from gpn.botorch.posterior import AffineCodePosterior, CodePosterior, ConcatCodePosterior
from gpn.core.networks.trunks import MLPTrunk
from gpn.core.priors.ard import ARDPrior
from gpn.core.priors.ard_evidence import learn_ard_prior
from gpn.core.priors.evidence import fit_prior_by_evidence
from gpn.core.task import Task
from gpn.core.types import Rng, as_generator
from gpn.estimators.regressor import GPNRegressor
from gpn.estimators.scaling import Scale
from gpn.methods.gpn import GPN, GPNConfig, GPNPosterior
from gpn.methods.gpn.model.generator import AffineGenerator, Generator
from gpn.methods.gpn.model.kernel_generator import KernelGenerator, exact_root
from gpn.training.config import TrainConfig
from gpn.training.torch_state import one_thread

CENTRE_STEPS = 2  # prior and constant by turns
POOL_ROWS = 512
QUICK_STEPS = 300


class GPNModel(Model):
    """The functions of a fitted GPN, in the units of `x_scale` and `y_scale` (None: unscaled).

    Inputs may have any floating dtype, and outputs have the same.
    """

    generator: Generator
    x_shift: Tensor
    x_scale: Tensor
    x_bend: Tensor
    y_shift: Tensor
    y_weights: Tensor  # o × m

    def __init__(
        self, posterior: GPNPosterior, x_scale: Scale | None = None, y_scale: Scale | None = None
    ) -> None:
        super().__init__()
        _check_posterior(posterior)
        self.gpn = posterior
        # L-BFGS needs smoother values than float32 gives, whatever the precision of the fit
        self.generator = copy.deepcopy(posterior.generator).double()
        x, y = x_scale or Scale.none(), y_scale or Scale.none()
        dim, outputs = posterior.signature.input_shape[0], posterior.n_outputs
        self.register_buffer("x_shift", torch.from_numpy(x.shift).expand(dim).clone())
        self.register_buffer("x_scale", torch.from_numpy(x.scale).expand(dim).clone())
        bend = np.full(dim, np.inf) if x.bend is None else x.bend
        self.register_buffer("x_bend", torch.from_numpy(bend).clone())
        self.register_buffer("y_shift", torch.from_numpy(y.shift).expand(outputs).clone())
        self.register_buffer("y_weights", torch.from_numpy(y.scale).expand(outputs).diag())

    @classmethod
    def of(cls, regressor: GPNRegressor) -> "GPNModel":
        """A fitted estimator, in the units of its data."""
        posterior: Any = regressor.posterior_
        if getattr(regressor, "mean_", None) is not None:
            raise ValueError(
                "acquisition functions need gradients, got a GPNRegressor whose mean is another "
                "model, which has none; fit it with mean=None."
            )
        return cls(posterior, regressor.x_scale_, regressor.y_scale_)

    @classmethod
    def fit(
        cls,
        train_X: Tensor,
        train_Y: Tensor,
        bounds: Tensor,
        *,
        pool: Tensor | None = None,
        config: GPNConfig | None = None,
        rng: Rng = None,
    ) -> "GPNModel":
        """Fit a GPN to labels ``n × d`` and ``n × m`` on the box `bounds` ``2 × d``.

        The pool is a Sobol sequence in the box; pass `pool` where candidates come from elsewhere.
        The default is the posterior in closed form, with smoothness and noise by marginal
        likelihood: well under a second for a hundred labels. Its prior is a network with one scale
        for all inputs, or one of cosines (Matérn kernel) with a scale for each, whichever predicts
        left-out labels better; its mean is the likeliest constant. `quick_config` is a network that
        takes a second or two on one core.
        """
        _check_data(train_X, train_Y, bounds)
        low, high = _to_numpy(bounds)
        x_scale = Scale((low + high) / 2, (high - low) / 12**0.5)  # moments of U[low, high]
        y_scale = Scale.of(_to_numpy(train_Y))
        seeds = as_generator(rng)
        rows = _sobol(bounds, seeds) if pool is None else pool
        x, unlabeled = (_scaled(values, x_scale) for values in (train_X, rows))
        task = Task(x, _scaled(train_Y, y_scale), pool=unlabeled)
        if config is not None:
            return cls(GPN(config).fit(task, rng=seeds, progress=False), x_scale, y_scale)
        with one_thread():
            found = [_conditioned(task, learn, seeds) for learn in (_shared_scale, _own_scales)]
            best = min(found, key=lambda each: each.left_out_loss)
        centred = Scale(y_scale.shift + best.centre * y_scale.scale, y_scale.scale)
        return cls(best.posterior, x_scale, centred)

    @property
    def num_outputs(self) -> int:
        return self.y_weights.shape[1]

    @property
    def batch_shape(self) -> Size:
        return Size()

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,  # noqa: FBT001
        posterior_transform: PosteriorTransform | None = None,
    ) -> Posterior:
        """The distribution of functions at ``b × q × d`` inputs; with noise, of new labels.

        `observation_noise` True is the noise of the fit; a tensor holds variances that broadcast
        to ``b × q × m``.
        """
        self.eval()
        if output_indices is not None:
            rest = observation_noise, posterior_transform
            return self.subset_output(output_indices).posterior(X, None, *rest)
        noise = self._noise_variance(X, observation_noise)
        if isinstance(self.generator, KernelGenerator):
            exact = self._exact_posterior(X, self.generator, noise)
            return exact if posterior_transform is None else posterior_transform(exact)
        posterior = self._code_posterior(X, noise)
        if posterior_transform is None:
            return posterior
        if isinstance(posterior_transform, ScalarizedPosteriorTransform):
            weights: Any = posterior_transform.weights
            return posterior.scalarized(weights.to(X), posterior_transform.offset)
        return posterior_transform(posterior)

    def subset_output(self, idcs: list[int]) -> "GPNModel":
        subset = copy.copy(self)
        subset._buffers = dict(self._buffers)
        subset.y_shift, subset.y_weights = self.y_shift[idcs], self.y_weights[:, idcs]
        return subset

    def condition_on_observations(self, X: Tensor, Y: Tensor, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            "a GPN learns new labels by a new fit: use GPNModel.fit(torch.cat([train_X, X]), "
            "torch.cat([train_Y, Y]), bounds), and acquisition functions without look-ahead."
        )

    def fantasize(self, X: Tensor, *args: Any, **kwargs: Any) -> NoReturn:
        self.condition_on_observations(X, X)

    def _points(self, X: Tensor) -> Tensor:
        """Inputs as the generator knows them."""
        if X.shape[-1] != len(self.x_shift) or X.ndim < 2:
            raise ValueError(
                f"X must have the shape b × q × {len(self.x_shift)}, got {tuple(X.shape)}."
            )
        z = ((X - self.x_shift.to(X)) / self.x_scale.to(X)).to(self._parameter())
        excess = (z.abs() - self.x_bend.to(z)).clamp_min(0.0)
        return z - z.sign() * (excess - excess.log1p())

    def _exact_posterior(
        self, X: Tensor, generator: KernelGenerator, noise_variance: Tensor | None
    ) -> GPyTorchPosterior:
        """The joint normal distribution at each batch of ``q × d`` inputs."""
        points = self._points(X)
        weights, shift = self.y_weights.to(X), self.y_shift.to(X)
        flat = points.reshape(-1, *points.shape[-2:])
        mean = generator.mean(flat.flatten(0, 1)).to(X) @ weights + shift
        mean = mean.reshape(*X.shape[:-1], -1)
        covariance = generator.batch_covariance(flat).to(X)
        covariance = covariance.reshape(*X.shape[:-1], X.shape[-2])
        of_outputs = weights.square().sum(0)
        normals = []
        for output in range(self.num_outputs):
            matrix = covariance * of_outputs[output]
            if noise_variance is not None:
                matrix = matrix + torch.diag_embed(noise_variance.expand_as(mean)[..., output])
            normals.append(MultivariateNormal(mean[..., output], to_linear_operator(matrix)))
        if len(normals) == 1:
            return GPyTorchPosterior(normals[0])
        return GPyTorchPosterior(MultitaskMultivariateNormal.from_independent_mvns(normals))

    def _code_posterior(self, X: Tensor, noise_variance: Tensor | None) -> CodePosterior:
        points = self._points(X)
        weights, shift = self.y_weights.to(X), self.y_shift.to(X)
        if not isinstance(self.generator, AffineGenerator):
            return ConcatCodePosterior(self.generator, points, weights, shift, noise_variance)
        columns = self.generator.columns(points.flatten(0, -2)).to(X)
        mean = (columns[0] @ weights + shift).reshape(*X.shape[:-1], -1)
        loadings = _dense_loadings(columns[1:], weights, self.generator.blocks)
        return AffineCodePosterior(mean, loadings.reshape(*mean.shape, -1), noise_variance)

    def _noise_variance(self, X: Tensor, noise: bool | Tensor) -> Tensor | None:  # noqa: FBT001
        if isinstance(noise, Tensor):
            return noise.to(X)
        if not noise:
            return None
        variance = self.gpn._noise_variance(observation_noise=True)
        return variance * self.y_weights.to(X).square().sum(0)

    def _parameter(self) -> Tensor:
        return next(self.generator.parameters())


def quick_config(task: Task) -> GPNConfig:
    """For many fits with few labels: a prior by its evidence, and a small network.

    Labels and inputs must have unit variance. A fit takes about a second on one core; marginal
    means are within a fifth of a posterior standard deviation of the exact ones, and standard
    deviations within a tenth.
    """
    prior, noise_std = fit_prior_by_evidence(task.x_obs, task.y_obs)
    return GPNConfig(
        anchor="conditioned",
        prior=prior,
        noise_std=noise_std,
        n_axes=100,
        reference_rows=POOL_ROWS,
        trunk=MLPTrunk(widths=(256, 256), fourier=128),
        train=TrainConfig(
            steps=QUICK_STEPS,
            label_batch=64,
            pool_batch=128,
            learning_rate=1e-2,
            device=str(task.x_obs.device),
            dtype="float32",
        ),
    )


def _dense_loadings(loadings: Tensor, weights: Tensor, blocks: int) -> Tensor:
    """Loadings ``c × n × o`` of outputs mixed by weights ``o × m``: ``n × m × code_dim``.

    With blocks, each output has a block of the code to itself.
    """
    if blocks == 1:
        return torch.einsum("cno,om->nmc", loadings, weights)
    return torch.einsum("cno,om->nmoc", loadings, weights).flatten(-2)


def _sobol(bounds: Tensor, seeds: torch.Generator) -> Tensor:
    seed = int(torch.randint(2**31 - 1, (), generator=seeds))
    unit = SobolEngine(bounds.shape[1], scramble=True, seed=seed).draw(POOL_ROWS)
    return bounds[0] + (bounds[1] - bounds[0]) * unit.to(bounds)


def _to_numpy(values: Tensor) -> Any:
    return values.detach().cpu().double().numpy()


def _scaled(values: Tensor, scale: Scale) -> Tensor:
    return torch.tensor(scale.apply(_to_numpy(values)), device=values.device)


def _check_posterior(posterior: Any) -> None:
    if not isinstance(posterior, GPNPosterior):
        raise TypeError(
            "a GPNModel needs the posterior of a GPN, whose functions are g(x, z) with a code z, "
            f"got {type(posterior).__name__}; fit one with gpn.GPN(), or use GPNModel.fit."
        )
    if posterior.signature.is_classification or len(posterior.signature.input_shape) != 1:
        raise ValueError(
            "a GPNModel needs a regression on rows of numbers, got "
            f"{'classes' if posterior.signature.is_classification else 'targets'} of inputs "
            f"{posterior.signature.input_shape}; pass floating y and x of shape (n, d) to Task."
        )


class _Conditioned(NamedTuple):
    """A posterior of labels whose prior mean is `centre`, and its loss at left-out labels."""

    posterior: GPNPosterior
    centre: NDArray[np.float64]
    left_out_loss: float


_Learn = Callable[[Tensor, Tensor], tuple[ARDPrior, float]]


def _shared_scale(x: Tensor, y: Tensor) -> tuple[ARDPrior, float]:
    """A network with one scale for all inputs, and the noise."""
    shared, noise_std = fit_prior_by_evidence(x, y)
    return ARDPrior.of(shared, x.shape[1]), noise_std


def _own_scales(x: Tensor, y: Tensor) -> tuple[ARDPrior, float]:
    """Cosines of heavy tails, the Matérn kernel, with a scale for each input.

    An RBF kernel knows functions too well between few points: on Hartmann's function in six
    dimensions it searched on about a local maximum more often.
    """
    learnt = learn_ard_prior(x, y, activation="matern", scales_only=True)
    return learnt.prior, learnt.noise_std


def _conditioned(task: Task, learn: _Learn, seeds: torch.Generator) -> _Conditioned:
    """The posterior under a prior by evidence, about the likeliest constant.

    Labels crowd where a search goes, near the maximum: their average is too high a guess for the
    rest of the box, and invites a search to look there.
    """
    x, y = task.x_obs.double(), task.y_obs.double()
    centre = torch.zeros_like(y[0])
    for _ in range(CENTRE_STEPS):
        prior, noise_std = learn(x, y - centre)
        centre = likeliest_constant(prior, x, y, noise_std)
    config = GPNConfig(generator="closed-form", prior=prior, noise_std=noise_std)
    centred = Task(x, y - centre, pool=task.pool)
    posterior = GPN(config).fit(centred, rng=seeds, progress=False)
    return _Conditioned(posterior, _to_numpy(centre), _left_out_loss(posterior, centred))


def likeliest_constant(prior: ARDPrior, x: Tensor, y: Tensor, noise_std: float) -> Tensor:
    """c = 1ᵀC⁻¹y / (1 + 1ᵀC⁻¹1), the likeliest for y ~ N(c, C), C = K + σ² I and c ~ N(0, 1)."""
    root = exact_root(prior, x, noise_std)
    ones = root.sum(1)
    constant: Tensor = (ones @ (root @ y)) / (1 + ones @ ones)
    return constant


def _left_out_loss(posterior: GPNPosterior, task: Task) -> float:
    """The mean negative log likelihood of labels that are left out one by one."""
    unseen, noise_std = posterior.fit_report.unseen, posterior.noise_std
    assert unseen is not None
    assert noise_std is not None
    variance = unseen.variance + noise_std**2
    gap = task.y_obs[unseen.rows.cpu()].to(unseen.mean) - unseen.mean
    return float((gap.square() / variance + variance.log()).mean())


def _check_data(train_X: Tensor, train_Y: Tensor, bounds: Tensor) -> None:
    shapes = tuple(train_X.shape), tuple(train_Y.shape), tuple(bounds.shape)
    if (train_X.ndim, train_Y.ndim) != (2, 2) or shapes[2] != (2, shapes[0][-1]):
        raise ValueError(
            "train_X, train_Y and bounds must have the shapes n × d, n × m and 2 × d, got "
            f"{shapes[0]}, {shapes[1]} and {shapes[2]}; one target is a column, Y[:, None]."
        )
    if not bool((bounds[0] < bounds[1]).all() & bounds.isfinite().all()):
        raise ValueError(f"bounds must be finite with low < high, got {bounds.tolist()}.")


class _Paths(nn.Module):
    """Functions of a model, one per code ``s × code_dim``, aligned with X as Matheron paths are."""

    def __init__(self, model: GPNModel, codes: Tensor) -> None:
        super().__init__()
        self.model, self.codes = model, codes

    def set_ensemble_as_batch(self, ensemble_as_batch: bool) -> None:  # noqa: FBT001
        """BoTorch calls this on every path; a GPN is no ensemble."""

    def forward(self, X: Tensor) -> Tensor:
        points = X if self.model.num_outputs == 1 else X.squeeze(-3)
        batch = torch.broadcast_shapes(points.shape[:-2], self.codes.shape[:-1])
        posterior = self.model._code_posterior(points.expand(batch + points.shape[-2:]), None)
        values = posterior.functions(self.codes.to(X).expand(batch + self.codes.shape[-1:]))
        return values[..., 0] if self.model.num_outputs == 1 else values.mT


@DrawMatheronPaths.register(GPNModel)  # type: ignore[untyped-decorator]
def _draw_paths(model: GPNModel, *, sample_shape: Size, **strategies: Any) -> _Paths:
    """Fixed functions, for PathwiseThompsonSampling and similar acquisition functions."""
    parameter = model._parameter()
    size = sample_shape + Size([model.generator.code_dim])
    return _Paths(model, torch.randn(size, device=parameter.device, dtype=parameter.dtype))
