"""Draw every tracked picture of README and docs, and record what examples print: `make pictures`.

`python docs/tools/pictures.py prior pool` draws some of them. Examples draw elsewhere by default.
"""

import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import gpn
from gpn import ARDPrior, GPNRegressor, plots
from gpn.data import SIX_POINTS_NOISE_STD, six_points

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLUE, ORANGE, GREY = (plots.PALETTE[name] for name in ("ours", "orange", "grey"))
GRID = torch.linspace(-2, 2, 201, dtype=torch.float64)[:, None]
PRIOR = ARDPrior(column_scales=(0.6,), height=1.0, activation="cos")


def panels(count: int, **options: object) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = figure.subplots(1, count, squeeze=False, **options)[0]  # type: ignore[arg-type]
    return figure, list(axes)


def landing() -> Figure:
    """Few labels in one column, their intervals, and the rows that are flagged."""
    rng = np.random.default_rng(0)

    def in_steps(low: float, high: float, n: int) -> np.ndarray:
        return low + (high - low) * (np.arange(n) + rng.uniform(size=n)) / n

    x = np.concatenate([in_steps(20, 50, 90), in_steps(72, 95, 70)])[:, None]

    def response(at: np.ndarray) -> np.ndarray:
        return 50 + 25 * np.sin(at[:, 0] / 11) + 0.25 * at[:, 0]

    pool = rng.uniform(0, 120, (400, 1))
    y = response(x) + rng.normal(0, 2.5, len(x))
    model = GPNRegressor(mean=None, random_state=0).fit(x, y, X_unlabeled=pool)
    grid = np.linspace(0, 120, 400)[:, None]
    low, high = model.predict_interval(grid)
    flagged = model.is_ood(grid)
    figure, (axes,) = panels(1)
    axes.plot(grid[:, 0], model.predict(grid), color=BLUE, linewidth=2, label="prediction")
    axes.fill_between(
        grid[:, 0], low, high, color=BLUE, alpha=0.2, linewidth=0, label="95 % interval"
    )
    bottom = axes.get_ylim()[0]
    axes.fill_between(
        grid[:, 0], 0, 1, where=flagged, transform=axes.get_xaxis_transform(), color=ORANGE,
        alpha=0.14, linewidth=0, label="flagged as unlike the labels",
    )  # fmt: skip
    axes.plot(x[:, 0], y, "x", color=plots.INK, markersize=4, markeredgewidth=1, label="labels")
    axes.plot(pool[:, 0], np.full(len(pool), bottom), "|", color=GREY, label="pool (no labels)")
    axes.set(xlabel="temperature", ylabel="yield", xlim=(0, 120))
    figure.legend(loc="outside lower center", ncols=5, frameon=False)
    return figure


def conditioned(noise_std: float = SIX_POINTS_NOISE_STD) -> gpn.Posterior:
    """The exact posterior of six labels under `PRIOR`."""
    config = gpn.GPNConfig(generator="closed-form", prior=PRIOR, noise_std=noise_std)
    return gpn.GPN(config).fit(six_points(), rng=0)


def prior() -> Figure:
    """Functions before the labels, and after them."""
    figure, (left, right) = panels(2, sharey=True)
    before = PRIOR.sample((1,), 1, 12, rng=3)(GRID.float())
    plots.functions(left, GRID, before)
    left.set(title="the prior: functions before any label", xlabel="x", ylabel="y")
    plots.functions(right, GRID, conditioned().sample(GRID, 12, rng=1))
    plots.observations(right, six_points())
    right.set(title="the posterior: those that fit six labels", xlabel="x")
    return figure


