"""A table with few labels and a pool with OOD rows.

The yield of a synthetic reaction depends on five settings. The laboratory measured 250 mild runs;
the pool is all planned runs, also hot ones and ones under high pressure. Mild runs get intervals
that cover, and runs unlike the measured ones a flag. About ten seconds on one core.
"""

from pathlib import Path

import numpy as np
import typer
from matplotlib.figure import Figure

from gpn import GPNConfig, GPNRegressor, TrainConfig, plots

LOW = np.array([20, 1, 1, 0.1, 4])  # °C, bar, hours, % of catalyst, pH
HIGH = np.array([120, 10, 24, 2, 9])
BLUE, ORANGE = plots.PALETTE["ours"], plots.PALETTE["orange"]


def measured(runs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The yield in per cent, with measurement noise."""
    heat, pressure, hours, catalyst, acidity = ((runs - LOW) / (HIGH - LOW)).T
    best = 60 * np.exp(-4 * (heat - 0.6) ** 2) * (0.4 + 0.6 * pressure)
    return best + 10 * np.sin(3 * hours * catalyst) + 15 * acidity + rng.normal(0, 2, len(runs))


def main(out: Path = Path("demo/tabular_with_pool.png")) -> None:
    rng = np.random.default_rng(0)
    pool = rng.uniform(LOW, HIGH, (900, 5))
    y, mild = measured(pool, rng), (pool[:, 0] < 90) & (pool[:, 1] < 7)
    labeled, new = np.split(rng.permutation(np.flatnonzero(mild)), [250])

    short = TrainConfig(steps=600, label_batch=64, pool_batch=64, learning_rate=2e-3)
    model = GPNRegressor(GPNConfig(train=short), random_state=0)
    model.fit(pool[labeled], y[labeled], X_unlabeled=pool)
    low, high = model.predict_interval(pool, level=0.9)
    flagged, inside = model.is_ood(pool), (low <= y) & (y <= high)
    print(f"flagged: {flagged[new].mean():.0%} of mild runs, {flagged[~mild].mean():.0%} of others")
    print(f"new yields inside their 90 % intervals: {inside[new].mean():.0%}")

    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for rows, color, name in ((~flagged, BLUE, "not flagged"), (flagged, ORANGE, "flagged")):
        left.scatter(*pool[rows, :2].T, s=9, color=color, label=name)
    left.scatter(*pool[labeled, :2].T, s=14, color=plots.INK, marker="x", label="measured")
    left.set(xlabel="temperature (°C)", ylabel="pressure (bar)", title="OOD runs are flagged")
    for rows, color, name in ((np.flatnonzero(~mild), ORANGE, "not mild"), (new, BLUE, "mild")):
        some = rows[:60]
        plots.intervals(right, y[some], low[some], high[some], color=color, label=name)
    right.set(xlabel="true yield (%)", ylabel="90 % interval", title="and have wider intervals")
    figure.legend(ncols=5, loc="outside lower center", frameon=False)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=100)


if __name__ == "__main__":
    typer.run(main)
