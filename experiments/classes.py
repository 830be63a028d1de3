"""Classes of small tables against scikit-learn's classifiers: `python -m experiments classes`.

Iris, wine, breast cancer and digits with 50, 200 and most of their labels (80 %); a fifth of the
rows is the test part. Small tables have twenty splits: of thirty test rows, one decides a split.
Results are `results/classes/<table>/<method>.json`.
"""

import argparse
import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from experiments import harness
from gpn import GPNClassifier

Array = NDArray[Any]

TABLES = {
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "breast-cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
}
LABELS = ("50", "200", "most")
SEEDS = range(100, 120)  # splits that no default was chosen by
LARGE_TABLES = ("digits",)
LARGE_SEEDS = range(100, 105)
NEAR = 1.05
MIN_PROBABILITY = 1e-6  # a forest's zeros would be infinite
MAX_GP_LABELS = 600  # beyond, it sees a part of the labels: a fit would take ten minutes


def _logistic_regression(n: int, d: int) -> Any:
    options: dict[str, Any] = {"l1_ratios": (0,), "use_legacy_attributes": False, "max_iter": 500}
    regression = LogisticRegressionCV(
        Cs=np.logspace(-3, 3, 10), cv=3 if n < 60 else 5, scoring="neg_log_loss", **options
    )
    return make_pipeline(StandardScaler(), regression)


def _gp(n: int, d: int) -> Any:
    kernel = ConstantKernel(1.0) * RBF(math.sqrt(d))
    return make_pipeline(StandardScaler(), GaussianProcessClassifier(kernel, random_state=0))


METHODS: dict[str, Callable[[int, int], Any]] = {  # by labels and columns
    "gpn": lambda n, d: GPNClassifier(random_state=0),
    "logistic-regression": _logistic_regression,
    "gradient-boosting": lambda n, d: HistGradientBoostingClassifier(random_state=0),
    "random-forest": lambda n, d: RandomForestClassifier(500, random_state=0),
    "gp": _gp,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", nargs="?", choices=("run", "report"), default="run", help="run, or only report"
    )
    parser.add_argument("--methods", choices=METHODS, nargs="+", default=list(METHODS))
    parser.add_argument("--tables-only", choices=TABLES, metavar="NAME", nargs="+")
    parser.add_argument("--threads", type=int, default=1)


def execute(options: argparse.Namespace) -> None:
    if options.action == "run":
        torch.set_num_threads(options.threads)
        for table in options.tables_only or TABLES:
            for method in options.methods:
                with threadpool_limits(options.threads):
                    print(run(table, method), flush=True)
    print(write_report())


def run(table: str, method: str) -> str:
    """Every number of labels and every split; returns the path of the result."""
    seeds = list(LARGE_SEEDS if table in LARGE_TABLES else SEEDS)
    rows = [_measured(table, method, seed) for seed in seeds]
    seconds = {"fit": sum(row[f"fit_seconds/{labels}"] for row in rows for labels in LABELS)}
    settings = {"table": table, "labels": LABELS, "max_gp_labels": MAX_GP_LABELS}
    path = harness.write_result(f"classes/{table}", method, settings, seeds, rows, seconds)
    return str(path)


def _measured(table: str, method: str, seed: int) -> dict[str, float]:
    x, y = TABLES[table](return_X_y=True)
    pool, test = train_test_split(np.arange(len(y)), test_size=0.2, stratify=y, random_state=seed)
    found: dict[str, float] = {}
    for labels in LABELS:
        train = pool
        if labels != "most" and int(labels) < len(pool):
            train, _ = train_test_split(
                pool, train_size=int(labels), stratify=y[pool], random_state=seed
            )
        train = train[:MAX_GP_LABELS] if method == "gp" else train
        model = METHODS[method](len(train), x.shape[1])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of optimisers that end early
            started = time.perf_counter()
            model.fit(x[train], y[train])
            found[f"fit_seconds/{labels}"] = time.perf_counter() - started
        p = model.predict_proba(x[test])
        found[f"nll/{labels}"] = nll(p, y[test])
        found[f"accuracy/{labels}"] = float((p.argmax(1) == y[test]).mean())
    return found


def nll(p: Array, y: Array) -> float:
    """The mean of −log p of the true classes."""
    p = np.clip(p, MIN_PROBABILITY, 1.0)
    return -float(np.log(p[np.arange(len(y)), y] / p.sum(1)).mean())


def write_report() -> str:
    """Write `results/classes/classes.md`; returns what it says."""
    text = report()
    path = harness.RESULTS / "classes" / "classes.md"
    path.write_text(text + "\n")
    return f"{text}\n\n{path}"


def report() -> str:
    """Markdown: NLL of every table, number of labels and method, the best in bold."""
    rows, near = [], []
    for table in TABLES:
        files = {
            m: harness.load(harness.RESULTS / "classes" / table / f"{m}.json") for m in METHODS
        }
        metrics = {name: found["metrics"] for name, found in files.items() if found is not None}
        for labels in LABELS if metrics else ():
            scores = {name: found[f"nll/{labels}"]["mean"] for name, found in metrics.items()}
            best = min(scores.values())
            cells = [_cell(scores.get(name), best) for name in METHODS]
            seconds = metrics["gpn"][f"fit_seconds/{labels}"]["mean"] if "gpn" in metrics else 0
            near.append(scores.get("gpn", math.inf) <= NEAR * best)
            rows.append([table, labels, *cells, f"{seconds:.1f}"])
    if not rows:
        raise FileNotFoundError(
            "a report must have result files, got none; try python -m experiments classes."
        )
    count = f"GPN is the best, or within 5 % of it, on {sum(near)} of {len(near)}."
    return harness.markdown(["table", "labels", *METHODS, "GPN fit, s"], rows) + f"\n\n{count}"


def _cell(score: float | None, best: float) -> str:
    if score is None:
        return ""
    return f"**{score:.3f}**" if score == best else f"{score:.3f}"