def posterior() -> Figure:
    """Functions of a posterior, and their values at two rows."""
    found, at = conditioned(), torch.tensor([[0.3], [1.8]], dtype=torch.float64)
    figure, (left, right) = panels(2, width_ratios=[1.7, 1])
    plots.functions(left, GRID, found.sample(GRID, 40, rng=1), alpha=0.3)
    mean, std = found.mean(GRID)[:, 0], found.std(GRID)[:, 0]
    plots.band(left, GRID, mean, std, color=BLUE, label="mean ± 1.96 sd")
    plots.observations(left, six_points())
    draws = found.sample(at, 2000, rng=2)[..., 0].numpy()
    for row, (color, x) in enumerate(zip((plots.PALETTE["green"], ORANGE), at[:, 0], strict=True)):
        left.axvline(float(x), color=color, linestyle="--", linewidth=1.5)
        label = f"x = {float(x):.1f}"
        right.hist(draws[:, row], bins=40, density=True, alpha=0.5, color=color, label=label)
    left.set(title="one code z, one function", xlabel="x", ylabel="y")
    right.set(title="2,000 functions at two rows", xlabel="value of the function", yticks=[])
    right.legend(frameon=False)
    return figure


def pool() -> Figure:
    """The same labels without a pool, and with one that holds shifted rows."""
    rng = np.random.default_rng(0)

    def rows(n: int) -> np.ndarray:
        first = rng.normal(size=n)
        return np.stack([first, first + rng.normal(0, 0.5, n)], axis=1)

    x, near = rows(300), rows(300)
    other = rng.normal([0.6, -0.5], 0.2, (300, 2))
    unlabeled, y = np.concatenate([near, other]), x[:, 0] + x[:, 1] ** 2
    figure, axes = panels(2, sharey=True)
    titles = "no pool", "pool in grey"
    for axis, rows, title in zip(axes, (None, unlabeled), titles, strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", gpn.GPNWarning)
            model = GPNRegressor(mean=None, random_state=0).fit(x, y, X_unlabeled=rows)
        shaded(axis, model)
        if rows is not None:
            axis.plot(*rows.T, ".", color=GREY, markersize=4)
        axis.plot(*x.T, "x", color=plots.INK, markersize=4)
        flagged = model.is_ood(other).mean()
        axis.set(title=f"{title}: {flagged:.0%} of the other cloud flagged", xlabel="column 1")
    axes[0].set_ylabel("column 2")
    return figure


def shaded(axes: Axes, model: GPNRegressor) -> None:
    """Where a model of two columns flags rows, in orange."""
    first, second = np.meshgrid(np.linspace(-3.4, 3.4, 120), np.linspace(-3.4, 3.4, 120))
    flags = model.is_ood(np.stack([first.ravel(), second.ravel()], axis=1)).reshape(first.shape)
    axes.contourf(first, second, flags, levels=[0.5, 1.5], colors=[ORANGE], alpha=0.25)
    axes.set(xlim=(-3.4, 3.4), ylim=(-3.4, 3.4))


def epistemic_aleatoric() -> Figure:
    """Noise that grows along x, and a gap in which the function is not known."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-2, 0.2, 170), rng.uniform(1.0, 2, 130)])[:, None]
    y = np.sin(3 * x[:, 0]) + rng.normal(0, 0.05 + 0.25 * (x[:, 0] > -0.9) * (x[:, 0] < 0.5))
    model = GPNRegressor(mean=None, random_state=0).fit(x, y)
    grid = np.linspace(-2, 2, 300)[:, None]
    mean, std = model.predict(grid, return_std=True)
    low, high = model.predict_interval(grid)
    figure, (axes,) = panels(1)
    axes.fill_between(grid[:, 0], low, high, color=BLUE, alpha=0.18, linewidth=0)
    axes.plot([], [], color=BLUE, alpha=0.3, linewidth=8, label="95 % of new labels: both")
    axes.fill_between(grid[:, 0], mean - 1.96 * std, mean + 1.96 * std, color=ORANGE, alpha=0.5,
                      linewidth=0, label="95 % of the function: epistemic")  # fmt: skip
    axes.plot(x[:, 0], y, ".", color=plots.INK, markersize=3, label="labels")
    axes.plot(grid[:, 0], mean, color=BLUE)
    axes.set(xlabel="x", ylabel="y")
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return figure


def ood_score() -> Figure:
    """Scores of known rows, of rows shifted in one column, and the threshold between them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 4)) @ rng.normal(size=(4, 4))
    y = x[:, 0] + np.sin(x[:, 1])
    model = GPNRegressor(mean=None, random_state=0).fit(x[:200], y[:200])
    known = x[200:]
    near, far = known.copy(), known.copy()
    near[:, 2] += 1 * x[:, 2].std()
    far[:, 2] += 3 * x[:, 2].std()
    sets = {"known rows": known, "one column +1 sd": near, "one column +3 sd": far}
    scores = {name: model.ood_score(rows) for name, rows in sets.items()}
    figure, (axes,) = panels(1)
    plots.ood_histogram(axes, scores, threshold=model.threshold())
    flagged = ", ".join(f"{name} {model.is_ood(rows).mean():.0%}" for name, rows in sets.items())
    axes.set_title(f"flagged: {flagged}")
    axes.legend(frameon=False)
    return figure


