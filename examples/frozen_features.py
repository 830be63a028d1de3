"""Intervals and OOD flags on top of a pretrained network: frozen features, a trained head.

The network predicts a concentration from a spectrum, trained on clean simulations. There are 300
measured spectra with labels and 700 without, some of which hold a third substance. Six seconds.
"""

from pathlib import Path

import numpy as np
import torch
import typer
from matplotlib.figure import Figure
from torch.nn import Linear, Sequential, Tanh

from gpn import GPNConfig, GPNRegressor, TrainConfig, plots


def spectra(n: int, rng: np.random.Generator, noise: float = 0.03, third: float = 0) -> tuple:
    """Two lines, the first as high as the concentration, and optionally a third one."""
    amounts = rng.uniform(0.2, 1, (n, 3)) * [1, 1, third]
    lines = np.exp(-(((np.linspace(0, 1, 64) - [[0.35], [0.5], [0.8]]) / 0.07) ** 2))
    return amounts @ lines + rng.normal(0, noise, (n, 64)), 100 * amounts[:, 0]


def pretrained(x: torch.Tensor, y: torch.Tensor) -> Sequential:
    """A network as a colleague would hand it over."""
    torch.manual_seed(0)
    network = Sequential(Linear(64, 64), Tanh(), Linear(64, 32), Tanh(), Linear(32, 1))
    optimiser = torch.optim.Adam(network.parameters(), 3e-3)
    for _ in range(200):
        optimiser.zero_grad()
        (network(x)[:, 0] - y / 100).square().mean().backward()
        optimiser.step()
    return network.requires_grad_(requires_grad=False)


def main(out: Path = Path("demo/frozen_features.png")) -> None:
    rng = np.random.default_rng(0)
    network = pretrained(*(torch.tensor(part).float() for part in spectra(2000, rng, noise=0)))
    x, y = spectra(300, rng)
    pool = np.concatenate([spectra(500, rng)[0], spectra(200, rng, third=1)[0]])
    config = GPNConfig(n_axes=50, reference_rows=256, train=TrainConfig(steps=300))
    model = GPNRegressor(config, module=network[:-1], random_state=0).fit(x, y, X_unlabeled=pool)
    figure = Figure(figsize=(9, 4), layout="constrained")
    (left, right), scores = figure.subplots(1, 2), {}
    for third, name, color in ((0, "as simulated", "ours"), (1, "third substance", "orange")):
        x, y = spectra(300, rng, third=third)
        scores[name] = model.ood_score(x)
        plots.intervals(left, y[:60], *model.predict_interval(x[:60]), color=plots.PALETTE[color])
        print(f"flagged: {np.mean(scores[name] > model.threshold()):.0%} of spectra: {name}")
    left.set(xlabel="true concentration (%)", ylabel="95 % interval")
    plots.ood_histogram(right, scores, threshold=model.threshold()).legend(frameon=False)
    figure.suptitle("A frozen network with intervals, and flags for OOD spectra")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=100)


if __name__ == "__main__":
    typer.run(main)
