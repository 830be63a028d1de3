"""Forty messy tables as a newcomer has them: as good as the clean version, or a warning that helps.

    python -m experiments.newcomer

Each table is a clean one of 100 labels, 300 unlabeled rows and three columns, spoilt in one way.
Predictions are compared on 500 new rows, on average over five data sets. A table is "as good" where
R² is at most 0.05 and the coverage of 95 % intervals at most 0.05 below those of the clean version;
else it is "warned" where, in all five, a warning of the fit or of the prediction, or `model.drift`,
names what was spoilt, and else "silent". Takes ten minutes; writes `results/newcomer.json`.
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import gpn
from experiments import harness

Array = NDArray[Any]

LABELS, POOL, NEW = 100, 300, 500
NAMES = ["heat", "speed", "load"]
MAX_R2_LOSS, MAX_COVERAGE_LOSS = 0.05, 0.05
NOISE = 0.1
TARGET, ROWS = "y", "rows"  # what a warning names where no column is spoilt
SEEDS = 5


@dataclass(frozen=True)
class Table:
    """Labeled, unlabeled and new rows; `spoilt` is the column that a warning must name."""

    x: pd.DataFrame
    y: Array
    pool: pd.DataFrame
    new: pd.DataFrame
    y_new: Array
    spoilt: str = "heat"


Mess = Callable[[Table, np.random.Generator], Table]


def truth(x: Array) -> Array:
    values: Array = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] + 0.3 * x[:, 0] * x[:, 2]
    return values


def clean(seed: int) -> Table:
    """Three columns in ±1, two of which matter together, and one alone."""
    rng = np.random.default_rng(seed)
    x, pool, new = (rng.uniform(-1, 1, (n, 3)) for n in (LABELS, POOL, NEW))
    y, y_new = (truth(rows) + NOISE * rng.standard_normal(len(rows)) for rows in (x, new))
    frames = (pd.DataFrame(rows, columns=NAMES) for rows in (x, pool, new))
    labeled, unlabeled, others = frames
    return Table(labeled, y, unlabeled, others, y_new)


def every_row(change: Callable[[pd.Series], Any], name: str = "heat") -> Mess:
    """A column changed in all rows."""

    def mess(table: Table, rng: np.random.Generator) -> Table:
        x, pool, new = (
            rows.assign(**{name: change(rows[name])}) for rows in (table.x, table.pool, table.new)
        )
        return replace(table, x=x, pool=pool, new=new, spoilt=name)

    return mess


def some_cells(rows: pd.DataFrame, name: str, value: float, share: float, rng: Any) -> pd.DataFrame:
    """A share of a column's cells, one at least, set to a value."""
    count = max(1, round(share * len(rows)))
    spoilt = rows.copy()
    spoilt.loc[rng.choice(len(rows), count, replace=False), name] = value
    return spoilt


def cells(value: float, share: float, *parts: str, name: str = "heat") -> Mess:
    def mess(table: Table, rng: np.random.Generator) -> Table:
        changed = {
            part: some_cells(getattr(table, part), name, value, share, rng) for part in parts
        }
        return replace(table, **changed, spoilt=name)

    return mess


def labels(value: float, count: int) -> Mess:
    def mess(table: Table, rng: np.random.Generator) -> Table:
        y = table.y.copy()
        y[rng.choice(len(y), count, replace=False)] = value
        return replace(table, y=y, spoilt=TARGET)

    return mess


def pool(change: Callable[[pd.DataFrame, Any], pd.DataFrame], name: str = "heat") -> Mess:
    return lambda table, rng: replace(table, pool=change(table.pool, rng), spoilt=name)


def new_rows(change: Callable[[pd.DataFrame], pd.DataFrame], name: str = "heat") -> Mess:
    return lambda table, rng: replace(table, new=change(table.new), spoilt=name)


