"""Small fitted models of every kind that can be saved; each comes with the rows to ask it about.

A network has two layers of 8 units and is trained for 20 steps: its predictions are poor, and that
is no matter here, where only their digits count.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd
import torch

import gpn
from tests.compat import data
from tests.compat.command import command

Fitted = tuple[str, str, Any]  # the file's name, the name of the rows, the model

TRAIN = gpn.TrainConfig(steps=20, label_batch=16, pool_batch=16, device="cpu")
TRUNK = gpn.MLPTrunk(widths=(8, 8))
SMALL: dict[str, Any] = {"trunk": TRUNK, "train": TRAIN}
FEW: dict[str, Any] = {**SMALL, "n_axes": 6, "noise_axes": 4, "reference_rows": 32}
PAPER: dict[str, Any] = {
    **SMALL,
    "prior": gpn.MLPPrior(widths=(8,)),
    "n_anchors": 8,
    "code_dim": 3,
}
# Random numbers are rounded differently on different processors: a smooth prior shows less of it.
SMOOTH = gpn.MLPPrior(prior_variance=(1.0, 2.0), bias_variance=(1.0, 0.0))
METHODS: dict[str, dict[str, Any]] = {
    "gpn": FEW,
    "gpn-paper": PAPER,
    "dropout": SMALL,
    "dkl": {**SMALL, "embedding_dim": 1, "grid_size": 6},
    "sngp": {**SMALL, "n_features": 8},
    "ensemble-pr": {**SMALL, "n_members": 3},
    "ensemble-or": {**SMALL, "n_members": 3, "prior": gpn.MLPPrior(widths=(8,))},
    "ensemble": {**SMALL, "n_members": 3},
    "ensemble-plus": {**SMALL, "n_members": 3, "prior": gpn.MLPPrior(widths=(8,))},
    "epinet": {**SMALL, "index_dim": 3},
    "gp": {"prior": SMOOTH, "noise_std": 0.5, "path_width": 64},
    "gpc": {"prior": SMOOTH, "path_width": 64},
    "mcmc": {
        "prior": gpn.MLPPrior(widths=(4,)),
        "n_chains": 2,
        "warmup": 10,
        "draws": 4,
        "thin": 1,
        "max_leapfrog": 5,
        "n_probes": 4,
    },
}
NUMBERS_ONLY = {"gp"}
TWO_CLASSES_ONLY = {"gpc"}
VARIANTS: dict[str, dict[str, Any]] = {
    "joint": {"anchor": "joint", "noise_std": 0.2},
    "conditioned": {"anchor": "conditioned", "noise_std": 0.2},
    "independent": {
        "anchor": "independent",
        "beta": 0.1,
        "pool_weights": "equal",
        "synthetic_ood": 0.0,
    },
    "mixture": {
        "anchor": "independent",
        "beta": 0.1,
        "pool_weights": "mixture",
        "synthetic_ood": 0.25,
    },
    "ramps": {"trunk": gpn.MLPTrunk(widths=(8, 8), activation="relu", dropout=0.1, ramps=4)},
    "waves": {"trunk": gpn.MLPTrunk(widths=(8,), fourier=6)},
    "fixed-waves": {"trunk": gpn.MLPTrunk(widths=(8,), fourier=6, fourier_range=(0.5, 4.0))},
    "learnt-codes": {"codes": "learnt", "n_anchors": 8, "code_dim": 3, "beta": 0.1},
    "spectral-concat": {"generator": "concat", "anchor": "independent", "beta": 0.1},
}


def small_detectors() -> AbstractContextManager[Any]:
    """Detectors of few trees, as the usual ones take 400 kB in each file."""
    few = {"N_TREES": 2, "POOL_TREES": 2, "OUTLIERS": (40, 60)}
    return mock.patch.multiple("gpn.estimators.ood.detector", **few)


def in_memory() -> Iterator[Fitted]:
    """Every model but those of tables."""
    yield from posteriors()
    yield from variants()
    yield from images()
    yield from regressors()
    yield from classifiers()
    yield from closed_forms()


def posteriors() -> Iterator[Fitted]:
    """A bare posterior of every method, of numbers and of classes."""
    for name in gpn.methods.names():
        if name not in METHODS:
            raise ValueError(f"the method {name!r} must have small settings in METHODS, add them.")
        method = gpn.methods.get(name, **METHODS[name])
        if name in TWO_CLASSES_ONLY:
            yield f"method-{name}-classes", "plane", method.fit(data.two_classes_task(), rng=0)
            continue
        yield f"method-{name}-numbers", "plane", method.fit(data.numbers_task(), rng=0)
        if name not in NUMBERS_ONLY:
            yield f"method-{name}-classes", "plane", method.fit(data.classes_task(), rng=0)


def variants() -> Iterator[Fitted]:
    """GPNs with every kind of anchor, code, generator and trunk, in double precision."""
    for name, changes in VARIANTS.items():
        config = gpn.GPNConfig(**{**FEW, **changes})
        yield f"variant-{name}", "plane", _of_numbers(config)
    rbf = gpn.methods.get("gp", kernel="rbf", noise_std=None, path_width=64)
    yield "variant-gp-rbf", "plane", rbf.fit(data.numbers_task(), rng=0)


def _of_numbers(config: gpn.GPNConfig) -> gpn.Posterior:
    return gpn.GPN(config).fit(data.numbers_task(torch.float64), rng=0)


def images() -> Iterator[Fitted]:
    """Classifiers of images, with both ways to halve them."""
    for halve_by in ("stride", "max"):
        trunk = gpn.ConvTrunk(channels=(2,), widths=(8,), halve_by=halve_by)
        prior = gpn.ConvPrior(channels=(2,))
        config = gpn.GPNConfig(**{**FEW, "trunk": trunk, "prior": prior, "beta": 0.1})
        yield f"images-{halve_by}", "images", gpn.GPN(config).fit(data.images_task(), rng=0)


def closed_forms() -> Iterator[Fitted]:
    """Estimators as they are without a setting: in closed form, with a detector and a pool."""
    x, held_out, pool = data.points(30, 0), data.points(40, 5), data.points(60, 1)
    options: dict[str, Any] = {"random_state": 0, "device": "cpu"}

    def regressor(**more: Any) -> Any:
        return gpn.GPNRegressor(**options, **more).fit(x, data.wave(x), pool)

    def classifier() -> Any:
        return gpn.GPNClassifier(**options).fit(x, data.sectors(x), pool)

    yield "closed-regressor", "plane", regressor()
    yield "closed-no-mean", "plane", regressor(mean=None)
    y = data.wave(held_out)
    yield "closed-calibrated", "plane", regressor().calibrate(held_out, y)
    yield "closed-shift", "plane", regressor().calibrate(held_out, y, 0.8 * data.points(60, 7))
    steps = data.points(60, 8)
    of_trees = gpn.GPNRegressor(**options).fit(steps, 9.0 * (steps[:, 0] > 0.3), pool)
    yield "closed-trees", "plane", of_trees
    targets = pd.DataFrame({"wave": data.wave(x), "sum": x.sum(1)}).to_numpy()
    two = gpn.GPNRegressor(**options).fit(x, targets, pool)
    yield "closed-two-targets", "plane", two
    repeated = gpn.GPNRegressor(**options).fit(x.repeat(2, 0), data.wave(x.repeat(2, 0)), pool)
    yield "closed-repeated-rows", "plane", repeated
    yield "closed-classifier", "plane", classifier()
    classes = data.sectors(held_out)
    yield "closed-classifier-calibrated", "plane", classifier().calibrate(held_out, classes)
    frame = data.frame(40, 10)
    numbers = gpn.GPNRegressor(**options).fit(frame, data.table(40, 10)["yield"])
    yield "closed-frame", "frame", numbers


def regressors() -> Iterator[Fitted]:
    """Estimators of one target and of two, plain, calibrated, with names and with a trunk."""
    small, paper = gpn.GPNConfig(**FEW), gpn.GPNConfig.paper(**PAPER)
    trunk = gpn.MLPTrunk(widths=(8,), activation="tanh")
    yield "regressor", "plane", _regressor(small)
    yield "regressor-paper", "plane", _regressor(paper)
    yield "regressor-module", "plane", _regressor(small, module=trunk)
    x = data.points(30, 5)
    yield "regressor-calibrated", "plane", _regressor(small).calibrate(x, data.wave(x))
    yield "regressor-two-targets", "plane", _two_targets(small)
    yield "regressor-named-columns", "plane", _named_columns(small)
    settings = {**METHODS["ensemble-or"], "beta": 0.2}
    ensemble = gpn.PosteriorRegressor("ensemble-or", settings=settings, random_state=0)
    yield "regressor-ensemble-or", "plane", _fit_wave(ensemble)


def _regressor(config: gpn.GPNConfig, **more: Any) -> Any:
    return _fit_wave(gpn.GPNRegressor(config, random_state=0, device="cpu", **more))


def _fit_wave(model: Any) -> Any:
    x = data.points(24, 0)
    return model.fit(x, data.wave(x), data.points(48, 1))


def _two_targets(config: gpn.GPNConfig) -> Any:
    x, pool = data.points(24, 0), data.points(48, 1)
    y = pd.DataFrame({"wave": data.wave(x), "sum": x.sum(1)})
    return gpn.GPNRegressor(config, random_state=0, device="cpu").fit(x, y.to_numpy(), pool)


def _named_columns(config: gpn.GPNConfig) -> Any:
    x, pool = (pd.DataFrame(data.points(n, n), columns=["east", "north"]) for n in (24, 48))
    model = gpn.GPNRegressor(config, random_state=0, device="cpu")
    return model.fit(x, data.wave(x.to_numpy()), pool)


def classifiers() -> Iterator[Fitted]:
    """Estimators of classes that are words or numbers, plain and calibrated."""
    small = gpn.GPNConfig(**FEW).replace(n_axes=3, noise_axes=2)
    independent = small.replace(anchor="independent", beta=0.1)
    yield "classifier-words", "plane", _classifier(small, _words)
    yield "classifier-integers", "plane", _classifier(independent, lambda x: 10 * data.sectors(x))
    yield "classifier-truths", "plane", _classifier(small, lambda x: x[:, 0] > 0)
    x = data.points(30, 5)
    calibrated = _classifier(small, _words).calibrate(x, _words(x))
    yield "classifier-calibrated", "plane", calibrated
    sngp = gpn.PosteriorClassifier("sngp", settings=METHODS["sngp"], random_state=0)
    yield "classifier-sngp", "plane", _fit_classes(sngp, _words)


def _classifier(config: gpn.GPNConfig, classes: Callable[[Any], Any]) -> Any:
    return _fit_classes(gpn.GPNClassifier(config, random_state=0, device="cpu"), classes)


def _fit_classes(model: Any, classes: Callable[[Any], Any]) -> Any:
    x = data.points(24, 0)
    return model.fit(x, classes(x), data.points(48, 1))


def _words(x: Any) -> Any:
    return pd.Series(["left", "middle", "right"])[data.sectors(x)].to_numpy()


def write_tables(folder: Path, scratch: Path) -> None:
    """Models of tables; those of the command line are small because an exact GP is."""
    held_out = scratch / "held_out.csv"
    data.table(24, 12).to_csv(held_out, index=False)
    _fit_by_command(folder / "table-gp.gpn", scratch)
    _fit_small_tables(folder)
    _fit_closed_tables(folder)
    for name in ("table-gp", "table-classes", "table-closed-numbers", "table-closed-classes"):
        out = folder / f"{name}-calibrated.gpn"
        command("calibrate", folder / f"{name}.gpn", held_out, "--out", out)


def _fit_by_command(out: Path, scratch: Path) -> None:
    labeled, pool = scratch / "labeled.csv", scratch / "pool.csv"
    data.table(56, 10).drop(columns="grade").to_csv(labeled, index=False)
    data.table(40, 11).drop(columns=["yield", "grade"]).to_csv(pool, index=False)
    options = {"--target": "yield", "--unlabeled": pool, "--method": "gp", "--out": out}
    command(
        "fit", labeled, "--forget-rows", *(part for option in options.items() for part in option)
    )


def _fit_small_tables(folder: Path) -> None:
    """GPNs of a table, one with its labeled rows and one without."""
    fit_table, pool = _fit_table(), data.table(40, 11)
    config = gpn.GPNConfig(**FEW).replace(n_axes=4)
    options: dict[str, Any] = {"config": config, "random_state": 0, "device": "cpu"}
    labeled = data.table(30, 10)
    numbers = fit_table(labeled.drop(columns="grade"), "yield", pool, **options)
    gpn.save(numbers, folder / "table-numbers.gpn")
    options["keep_rows"] = False
    classes = fit_table(labeled.drop(columns="yield"), "grade", pool, **options)
    gpn.save(classes, folder / "table-classes.gpn")


def _fit_closed_tables(folder: Path) -> None:
    """Models as `gpn fit` makes them, of numbers and of classes."""
    fit_table, labeled, pool = _fit_table(), data.table(40, 10), data.table(40, 11)
    for target, other in (("yield", "grade"), ("grade", "yield")):
        name = "numbers" if target == "yield" else "classes"
        made = fit_table(labeled.drop(columns=other), target, pool, random_state=0, device="cpu")
        gpn.save(made, folder / f"table-closed-{name}.gpn")


def _fit_table() -> Callable[..., Any]:
    """The library's own `fit_table`, wherever it lives.

    `gpn fit` has no option for the size of a network, and the default one takes a megabyte. This is
    the one look into a private module, one that the command line has imported by now.
    """
    loaded = [module for name, module in sorted(sys.modules.items()) if name.startswith("gpn.")]
    found = [module.fit_table for module in loaded if hasattr(module, "fit_table")]
    if not found:
        raise LookupError("some module of gpn must have fit_table, none of the loaded ones has.")
    return found[0]
