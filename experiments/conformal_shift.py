"""Coverage at 90 % on target rows that differ from the calibration rows, over simulated shifts.

    python -m experiments.conformal_shift

Noise, or the share of wrong classes, grows with the first of three columns, which the model does
not know; target rows are tilted along it by exp(tilt · x₀), so that densities overlap. Each of 200
shifts draws its rows and its tilt anew; ten models per kind are fitted, all in closed form. Takes
about three minutes; writes `results/conformal_shift.json`.
"""

import json
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gpn
from experiments import harness

Array = NDArray[Any]

LEVEL, TARGETS = 0.9, 2000
SHIFTS, MODELS, LABELS, CALIBRATION = 200, 10, 60, 500
TILTS = 0.8, 1.2


def numbers(x: Array, rng: np.random.Generator) -> Array:
    """y = sin(2 x₁) + e^{x₀} · noise."""
    values: Array = np.sin(2 * x[:, 1]) + np.exp(x[:, 0]) * rng.standard_normal(len(x))
    return values


def classes(x: Array, rng: np.random.Generator) -> Array:
    """The sign of x₁, wrong with a probability that grows with x₀ to one half."""
    wrong = rng.random(len(x)) < 0.5 / (1 + np.exp(-3 * (x[:, 0] - 1)))
    return (x[:, 1] > 0) ^ wrong


KINDS = {"numbers": (gpn.GPNRegressor, numbers), "classes": (gpn.GPNClassifier, classes)}


def fitted(kind: str, seed: int) -> Any:
    estimator, labels = KINDS[kind]
    rng = np.random.default_rng([seed, 1])
    x = rng.normal(size=(LABELS, 3))
    return estimator(mean=None, random_state=seed).fit(x, labels(x, rng))


def one_shift(kind: str, model: Any, seed: int) -> dict[str, float]:
    """Coverage on the target by plain and by weighted calibration."""
    rng, labels = np.random.default_rng([seed, 2]), KINDS[kind][1]
    tilt = rng.uniform(*TILTS)
    x = rng.normal(size=(CALIBRATION, 3))
    target, new = rng.normal(size=(2, TARGETS, 3))
    for rows in (target, new):  # exp(tilt · x₀) times N(0, 1) is N(tilt, 1)
        rows[:, 0] += tilt
    y, y_new = labels(x, rng), labels(new, rng)
    plain = covered(model.calibrate(x, y), new, y_new)
    weighted = covered(model.calibrate(x, y, target), new, y_new)
    return {
        "tilt": float(tilt),
        "plain": plain,
        "weighted": weighted,
        "effective_rows": model.calibration_.effective_rows,
    }


def covered(model: Any, x: Array, y: Array) -> float:
    if hasattr(model, "classes_"):
        return float(model.predict_set(x, LEVEL)[np.arange(len(x)), y.astype(int)].mean())
    low, high = model.predict_interval(x, LEVEL)
    return float(((low <= y) & (y <= high)).mean())


def summary(rows: list[dict[str, float]]) -> dict[str, Any]:
    """Means over shifts, the deviation from shift to shift, and every shift."""
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    found: dict[str, Any] = {f"{name}_mean": float(each.mean()) for name, each in columns.items()}
    for name in ("plain", "weighted"):
        found[f"{name}_std"] = float(columns[name].std())
    return {**found, "shifts": {name: each.round(4).tolist() for name, each in columns.items()}}


def main() -> None:
    warnings.simplefilter("ignore", gpn.GPNWarning)
    report: dict[str, Any] = {"level": LEVEL, "calibration_rows": CALIBRATION, "shifts": SHIFTS}
    for kind in KINDS:
        rows = []
        for number in range(MODELS):
            model = fitted(kind, number)
            rows += [one_shift(kind, model, s) for s in range(number, SHIFTS, MODELS)]
        report[kind] = summary(rows)
        print(kind, json.dumps({k: v for k, v in report[kind].items() if k != "shifts"}))
    harness.save(
        harness.RESULTS / "conformal_shift.json", {**report, "versions": harness.versions()}
    )


if __name__ == "__main__":
    main()