def duplicates(times: int, *, of: str) -> Mess:
    """Each row, or the first ten, several times; with the same label each time, or another one."""

    def mess(table: Table, rng: np.random.Generator) -> Table:
        rows = np.arange(LABELS).repeat(times)
        if of == "ten rows":
            rows = np.r_[np.arange(LABELS), np.arange(10).repeat(times)]
        y = table.y[rows]
        if of == "rows with other labels":
            y = truth(table.x.to_numpy()[rows]) + NOISE * rng.standard_normal(len(rows))
        unlabeled = table.pool
        if of == "pool rows":
            rows, y = np.arange(LABELS), table.y
            unlabeled = table.pool.iloc[np.arange(POOL).repeat(times)]
        return replace(table, x=table.x.iloc[rows], y=y, pool=unlabeled, spoilt=ROWS)

    return mess


def extra(make: Callable[[int, str], Any]) -> Mess:
    """One column more, which says nothing."""

    def mess(table: Table, rng: np.random.Generator) -> Table:
        parts = {
            part: getattr(table, part).assign(extra=make(len(getattr(table, part)), part))
            for part in ("x", "pool", "new")
        }
        return replace(table, **parts, spoilt="extra")

    return mess


def uniform(low: float, high: float) -> Callable[[pd.DataFrame, Any], pd.DataFrame]:
    """A pool in a box."""
    return lambda rows, rng: pd.DataFrame(rng.uniform(low, high, rows.shape), columns=NAMES)


def moved(**changes: Callable[[pd.Series], Any]) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda rows: rows.assign(**{name: f(rows[name]) for name, f in changes.items()})


