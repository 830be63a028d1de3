"""The six-point demo: every method against the exact posterior, and the paper's Figures 1 and 2.

Run it as `python -m gpn.demo`.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import torch
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from gpn import methods, plots
from gpn.core.networks.trunks import MLPTrunk
from gpn.core.posterior.base import Posterior
from gpn.core.priors.prior import MLPPrior
from gpn.core.task import Task
from gpn.data import SIX_POINTS_NOISE_STD, six_points
from gpn.methods.ensemble import Ensemble, EnsembleConfig
from gpn.methods.gp import GP, GPConfig, GPPosterior
from gpn.methods.gpn import GPN, GPNConfig, GPNPosterior
from gpn.metrics import draws_w2
from gpn.training.config import TrainConfig

GRID = torch.linspace(-2, 2, 201)[:, None]
DRAWS = 100
NOISE = {"noise_std": SIX_POINTS_NOISE_STD}
SMALL = MLPTrunk(widths=(128, 128), activation="relu")
SHORT_CHAINS: dict[str, Any] = {
    "prior": MLPPrior(widths=(64,)),
    "n_chains": 16,
    "warmup": 80,
    "draws": 12,
    "thin": 2,
    "max_leapfrog": 40,
}

# Networks and training lengths suited to six points.
METHODS: dict[str, Callable[[int], methods.Method]] = {
    "gpn": lambda steps: methods.get("gpn", **NOISE),
    "gpn-paper": lambda steps: methods.get("gpn-paper", **_small(steps, pool_batch=32)),
    "ensemble-or": lambda steps: methods.get("ensemble-or", **_small(steps)),
    "ensemble-pr": lambda steps: Ensemble(
        EnsembleConfig.of_prior(MLPPrior(), **NOISE, train=TrainConfig(steps=steps))
    ),
    "ensemble": lambda steps: methods.get("ensemble", **_small(steps)),
    "dropout": lambda steps: methods.get("dropout", **_small(steps)),
    "sngp": lambda steps: methods.get("sngp", **NOISE, train=_slow(steps, 3e-3)),
    "dkl": lambda steps: methods.get("dkl", **NOISE, train=_slow(steps, 1e-3)),
    "gp": lambda steps: methods.get("gp", kernel="rbf", **NOISE),
    "mcmc": lambda steps: methods.get("mcmc", **NOISE, **SHORT_CHAINS),
}
TITLES = {"gp": "gp (RBF kernel)", "gpn": "gpn (ours)"}


def main(folder: Path = Path("demo"), steps: int = 1500) -> None:
    """Fit every method, print its distance to the exact posterior, and draw the figures."""
    console, task = Console(), six_points()
    folder.mkdir(parents=True, exist_ok=True)
    truth = GP(GPConfig(noise_std=SIX_POINTS_NOISE_STD)).fit(task)
    fitted = fit_all(task, steps, console)
    console.print(distances(fitted, truth))
    plane = GPN(GPNConfig.paper(code_dim=2, **_small(steps, pool_batch=32))).fit(task, rng=0)
    posteriors = {name: posterior for name, (posterior, _) in fitted.items()}
    figures = {
        "codes.png": figure_codes(task, plane),
        "posterior.png": figure_posterior(task, posteriors["gpn"], truth),
        "methods.png": figure_methods(task, {"truth": truth, **posteriors}),
    }
    for name, figure in figures.items():
        figure.savefig(folder / name, dpi=150)
        console.print(f"picture: {folder / name}")


def fit_all(task: Task, steps: int, console: Console) -> dict[str, tuple[Posterior, float]]:
    """The posterior of every method and the seconds of its fit, with a line for each."""
    fitted = {}
    for number, (name, build) in enumerate(METHODS.items(), 1):
        started = time.perf_counter()
        with console.status(f"{number}/{len(METHODS)} fitting {name} ..."), catch_warnings():
            simplefilter("ignore", UserWarning)  # chains shorter than `mcmc` advises
            posterior = build(steps).fit(task, rng=0, progress=False)
        seconds = time.perf_counter() - started
        fitted[name] = posterior, seconds
        console.print(f"{number:2}/{len(METHODS)} {name:12} {seconds:5.1f} s")
    return fitted


def distances(fitted: dict[str, tuple[Posterior, float]], truth: GPPosterior) -> Table:
    """W2 of 100 draws to the exact posterior (root mean square over the grid), nearest first."""
    table = Table("method", "distance to the exact posterior (W2)", "seconds")
    table.add_row(f"[i]{DRAWS} exact draws[/i]", f"{_distance(truth, truth):.3f}", "")
    rows = [(_distance(p, truth), name, seconds) for name, (p, seconds) in fitted.items()]
    for distance, name, seconds in sorted(rows):
        table.add_row(TITLES.get(name, name), f"{distance:.3f}", f"{seconds:.1f}")
    return table


def figure_codes(task: Task, posterior: GPNPosterior) -> Figure:
    """The paper's Figure 1: codes on the left, their functions in the same colours on the right."""
    codes = torch.randn(60, 2, generator=torch.Generator().manual_seed(4)).to(posterior.dtype)
    figure = Figure(figsize=(9.5, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.45])
    plots.code_plane(left, codes).set_title("codes z ~ N(0, I)")
    draws = posterior.generator(GRID.to(posterior.dtype), codes)
    plots.code_functions(right, GRID, draws, codes)
    plots.observations(right, task).set_title("their functions g(x, z), paper preset")
    right.set(xlabel="x", ylabel="y")
    return figure