def calibration() -> Figure:
    """Coverage of a model whose noise is set too small, before and after `calibrate`."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (3000, 2))
    y = np.sin(2 * x[:, 0]) + x[:, 1] + 0.3 * rng.standard_t(3, 3000)
    fit, held_out, new = slice(0, 200), slice(200, 1000), slice(1000, None)
    settings = {"n_members": 20, "train": gpn.TrainConfig(steps=300)}
    model = gpn.PosteriorRegressor("ensemble", settings=settings, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gpn.GPNWarning)
        model.fit(x[fit], y[fit])
    levels = np.linspace(0.05, 0.95, 19)
    figure, (axes,) = panels(1)
    axes.plot([0, 1], [0, 1], ":", color="0.5", label="as promised")
    draws = model.sample_y(x[new], 200, random_state=0)
    curves = {"functions of an ensemble alone": lambda level: np.quantile(
        draws, [(1 - level) / 2, (1 + level) / 2], axis=-1)}  # fmt: skip
    model.calibrate(x[held_out], y[held_out])
    curves["after calibrate"] = lambda level: model.predict_interval(x[new], level)
    for (name, ends), color in zip(curves.items(), (ORANGE, BLUE), strict=True):
        shares = [np.mean((low <= y[new]) & (y[new] <= high)) for low, high in map(ends, levels)]
        axes.plot(levels, shares, "o-", color=color, markersize=4, label=name)
    axes.set(xlabel="level of the interval", ylabel="share of new labels inside")
    axes.legend(frameon=False)
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    "landing": landing,
    "concepts/prior": prior,
    "concepts/pool": pool,
    "concepts/posterior": posterior,
    "concepts/epistemic-aleatoric": epistemic_aleatoric,
    "concepts/ood-score": ood_score,
    "concepts/calibration": calibration,
}


def demo() -> None:
    """docs/posterior.png, as `make demo` draws it."""
    from gpn.demo import SIX_POINTS_NOISE_STD as NOISE
    from gpn.demo import figure_posterior
    from gpn.methods.gp import GP, GPConfig

    task = six_points()
    found = gpn.GPN(gpn.GPNConfig(noise_std=NOISE)).fit(task, rng=0, progress=False)
    figure_posterior(task, found, GP(GPConfig(noise_std=NOISE)).fit(task)).savefig(
        DOCS / "posterior.png", dpi=150
    )


def main(chosen: list[str]) -> None:
    for name, draw in FIGURES.items():
        if not chosen or Path(name).name in chosen:
            draw().savefig(DOCS / f"{name}.png", dpi=110)
            print(f"picture: docs/{name}.png", flush=True)
    if not chosen or "posterior-demo" in chosen:
        demo()
    for example in sorted((ROOT / "examples").glob("*.py")):
        if not chosen or example.stem in chosen:
            picture = DOCS / "gallery" / f"{example.stem}.png"
            command = [sys.executable, str(example), "--out", str(picture)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            if done.stdout:
                picture.with_suffix(".txt").write_text(done.stdout)
            print(f"picture: {picture.relative_to(ROOT)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