def swapped(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(heat=rows["load"] + 2, load=rows["heat"])


MESSES: dict[str, Mess] = {
    "far rows: a labeled cell of 500": cells(500.0, 0.0, "x"),
    "far rows: a labeled cell of 4,821": cells(4821.0, 0.0, "x"),
    "far rows: a labeled cell of 2**70": cells(2.0**70, 0.0, "x"),
    "far rows: 1 % of the pool at 4,821": cells(4821.0, 0.01, "pool"),
    "far rows: 5 % of labeled and pool rows at 60": cells(60.0, 0.05, "x", "pool"),
    "heavy tails: log-normal": every_row(lambda u: np.exp(3 * u)),
    "heavy tails: wide log-normal": every_row(lambda u: np.exp(6 * u)),
    "heavy tails: Cauchy": every_row(lambda u: np.tan(1.56 * u)),
    "heavy tails: Pareto": every_row(lambda u: (1.001 - (u + 1) / 2) ** -1.5),
    "heavy tails: cubes": every_row(lambda u: (3 * u) ** 5),
    "sentinels: 5 % of -999": cells(-999.0, 0.05, "x", "pool", "new"),
    "sentinels: 20 % of 9999": cells(9999.0, 0.2, "x", "pool", "new"),
    "sentinels: -1e30 in the pool": cells(-1e30, 0.05, "pool"),
    "sentinels: 10 % of -7": cells(-7.0, 0.1, "x", "pool", "new"),
    "sentinels: labels of -999": labels(-999.0, 3),
    "shifts: new rows + 3": new_rows(moved(heat=lambda u: u + 3)),
    "shifts: new rows times 5": new_rows(moved(heat=lambda u: 5 * u)),
    "shifts: Celsius as Fahrenheit": new_rows(moved(speed=lambda u: 1.8 * u + 32), "speed"),
    "shifts: a sensor that is stuck": new_rows(moved(heat=lambda u: 0 * u + 0.3)),
    "shifts: columns in another order": new_rows(swapped),
    "duplicates: each row twice": duplicates(2, of="rows"),
    "duplicates: each row ten times": duplicates(10, of="rows"),
    "duplicates: with other labels": duplicates(5, of="rows with other labels"),
    "duplicates: ten rows fifty times": duplicates(50, of="ten rows"),
    "duplicates: pool rows ten times": duplicates(10, of="pool rows"),
    "constant columns: zero": extra(lambda n, part: np.zeros(n)),
    "constant columns: 1e9": extra(lambda n, part: np.full(n, 1e9)),
    "constant columns: of labels, not of the pool": extra(
        lambda n, part: np.zeros(n) if part == "x" else np.linspace(-1, 1, n)
    ),
    "constant columns: one row differs": extra(lambda n, part: np.eye(1, n)[0]),
    "constant columns: rounding errors": extra(
        lambda n, part: 0.1 + 1e-16 * np.random.default_rng(n).normal(size=n)
    ),
    "wide pools: ±3": pool(uniform(-3, 3)),
    "wide pools: ±30": pool(uniform(-30, 30)),
    "wide pools: ±1000": pool(uniform(-1000, 1000)),
    "wide pools: log-normal": pool(lambda rows, rng: np.exp(4 * rows)),
    "wide pools: Cauchy": pool(lambda rows, rng: np.tan(1.57 * rows)),
    "labels outside the pool: at 2 to 3": pool(uniform(2, 3)),
    "labels outside the pool: at 100": pool(uniform(99, 101)),
    "labels outside the pool: half of it": pool(uniform(0, 1)),
    "labels outside the pool: one row": pool(lambda rows, rng: rows.iloc[[0] * POOL]),
    "labels outside the pool: one column": pool(lambda rows, rng: rows.assign(heat=rows.heat + 5)),
}


def quality(table: Table, seed: int) -> dict[str, Any]:
    """R² and coverage on new rows, and all that was said."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = gpn.GPNRegressor(mean=None, random_state=seed).fit(table.x, table.y, table.pool)
        mean, (low, high) = model.predict(table.new), model.predict_interval(table.new)
        drift = model.drift(table.new)
    said = [str(each.message) for each in caught if isinstance(each.message, gpn.GPNWarning)]
    said += [f"drift: {alarm}" for alarm in drift.alarms]
    return {
        "r2": 1 - float(np.mean((mean - table.y_new) ** 2) / table.y_new.var()),
        "coverage": float(np.mean((low <= table.y_new) & (table.y_new <= high))),
        "flagged": float(model.is_ood(table.new).mean()),
        "said": said,
    }


def is_as_good(found: dict[str, Any], best: dict[str, Any]) -> bool:
    return bool(
        found["r2"] >= best["r2"] - MAX_R2_LOSS
        and found["coverage"] >= best["coverage"] - MAX_COVERAGE_LOSS
    )


def names(said: list[str], column: str) -> list[str]:
    """The warnings that name the column."""
    words = {TARGET: "y should", ROWS: "copies of others"}.get(column, f"'{column}'")
    return [text for text in said if words in text]


def one_table(name: str, number: int) -> dict[str, Any]:
    """What became of one messy table: means over data sets, and whether each gave a warning."""
    best, found, naming = [], [], []
    for seed in range(SEEDS):
        rng = np.random.default_rng([number, seed])
        original = clean(1000 * number + seed)
        messy = MESSES[name](original, rng)
        best.append(quality(original, seed))
        found.append(quality(messy, seed))
        naming.append(names(found[-1]["said"], messy.spoilt))
    means = mean_of(found), mean_of(best)
    warned = all(naming)
    verdict = "as good" if is_as_good(*means) else "warned" if warned else "silent"
    clean_ones = {f"clean_{key}": means[1][key] for key in ("r2", "coverage")}
    warning = {"warned": sum(map(bool, naming)), "warning": naming[0][:1]}
    return {"table": name, "verdict": verdict, **means[0], **clean_ones, **warning}


def mean_of(rows: list[dict[str, Any]]) -> dict[str, float]:
    return {
        key: round(float(np.mean([row[key] for row in rows])), 3)
        for key in ("r2", "coverage", "flagged")
    }


def every_table() -> Iterator[dict[str, Any]]:
    for number, name in enumerate(MESSES):
        row = one_table(name, number)
        print(row["verdict"], name, row["r2"], row["coverage"], sep="\t", flush=True)
        yield row


def main() -> None:
    rows = list(every_table())
    counts = {kind: sum(row["verdict"] == kind for row in rows) for kind in VERDICTS}
    print(counts)
    content = {"seeds": SEEDS, "counts": counts, "tables": rows, "versions": harness.versions()}
    harness.save(harness.RESULTS / "newcomer.json", content)


VERDICTS = ("as good", "warned", "silent")

if __name__ == "__main__":
    main()
