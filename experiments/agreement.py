"""How far predictions differ between one and two threads, and between single and double precision.

    python -m experiments.agreement

Each fit runs in a process of its own, with its number of threads set before torch is imported. The
largest difference over 500 new rows is in units of the posterior's standard deviation: of a mean,
and of the deviation itself; of an OOD score in units of its own deviation over rows; of classes
in probability. Takes two minutes; writes `results/agreement.json`. GPUs and other versions of
torch are not in the table.
"""

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments import harness

Array = NDArray[Any]
Answers = dict[str, Array]

LABELS, COLUMNS, NEW = 200, 5, 500
ROOT = Path(__file__).parents[1]


def rows(seed: int, n: int) -> Array:
    return np.random.default_rng(seed).normal(size=(n, COLUMNS))


def truth(x: Array) -> Array:
    noise = np.random.default_rng(len(x)).normal(size=len(x))
    values: Array = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] + 0.1 * noise
    return values


def regressor(**options: Any) -> Answers:
    import gpn

    model = gpn.GPNRegressor(**options, random_state=0, device="cpu")
    x, new = rows(0, LABELS), rows(1, NEW)
    model.fit(x, truth(x), rows(2, NEW))
    mean, std = model.predict(new, return_std=True)
    return {"mean": mean, "std": std, "score": model.ood_score(new)}


def network() -> Answers:
    import gpn

    train = gpn.TrainConfig(steps=500, device="cpu")
    return regressor(config=gpn.GPNConfig(trunk=gpn.MLPTrunk(widths=(64, 64)), train=train))


def classifier() -> Answers:
    import gpn

    x, new = rows(0, LABELS), rows(1, NEW)
    model = gpn.GPNClassifier(random_state=0, device="cpu").fit(x, truth(x) > 0, rows(2, NEW))
    return {"probability": model.predict_proba(new)[:, 1], "score": model.ood_score(new)}


def posterior(method: str, **settings: Any) -> Answers:
    """A bare posterior in the precision that `DTYPE` names."""
    import torch

    import gpn

    dtype = getattr(torch, os.environ.get("DTYPE", "float64"))
    x, new = (torch.tensor(rows(seed, n), dtype=dtype) for seed, n in ((0, LABELS), (1, NEW)))
    y = torch.tensor(truth(rows(0, LABELS)), dtype=dtype)[:, None]
    found = gpn.methods.get(method, **settings).fit(gpn.Task(x, y, pool=new), rng=0)
    mean, variance = found.moments(new)
    return {"mean": mean.double().numpy()[:, 0], "std": variance.double().sqrt().numpy()[:, 0]}


def closed_form() -> Answers:
    import gpn

    prior = gpn.ARDPrior(column_scales=(1.0,) * COLUMNS)
    return posterior("gpn", generator="closed-form", prior=prior, noise_std=0.1)


CASES: dict[str, Callable[[], Answers]] = {
    "regressor in closed form": lambda: regressor(mean=None),
    "regressor in closed form, with a mean model": regressor,
    "regressor with a network": network,
    "classifier in closed form": classifier,
    "posterior in closed form": closed_form,
    "exact Gaussian process": lambda: posterior("gp", noise_std=0.1),
}
PRECISIONS = ("posterior in closed form", "exact Gaussian process")


def in_child(case: str, threads: int, dtype: str = "float64") -> Answers:
    """The answers of a fit in a process with so many threads."""
    count = str(threads)
    more = {"OMP_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count, "MKL_NUM_THREADS": count}
    done = subprocess.run(
        [sys.executable, "-m", "experiments.agreement", "--case", case],
        env={**os.environ, **more, "DTYPE": dtype},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    answers = json.loads(done.stdout.splitlines()[-1])
    return {name: np.array(values) for name, values in answers.items()}


def largest(first: Answers, second: Answers) -> dict[str, float]:
    """The largest difference of each answer, in its unit."""
    units: dict[str, Any] = {"mean": first.get("std"), "std": first.get("std"), "probability": 1.0}
    units["score"] = np.std(first["score"]) if "score" in first else None
    return {
        name: float(f"{np.max(np.abs(first[name] - second[name]) / units[name]):.2g}")
        for name in first
    }


def table() -> list[dict[str, Any]]:
    found = []
    for case in CASES:
        one, two = (in_child(case, threads) for threads in (1, 2))
        found.append({"case": case, "between": "one and two threads", **largest(one, two)})
        again = in_child(case, 1)
        found.append({"case": case, "between": "two runs with one thread", **largest(one, again)})
    for case in PRECISIONS:
        double, single = (in_child(case, 1, dtype) for dtype in ("float64", "float32"))
        found.append(
            {"case": case, "between": "double and single precision", **largest(double, single)}
        )
    return found


def main() -> None:
    found = table()
    for row in found:
        print(row, flush=True)
    content = {"rows": NEW, "table": found, "versions": harness.versions()}
    harness.save(harness.RESULTS / "agreement.json", content)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1:2] == ["--case"]:
        answers = CASES[sys.argv[2]]()
        print(json.dumps({name: values.tolist() for name, values in answers.items()}))
    else:
        main()
