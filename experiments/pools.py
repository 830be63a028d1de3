"""Does a pool ever hurt? Likelihood of known rows and AUC of the score with six pools and without.

    python -m experiments.pools --tables FOLDER

The tables are those of the suite of shifts, with up to 500 labels. Shifted rows are those whose
columns are permuted or one of whose columns is moved by 5 standard deviations; in a second fit,
those of the top tenth of the target (of classes: of a column), which no label comes from. Pools:

    like   rows like the labels          tiny   ten rows of `half`
    half   half of them are shifted      huge   10,000 of `half`, drawn again and again
    other  all of them are shifted       far    rows 100 standard deviations away

The posterior is the same with every pool; the detector, the gate and the noise are learnt anew. A
loss counts as worse where it is by more than 0.01 and by two standard errors of the difference.
Writes `results/pools.json`.
"""

import argparse
import copy
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from experiments import harness
from experiments.shifts.data import CLASSES, DECILE, MAX_LABELS, MAX_TEST, names, parts, read
from experiments.tables.data import Table
from gpn import GPNClassifier, GPNRegressor
from gpn.estimators.base import Estimator, as_seed
from gpn.estimators.ood.pool import auc

Rows = NDArray[np.float64]

POOLS = ("none", "like", "half", "other", "tiny", "huge", "far")
HUGE, TINY, FAR = 10_000, 10, 100.0
MIN_OUT = 3
STEP = 5.0
NATS, AREA, SURE = 0.01, 0.01, 2.0  # what counts as worse
RESULT = harness.RESULTS / "pools.json"


class KeepsFit:
    """An estimator that remembers its fit, so that another pool needs no other posterior."""

    def _finish(self, *fit: Any) -> None:
        self.kept_ = fit
        super()._finish(*fit)  # type: ignore[misc]


class KeptRegressor(KeepsFit, GPNRegressor):
    pass


class KeptClassifier(KeepsFit, GPNClassifier):
    pass


def with_pool(model: Any, labels: Rows, pool: Rows | None) -> Any:
    """The model as it would be if it had been fitted with this pool."""
    found, seed = copy.copy(model), as_seed(check_random_state(0))
    found._fit_detector(labels, None if pool is None else Estimator._scaled(model, pool), seed)
    found._finish(*model.kept_)
    return found


def shifted(rows: Rows, std: Rows, column: int, rng: np.random.Generator) -> Rows:
    """Half of the rows with permuted columns, half with one column moved."""
    first, second = np.array_split(rows, 2)
    moved = second.copy()
    moved[:, column] += STEP * std[column]
    return np.concatenate([np.stack([rng.permutation(each) for each in first.T], 1), moved])


