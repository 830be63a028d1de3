"""The six-point demo: the paper's Figure 1, its posterior beside the exact one, and the distance.

Run it as `python -m gpn.demo`.
"""

import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from gpn import plots
from gpn.core.networks import MLPTrunk
from gpn.core.task import Task
from gpn.core.train import TrainConfig
from gpn.data import SIX_POINTS_NOISE_STD, six_points
from gpn.methods.gp import GP, GPConfig, GPPosterior
from gpn.methods.gpn import GPN, GPNConfig, GPNPosterior
from gpn.metrics import draws_w2

GRID = torch.linspace(-2, 2, 201)[:, None]
DRAWS = 100


def main(folder: Path = Path("demo"), steps: int = 1500) -> None:
    """Fit, draw, print the table, and say where the pictures are."""
    console, task = Console(), six_points()
    folder.mkdir(parents=True, exist_ok=True)
    truth = GP(GPConfig(noise_std=SIX_POINTS_NOISE_STD)).fit(task)
    table = Table("method", "distance to the exact posterior (W2)", "seconds")
    table.add_row(f"{DRAWS} exact draws", _distance(truth.sample(GRID, DRAWS, rng=1), truth), "")
    plane, seconds = _fit(task, paper_config(steps, code_dim=2), console, "2-D codes")
    table.add_row("gpn-paper, 2-D codes", _own_distance(plane, truth), f"{seconds:.1f}")
    paper, seconds = _fit(task, paper_config(steps), console, "paper preset")
    table.add_row("gpn-paper", _own_distance(paper, truth), f"{seconds:.1f}")
    console.print(table)
    for picture in (
        figure_codes(task, plane, folder / "codes.png"),
        figure_posterior(task, paper, truth, folder / "posterior.png"),
    ):
        console.print(f"picture: {picture}")


def paper_config(steps: int, **changes: Any) -> GPNConfig:
    """The paper's preset on a network that fits a problem of six points."""
    return GPNConfig.paper(
        trunk=MLPTrunk(widths=(128, 128), activation="relu"),
        train=TrainConfig(steps=steps, pool_batch=32),
        **changes,
    )


def figure_codes(task: Task, posterior: GPNPosterior, path: Path) -> Path:
    """The paper's Figure 1: codes on one side, their functions on the other, same colours."""
    from matplotlib.figure import Figure

    codes = torch.randn(60, 2, generator=torch.Generator().manual_seed(4)).to(posterior.dtype)
    figure = Figure(figsize=(9.5, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.45])
    plots.code_plane(left, codes).set_title("codes z ~ N(0, I)")
    draws = posterior.generator(GRID.to(posterior.dtype), codes)
    plots.functions(right, GRID, draws, colors=plots.code_colors(codes))
    plots.observations(right, task).set_title("their functions g(x, z)")
    right.set_xlabel("x")
    figure.savefig(path, dpi=150)
    return path


def figure_posterior(task: Task, posterior: GPNPosterior, truth: GPPosterior, path: Path) -> Path:
    """The band of the paper preset beside the exact posterior."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 4.0), layout="constrained")
    sides = figure.subplots(1, 2, sharey=True)
    panels = (
        (sides[0], posterior, "paper's GPN", plots.PALETTE["paper"]),
        (sides[1], truth, "exact posterior (GP)", plots.PALETTE["truth"]),
    )
    for axes, law, title, color in panels:
        draws = law.sample(GRID, DRAWS, rng=1)
        plots.functions(axes, GRID, draws[:30], colors=color, alpha=0.25)
        mean, std = draws.mean(0)[:, 0], draws.std(0)[:, 0]
        plots.band(axes, GRID, mean, std, color=color, label="mean ± 1.96 sd")
        plots.observations(axes, task).set_title(title)
        axes.set_xlabel("x")
    figure.savefig(path, dpi=150)
    return path


def _fit(task: Task, config: GPNConfig, console: Console, label: str) -> tuple[GPNPosterior, float]:
    started = time.perf_counter()
    with console.status(f"fitting {label} ..."):
        posterior = GPN(config).fit(task, rng=0)
    return posterior, time.perf_counter() - started


def _own_distance(posterior: GPNPosterior, truth: GPPosterior) -> str:
    return _distance(posterior.sample(GRID, DRAWS, rng=1), truth)


def _distance(draws: torch.Tensor, truth: GPPosterior) -> str:
    return f"{float(draws_w2(draws.double(), truth.mean(GRID), truth.std(GRID))):.3f}"


if __name__ == "__main__":
    main()