def figure_posterior(task: Task, posterior: Posterior, truth: GPPosterior) -> Figure:
    """The GPN's 95 % band and thirty of its functions, with the exact posterior dashed."""
    figure = Figure(figsize=(9.5, 4.2), layout="constrained")
    axes = figure.subplots()
    plots.functions(axes, GRID, posterior.sample(GRID, 30, rng=1), alpha=0.35)
    mean, std = posterior.mean(GRID)[:, 0], posterior.std(GRID)[:, 0]
    plots.band(axes, GRID, mean, std, color=plots.PALETTE["ours"], label="GPN, mean ± 1.96 sd")
    plots.outline(axes, GRID, truth.mean(GRID)[:, 0], truth.std(GRID)[:, 0])
    plots.observations(axes, task).set(xlabel="x", ylabel="y")
    axes.legend(frameon=False, loc="upper right")
    return figure


def figure_methods(task: Task, posteriors: dict[str, Posterior]) -> Figure:
    """The paper's Figure 2: 100 draws of each method and of the truth, on the same axes."""
    columns = 4
    rows = -(-len(posteriors) // columns)
    figure = Figure(figsize=(12, 2.7 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for axes, (name, posterior) in zip(panels, posteriors.items(), strict=False):
        color = plots.method_color(name)
        draws = posterior.sample(GRID, DRAWS, rng=1)
        plots.functions(axes, GRID, draws, colors=color, alpha=0.15)
        axes.plot(GRID[:, 0], draws.mean(0)[:, 0].cpu(), color=color, linewidth=2)
        plots.observations(axes, task).set_title(TITLES.get(name, name))
        axes.set_ylim(-5, 5)
    for axes in panels[len(posteriors) :]:
        axes.set_visible(False)
    return figure


def _small(steps: int, **train: Any) -> dict[str, Any]:
    return {"trunk": SMALL, "train": TrainConfig(steps=steps, **train)}


def _slow(steps: int, learning_rate: float) -> TrainConfig:
    """The training of these methods' defaults: a higher rate or no decay makes them collapse."""
    return TrainConfig(steps=steps, learning_rate=learning_rate, weight_decay=1e-2)


def _distance(posterior: Posterior, truth: GPPosterior) -> float:
    draws = posterior.sample(GRID, DRAWS, rng=1).double()
    return float(draws_w2(draws.cpu(), truth.mean(GRID), truth.std(GRID)))


if __name__ == "__main__":
    main()