def pools(like: Rows, other: Rows, std: Rows, rng: np.random.Generator) -> dict[str, Rows | None]:
    half = np.concatenate([like[: len(like) // 2], other[: len(like) - len(like) // 2]])
    found: dict[str, Rows | None] = {"none": None, "like": like, "half": half, "other": other}
    found["tiny"] = half[rng.permutation(len(half))[:TINY]]
    found["huge"] = half[rng.integers(len(half), size=HUGE)]
    found["far"] = like + FAR * std
    return found


def cells(table: Table, fold: int) -> Iterator[tuple[str, Rows, Rows, Rows, Rows, Rows, Any]]:
    """Labels, targets, known rows and their targets, shifted rows, and pools, for both shifts."""
    rng = np.random.default_rng([fold, 11])
    test, rest = (rng.permutation(np.flatnonzero(mask)) for mask in parts(table, fold))
    test, rest = test[:MAX_TEST], rest[: 2 * MAX_LABELS]
    labels, pool = np.array_split(rest, 2)
    x, std = table.x, table.x[labels].std(0)
    column = int(rng.choice(np.flatnonzero(std > 0)))
    rows = pools(x[pool], shifted(x[pool], std, column, rng), std, rng)
    moved = shifted(x[test], std, column, rng)
    yield "moved", x[labels], table.y[labels], x[test], table.y[test], moved, rows
    values = x[:, int(np.argmax([len(np.unique(c)) for c in x.T]))]
    values = values if table.name in CLASSES else table.y
    is_out = values > np.quantile(values, 1 - DECILE)
    out, kept, known = test[is_out[test]], labels[~is_out[labels]], test[~is_out[test]]
    like = pool[~is_out[pool]]
    others = np.concatenate([pool[is_out[pool]], labels[is_out[labels]]])
    if len(out) >= MIN_OUT and len(others) >= TINY:
        rows = pools(x[like[: 2 * len(others)]], x[others], std, rng)
        rows["half"] = np.concatenate([x[like[: len(others)]], x[others]])
        yield "held out", x[kept], table.y[kept], x[known], table.y[known], x[out], rows


def measured(name: str, fold: int, folder: Path | None) -> Iterator[dict[str, Any]]:
    """Losses of each known row, and the area of each pool."""
    torch.set_num_threads(1)
    for shift, labels, y, known, targets, out, unlabeled in cells(read(name, folder), fold):
        kind: Any = KeptClassifier if name in CLASSES else KeptRegressor
        model = kind(random_state=0).fit(labels, y)
        for pool, rows in unlabeled.items():
            started = time.perf_counter()
            found = with_pool(model, labels, rows)
            score = found.ood_score(known), found.ood_score(out)
            yield {
                "name": name,
                "shift": shift,
                "pool": pool,
                "losses": losses(found, known, targets),
                "coverage": coverage(found, known, targets),
                "auc": auc(*score),
                "std_auc": std_auc(found, known, out),
                "alarms": float(found.is_ood(known).mean()),
                "seconds": time.perf_counter() - started,
            }


def losses(model: Any, rows: Rows, y: Rows) -> Rows:
    if isinstance(model, GPNClassifier):
        p = np.clip(model.predict_proba(rows), 1e-6, 1.0)
        return -np.log(p[np.arange(len(y)), np.searchsorted(model.classes_, y)])
    return -model.predict_distribution(rows).logpdf(y) - np.log(model.y_scale_.scale)


def coverage(model: Any, rows: Rows, y: Rows) -> float:
    if isinstance(model, GPNClassifier):
        return float("nan")
    low, high = model.predict_interval(rows)
    return float(np.mean((low <= y) & (y <= high)))


def std_auc(model: Any, known: Rows, out: Rows) -> float:
    if isinstance(model, GPNClassifier):
        return auc(model.entropy(known), model.entropy(out))
    return auc(*(model.predict(rows, return_std=True)[1] for rows in (known, out)))


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each shift and pool: means, differences from no pool, and how often it is worse."""
    plain = {(one["name"], one["shift"]): one for one in rows if one["pool"] == "none"}
    found = []
    for shift in ("moved", "held out"):
        for pool in POOLS:
            own = [one for one in rows if (one["shift"], one["pool"]) == (shift, pool)]
            pairs = [(one, plain[one["name"], shift]) for one in own]
            gaps = [one["losses"] - other["losses"] for one, other in pairs]
            nats = np.array([gap.mean() for gap in gaps])
            errors = np.array([gap.std() / len(gap) ** 0.5 for gap in gaps])
            areas = np.array([one["auc"] - other["auc"] for one, other in pairs])
            found.append(
                {
                    "shift": shift,
                    "pool": pool,
                    "tables": len(own),
                    "nll": float(np.mean([one["losses"].mean() for one in own])),
                    "nats": float(nats.mean()),
                    "worst_nats": float(nats.max()),
                    "worse_nll": int(np.sum(nats > np.maximum(NATS, SURE * errors))),
                    "auc": float(np.mean([one["auc"] for one in own])),
                    "area": float(areas.mean()),
                    "worst_area": float(areas.min()),
                    "worse_auc": int(np.sum(areas < -AREA)),
                    "std_auc": float(np.mean([one["std_auc"] for one in own])),
                    "coverage": float(np.nanmean([one["coverage"] for one in own])),
                    "alarms": float(np.mean([one["alarms"] for one in own])),
                }
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, help="the folder of tables (else GPN_DATA/tables)")
    parser.add_argument("--tables-only", metavar="NAME", nargs="+", help="only these tables")
    parser.add_argument("--fold", type=int, default=0, help="the part that is tested")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in options.tables_only or names(options.tables):
            rows += measured(name, options.fold, options.tables)
    found = summary(rows)
    details = [{**one, "losses": float(one["losses"].mean())} for one in rows]
    report = {"device": harness.hardware(), "versions": harness.versions(), "summary": found}
    harness.save(options.out, {**report, "rows": details})
    print(harness.markdown(list(found[0]), [[_text(one) for one in row.values()] for row in found]))


def _text(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
