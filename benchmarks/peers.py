"""The same work by others on superconductor: fit, 100 coherent functions at 4,000 rows, AUC.

Each peer fits the same labels. A peer that is not installed is named with the reason, and no
number is guessed for it.
"""

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.harness import Row, in_turn, seconds
from benchmarks.networks import plain_network
from benchmarks.place import Place
from gpn import GPN, GPNConfig, metrics
from gpn.core.networks.encodings import fit_features
from gpn.core.types import as_generator
from gpn.training.batches import LabelBatches
from gpn.training.config import TrainConfig
from gpn.training.loop import train
from gpn.training.torch_state import seeded_global_rng

DRAWS, ROWS, INDUCING, MEMBERS = 100, 4000, 512, 5
DRAW_REPEATS, WARM_UPS = 10, 2
# The first call after another peer's finds nothing of its own in the caches.
CALLS = {10: "", 1: ", one call at a time"}
JITTER = 1e-3  # of the SVGP: with its usual 1e-4 a fit has failed for want of a Cholesky factor


@dataclass(frozen=True)
class Peer:
    """A fitted model: 100 functions at the same rows ``(s, n)``, and the variance at each row."""

    functions: Callable[[Tensor], Tensor]
    variance: Callable[[Tensor], Tensor]


def peers(place: Place) -> Iterator[Row]:
    """GPN against GPyTorch's SVGP, laplace-torch and torch-uncertainty on superconductor."""
    test, fitted = place.split("superconductor").test, {}
    inside, outside = (x.to(place.device) for x in (test.x_id, test.x_ood))
    for name, fit in PEERS.items():
        found: list[Peer] = []
        try:
            taken = seconds(lambda fit=fit, into=found: into.append(fit(place)), place.device)
        except ImportError as error:
            yield Row(f"{name}: not run, {error}", None, "none", "GPN")
            continue
        fitted[name] = found[0]
        with torch.no_grad():
            scores = [found[0].variance(x).double().cpu() for x in (inside, outside)]
        yield Row(f"{name}: fit", taken, "s")
        yield Row(f"{name}: ood_auc", metrics.ood_auc(*scores), "ood_auc", "the others")
    rows = torch.cat([inside, outside])[:ROWS]
    for calls, how in CALLS.items():
        yield from _draw_times(fitted, rows, place, calls, how)


@torch.no_grad()
def _draw_times(
    fitted: dict[str, Peer], rows: Tensor, place: Place, calls: int, how: str
) -> list[Row]:
    """All peers in turn, `calls` calls each."""
    works = {name: partial(_calls, peer.functions, rows, calls) for name, peer in fitted.items()}
    turns = in_turn(works, place.choose(DRAW_REPEATS, 1), WARM_UPS, place.device)
    times, made = {name: taken / calls for name, taken in turns.items()}, []
    for name, taken in times.items():
        what = f"{name}: {DRAWS} functions at {len(rows)} rows{how}"
        made += [Row(what, taken, "s"), Row(f"{what}, ratio", taken / times["GPN"], "times", "GPN")]
    return made


def _calls(functions: Callable[[Tensor], Tensor], rows: Tensor, calls: int) -> None:
    for _ in range(calls):
        functions(rows)


def _gpn(place: Place) -> Peer:
    task = place.split("superconductor").task
    own = GPNConfig().resolved(task).train or TrainConfig()
    given = place.plan("superconductor").train if place.quick else own
    config = GPNConfig(train=given.replace(device=str(place.device)))
    posterior = GPN(config).fit(task, rng=0)
    return Peer(
        lambda x: posterior.sample(x, DRAWS, rng=0)[..., 0], lambda x: posterior.variance(x)[:, 0]
    )


