"""The same work by other libraries on superconductor: fit, 100 coherent functions, AUC.

Each peer fits the same labels. A peer that is not installed is named with the reason.
"""

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.context import BenchmarkContext
from benchmarks.harness import Row, in_turn, seconds
from benchmarks.networks import default_train, fit_labels, fitted_network
from gpn import GPN, GPNConfig, metrics
from gpn.core.types import as_generator

N_DRAWS, N_ROWS, N_INDUCING, N_MEMBERS = 100, 4000, 512, 5
REPEATS, WARM_UPS = 10, 2
# After another peer's call, the first one of a peer finds cold caches.
CALLS = {10: "", 1: ", one call at a time"}
JITTER = 1e-3  # of the SVGP: with the usual 1e-4 its Cholesky factorisation can fail


@dataclass(frozen=True)
class Peer:
    """A fitted model: 100 functions at the same rows ``(s, n)``, and the variance at each row."""

    functions: Callable[[Tensor], Tensor]
    variance: Callable[[Tensor], Tensor]


def peers(context: BenchmarkContext) -> Iterator[Row]:
    """GPN against GPyTorch's SVGP, laplace-torch and torch-uncertainty on superconductor."""
    test, fitted = context.split("superconductor").test, {}
    known, ood = (x.to(context.device) for x in (test.x_id, test.x_ood))
    for name, fit in PEERS.items():
        found: list[Peer] = []
        try:
            taken = seconds(lambda fit=fit, found=found: found.append(fit(context)), context.device)
        except ImportError as error:
            yield Row(f"{name}: not run, {error}", None, "none", "GPN")
            continue
        fitted[name] = found[0]
        with torch.no_grad():
            scores = [found[0].variance(x).double().cpu() for x in (known, ood)]
        yield Row(f"{name}: fit", taken, "s")
        yield Row(f"{name}: ood_auc", metrics.ood_auc(*scores), "ood_auc", "the others")
    rows = torch.cat([known, ood])[:N_ROWS]
    for calls, suffix in CALLS.items():
        yield from _draw_times(context, fitted, rows, calls, suffix)


@torch.no_grad()
def _draw_times(
    context: BenchmarkContext, fitted: dict[str, Peer], rows: Tensor, calls: int, suffix: str
) -> Iterator[Row]:
    """All peers in turn, `calls` calls each."""

    def work(functions: Callable[[Tensor], Tensor]) -> None:
        for _ in range(calls):
            functions(rows)

    works = {name: partial(work, peer.functions) for name, peer in fitted.items()}
    times = in_turn(works, context.size(REPEATS, 1), WARM_UPS, context.device)
    for name, taken in times.items():
        what = f"{name}: {N_DRAWS} functions at {len(rows)} rows{suffix}"
        yield Row(what, taken / calls, "s")
        yield Row(f"{what}, ratio", taken / times["GPN"], "times", "GPN")


def _gpn(context: BenchmarkContext) -> Peer:
    config = GPNConfig(train=default_train(context))
    posterior = GPN(config).fit(context.split("superconductor").task, rng=0)
    return Peer(
        lambda x: posterior.sample(x, N_DRAWS, rng=0)[..., 0], lambda x: posterior.variance(x)[:, 0]
    )


def _svgp(context: BenchmarkContext) -> Peer:
    """Sparse variational GP (Hensman et al. 2015), Matérn 5/2 with a scale per feature.

    Coherent functions are draws of the joint posterior at all rows, by its Cholesky factor.
    """
    gpytorch = importlib.import_module("gpytorch")
    task = context.split("superconductor").task
    model = _svgp_model(gpytorch, task.x_obs).to(context.device)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(context.device)
    elbo = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(task.x_obs))
    both, batch = nn.ModuleList([model, likelihood]), min(1024, len(task.x_obs))

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return -elbo(model(x), y[:, 0])

    fit_labels(both, loss, context, task, batch=batch, learning_rate=0.01)
    both.eval()

    def functions(rows: Tensor) -> Tensor:
        with gpytorch.settings.fast_computations(covar_root_decomposition=False):
            return model(rows).rsample(torch.Size([N_DRAWS]))

    return Peer(functions, lambda rows: model(rows).variance)


def _svgp_model(gpytorch: Any, x: Tensor) -> Any:
    distinct, dim = x.unique(dim=0), x.shape[1]  # equal inducing rows have no Cholesky factor
    count = min(N_INDUCING, len(distinct))
    picked = torch.randperm(len(distinct), generator=as_generator(0))[:count]
    inducing = distinct[picked.to(x.device)]

    class SVGP(gpytorch.models.ApproximateGP):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            distribution = gpytorch.variational.CholeskyVariationalDistribution(count)
            strategy = gpytorch.variational.VariationalStrategy(
                self, inducing, distribution, jitter_val=JITTER
            )
            super().__init__(strategy)
            self.mean = gpytorch.means.ConstantMean()
            matern = gpytorch.kernels.MaternKernel(ard_num_dims=dim)
            self.kernel = gpytorch.kernels.ScaleKernel(matern)

        def forward(self, rows: Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(rows), self.kernel(rows))

    return SVGP()


def _laplace(context: BenchmarkContext) -> Peer:
    """Last-layer Laplace (Daxberger et al. 2021): functions are draws of the last layer."""
    laplace = importlib.import_module("laplace")
    network = fitted_network(context, 0).requires_grad_(False)  # noqa: FBT003
    network[-1].requires_grad_(True)  # noqa: FBT003, it would sample all free parameters
    task = context.split("superconductor").task
    data = torch.utils.data.TensorDataset(task.x_obs, task.y_obs)
    loader = torch.utils.data.DataLoader(data, batch_size=256)
    options = {"subset_of_weights": "last_layer", "hessian_structure": "full"}
    model = laplace.Laplace(network, "regression", **options)
    with context.device:  # its curvature makes tensors on torch's default device
        model.fit(loader)
        model.optimize_prior_precision()
    return Peer(
        lambda rows: model.functional_samples(rows, pred_type="nn", n_samples=N_DRAWS)[..., 0],
        lambda rows: model(rows)[1].reshape(len(rows)),
    )


def _ensemble(context: BenchmarkContext) -> Peer:
    """A deep ensemble of five; it has as many functions as members."""
    methods = importlib.import_module("torch_uncertainty.methods")
    members = [fitted_network(context, seed) for seed in range(N_MEMBERS)]
    ensemble = methods.deep_ensembles(members, task="regression", probabilistic=False)

    def values(rows: Tensor) -> Tensor:
        return ensemble(rows).reshape(N_MEMBERS, len(rows))

    return Peer(values, lambda rows: values(rows).var(0))


PEERS: dict[str, Callable[[BenchmarkContext], Peer]] = {
    "GPN": _gpn,
    "GPyTorch SVGP": _svgp,
    "laplace-torch, last layer": _laplace,
    "torch-uncertainty, ensemble of 5": _ensemble,
}