def _svgp(place: Place) -> Peer:
    """Sparse variational GP (Hensman et al. 2015), Matérn 5/2 with a scale per feature.

    Coherent functions are draws of the joint posterior at all rows, by its Cholesky factor.
    """
    gpytorch = importlib.import_module("gpytorch")
    task = place.split("superconductor").task
    x, y = task.x_obs, task.y_obs[:, 0]
    model, likelihood = _svgp_model(gpytorch, x, place), gpytorch.likelihoods.GaussianLikelihood()
    likelihood.to(place.device)
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(x))
    both = nn.ModuleList([model, likelihood])
    labels = LabelBatches(len(x), min(1024, len(x)), as_generator(0, place.device))

    def terms() -> dict[str, Tensor]:
        picked = labels.next()
        return {"elbo": -bound(model(x[picked]), y[picked])}

    train(both, terms, _training(place, 1500, 0.01), lambda *_: None)
    both.eval()

    def functions(rows: Tensor) -> Tensor:
        with gpytorch.settings.fast_computations(covar_root_decomposition=False):
            return model(rows).rsample(torch.Size([DRAWS]))

    return Peer(functions, lambda rows: model(rows).variance)


def _svgp_model(gpytorch: Any, x: Tensor, place: Place) -> Any:
    unlike, dim = x.unique(dim=0), x.shape[1]  # equal inducing rows have no Cholesky factor
    count = min(INDUCING, len(unlike))
    picked = torch.randperm(len(unlike), generator=as_generator(0))[:count]
    inducing = unlike[picked.to(x.device)]

    class SVGP(gpytorch.models.ApproximateGP):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            law = gpytorch.variational.CholeskyVariationalDistribution(count)
            strategy = gpytorch.variational.VariationalStrategy(
                self, inducing, law, jitter_val=JITTER
            )
            super().__init__(strategy)
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.ScaleKernel(
                gpytorch.kernels.MaternKernel(ard_num_dims=dim)
            )

        def forward(self, rows: Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(rows), self.kernel(rows))

    return SVGP().to(place.device)


def _laplace(place: Place) -> Peer:
    """Last-layer Laplace (Daxberger et al. 2021): functions are draws of the last layer."""
    laplace = importlib.import_module("laplace")
    network = _fitted_network(place, 0).requires_grad_(False)  # noqa: FBT003
    network[-1].requires_grad_(True)  # noqa: FBT003, what is not free it would sample too
    task = place.split("superconductor").task
    data = torch.utils.data.TensorDataset(task.x_obs, task.y_obs)
    loader = torch.utils.data.DataLoader(data, batch_size=256)
    law = laplace.Laplace(
        network, "regression", subset_of_weights="last_layer", hessian_structure="full"
    )
    with place.device:  # its curvature makes tensors where torch's default is
        law.fit(loader)
        law.optimize_prior_precision()
    return Peer(
        lambda rows: law.functional_samples(rows, pred_type="nn", n_samples=DRAWS)[..., 0],
        lambda rows: law(rows)[1].reshape(len(rows)),
    )


def _ensemble(place: Place) -> Peer:
    """A deep ensemble of five; it has as many functions as members."""
    models = importlib.import_module("torch_uncertainty.methods")
    members = [_fitted_network(place, seed) for seed in range(MEMBERS)]
    ensemble = models.deep_ensembles(members, task="regression", probabilistic=False)

    def values(rows: Tensor) -> Tensor:
        return ensemble(rows).reshape(MEMBERS, len(rows))

    return Peer(values, lambda rows: values(rows).var(0))


def _fitted_network(place: Place, seed: int) -> nn.Sequential:
    """The experiments' trunk with an ordinary head, fitted to the labels by squared error."""
    task = place.split("superconductor").task
    network = plain_network(place, "superconductor", seed=seed)
    fit_features(network.features, lambda: task.x_obs)
    plain = nn.Sequential(network.features, *network.tail)
    labels = LabelBatches(len(task.x_obs), 256, as_generator(seed, place.device))

    def terms() -> dict[str, Tensor]:
        picked = labels.next()
        return {"data": functional.mse_loss(plain(task.x_obs[picked]), task.y_obs[picked])}

    with seeded_global_rng(as_generator(seed)):
        train(plain, terms, _training(place, 1500, 1e-3), lambda *_: None)
    return plain.eval()


def _training(place: Place, steps: int, rate: float) -> TrainConfig:
    return TrainConfig(steps=place.choose(steps, 3), learning_rate=rate, device=str(place.device))


PEERS: dict[str, Callable[[Place], Peer]] = {
    "GPN": _gpn,
    "GPyTorch SVGP": _svgp,
    "laplace-torch, last layer": _laplace,
    "torch-uncertainty, ensemble of 5": _ensemble,
}
