"""Drift: whether new rows still look like those of the fit, by tests that hold their level.

- *Flagged rows.* A score exceeds the threshold of n left-out labels with a probability that is
  itself a random number, Beta((n + 1) fpr, (n + 1)(1 − fpr)): the number of flagged rows among m is
  beta-binomial where nothing has changed.
- *Columns.* Numbers by the statistic of Kolmogorov and Smirnov, categories by χ², each between new
  rows and the labeled rows that the detector stores (or reference rows).
- *Values that are new.* Of n rows of the fit, s had a value of their own: so often a new one comes.
- *Labels that are known by now.* Those within their interval or set, by the beta-binomial
  distribution that conformal prediction has.

Holm's correction keeps the probability of any alarm, where nothing has changed, at `false_alarms`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import betabinom, binomtest, chi2_contingency, fisher_exact, ks_2samp

Rows = NDArray[np.float64]
Flags = NDArray[np.bool_]

CONFIDENCE = 0.95  # of the intervals of shares
MIN_DISTANCE = 0.05  # of two distributions, below which a column counts as unmoved
MIN_EXPECTED = 5.0  # rows of a value, below which χ² takes values together
MAX_EXACT_PAIRS = 10_000  # of rows, up to which a p-value of two samples is exact
MIN_ROWS = 30  # below which only large changes can be seen
DIGITS = 9  # of standardised values, so that rounding does not part equal ones


@dataclass(frozen=True)
class Share:
    """`count` of `rows`, with the ends of the 95 % interval of Clopper and Pearson.

    expected: the share where nothing has changed. p_value: of a test against it.
    """

    count: int
    rows: int
    low: float
    high: float
    expected: float
    p_value: float

    @classmethod
    def of(cls, flags: Flags, expected: float, p_value: float) -> "Share":
        count, rows = int(flags.sum()), len(flags)
        ends = binomtest(count, rows).proportion_ci(CONFIDENCE, method="exact")
        return cls(count, rows, float(ends.low), float(ends.high), expected, p_value)

    @property
    def share(self) -> float:
        return self.count / self.rows

    def __str__(self) -> str:
        return f"{self.share:.1%} (from {self.low:.1%} to {self.high:.1%})"


@dataclass(frozen=True)
class ColumnDrift:
    """How far a column of new rows lies from that of the fit.

    distance: the largest difference of the distribution functions, of a category half the sum of
    the differences of its shares. p_value: after Holm's correction. change: what moved, in words.
    """

    column: str
    distance: float
    p_value: float
    change: str
    has_moved: bool = False


@dataclass(frozen=True)
class Drift:
    """What `drift` found; `has_drifted` where at least one check raised an alarm.

    flagged: rows beyond the threshold. new_values: rows with a value that the fit has not seen.
    columns: those that can be compared, the most moved first. coverage: of each target, how many
    known labels lie in their interval or set. alarms: one sentence for each. unknown: what could
    not be checked, and why.
    """

    rows: int
    false_alarms: float
    flagged: Share
    new_values: Share | None
    columns: tuple[ColumnDrift, ...]
    coverage: tuple[Share, ...]
    alarms: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def has_drifted(self) -> bool:
        return bool(self.alarms)

    @property
    def moved(self) -> tuple[str, ...]:
        """The names of the columns that moved."""
        return tuple(each.column for each in self.columns if each.has_moved)

    def sentences(self) -> list[str]:
        """The verdict, the figures behind it, and what could not be checked."""
        return list(_sentences(self))

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {"has_drifted": self.has_drifted, "moved": list(self.moved), **asdict(self)}


def four_digits(value: float) -> str:
    return f"{value:.4g}"


@dataclass(frozen=True)
class Column:
    """A column, the inputs that it becomes, and the values of a category; None of a number.

    shown: a number of it as a text.
    """

    name: str
    place: slice
    values: tuple[str, ...] | None = None
    shown: Callable[[float], str] = four_digits


@dataclass(frozen=True)
class Inputs:
    """The same rows twice: standardised, which compares exactly, and in the units of the data."""

    standard: Rows
    raw: Rows


@dataclass(frozen=True)
class Observed:
    """Rows as the checks see them: flags by score, new values where there are categories, and
    inputs; None where rows are not those of a table.

    new_in: the columns with new values.
    """

    flags: Flags
    new_values: Flags | None
    inputs: Inputs | None
    new_in: Sequence[str] = ()


@dataclass(frozen=True)
class Reference:
    """What new rows are compared with: rows of the fit, or reference rows with their own flags.

    n_scores: the number of left-out labels whose scores set the threshold.
    """

    n_scores: int
    inputs: Inputs | None
    flags: Flags | None = None
    new_values: Flags | None = None


@dataclass(frozen=True)
class Labels:
    """Which known labels lie in their interval or set `(n, o)`.

    n_learnt: how many labels these intervals or sets come from.
    """

    covered: Flags
    level: float
    n_learnt: int
    names: Sequence[str]


def find_drift(
    new: Observed,
    reference: Reference,
    columns: Sequence[Column],
    labels: Labels | None,
    *,
    fpr: float,
    false_alarms: float,
    unknown: Sequence[str] = (),
) -> Drift:
    """Every check, with Holm's correction over all of them."""
    flagged = _flagged(new.flags, reference, fpr)
    values = None if new.new_values is None else _new_values(new.new_values, reference, columns)
    compared = _compare(new.inputs, reference.inputs, columns)
    coverage = () if labels is None else tuple(_coverages(labels))
    shares = [flagged, *([values] if values else []), *coverage]
    raw = [*(share.p_value for share in shares), *(column.p_value for column in compared)]
    adjusted = holm(np.array(raw))
    of_shares, of_columns = adjusted[: len(shares)], adjusted[len(shares) :]
    judged = [
        replace(c, p_value=p, has_moved=p <= false_alarms and c.distance >= MIN_DISTANCE)
        for c, p in zip(compared, map(float, of_columns), strict=True)
    ]
    alarmed = [p <= false_alarms for p in of_shares]
    found = Drift(
        rows=len(new.flags),
        false_alarms=false_alarms,
        flagged=flagged,
        new_values=values,
        columns=tuple(sorted(judged, key=lambda c: (not c.has_moved, -c.distance))),
        coverage=coverage,
        alarms=(),
        unknown=tuple(unknown),
    )
    names = [] if labels is None else list(labels.names)
    alarms = tuple(_alarms(found, alarmed, labels, names, new.new_in))
    return replace(found, alarms=alarms)


def holm(p_values: Rows) -> Rows:
    """Holm's adjusted p-values: the probability of any false one is at most the level."""
    order = np.argsort(p_values)
    factors = np.arange(len(p_values), 0, -1)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p_values[order] * factors))
    return adjusted


def _flagged(flags: Flags, reference: Reference, fpr: float) -> Share:
    """More flagged rows than the threshold allows, or than among reference rows."""
    count, m, n = int(flags.sum()), len(flags), reference.n_scores
    if reference.flags is not None:
        return _against(flags, reference.flags)
    p = betabinom.sf(count - 1, m, (n + 1) * fpr, (n + 1) * (1 - fpr))
    return Share.of(flags, fpr, float(p))


def _new_values(flags: Flags, reference: Reference, columns: Sequence[Column]) -> Share:
    """More rows with a new value than rows of the fit had a value of their own."""
    if reference.new_values is not None:
        return _against(flags, reference.new_values)
    n, single = reference.n_scores, 0
    if reference.inputs is not None:
        n = len(reference.inputs.raw)
        single = _rows_with_own_value(reference.inputs.raw, columns)
    # halved, as the number of single values is random, too
    p = betabinom.sf(int(flags.sum()) - 1, len(flags), (single + 1) / 2, (n - single) / 2)
    return Share.of(flags, single / n, float(p) if flags.any() else 1.0)


def _against(flags: Flags, known: Flags) -> Share:
    """A larger share than among reference rows, by Fisher's exact test."""
    table = [[flags.sum(), (~flags).sum()], [known.sum(), (~known).sum()]]
    p = fisher_exact(table, alternative="greater")[1]
    return Share.of(flags, float(known.mean()), float(p))


def _rows_with_own_value(x: Rows, columns: Sequence[Column]) -> int:
    """How many rows have a category's value that no other row has."""
    own = np.zeros(len(x), dtype=bool)
    for column in columns:
        if column.values is not None:
            hot = x[:, column.place] > 0.5
            own |= hot[:, hot.sum(0) == 1].any(1)
    return int(min(own.sum(), len(x) - 1))


def _coverages(labels: Labels) -> Iterator[Share]:
    """Fewer labels in their intervals than the level says, target by target."""
    n, level = labels.n_learnt, labels.level
    inside = min(math.ceil((n + 1) * level), n)
    for covered in labels.covered.T:
        p = betabinom.cdf(int(covered.sum()), len(covered), inside, n + 1 - inside)
        yield Share.of(covered, level, float(p))


def _compare(
    new: Inputs | None, known: Inputs | None, columns: Sequence[Column]
) -> list[ColumnDrift]:
    """Each column of new rows against that of known ones."""
    if new is None or known is None:
        return []
    return [
        _compare_numbers(column, new, known)
        if column.values is None
        else _compare_values(column, new.raw[:, column.place], known.raw[:, column.place])
        for column in columns
    ]


def _compare_numbers(column: Column, new: Inputs, known: Inputs) -> ColumnDrift:
    pair = [np.round(rows.standard[:, column.place][:, 0], DIGITS) for rows in (known, new)]
    exact = len(pair[0]) * len(pair[1]) <= MAX_EXACT_PAIRS
    test = ks_2samp(*pair, method="exact" if exact else "asymp")
    raw = [rows.raw[:, column.place][:, 0] for rows in (known, new)]
    return ColumnDrift(
        column.name, float(test.statistic), float(test.pvalue), _change(column, *raw)
    )


def _change(column: Column, known: Rows, new: Rows) -> str:
    """What moved, in the units of the data: the median, or the ends of the middle 90 %."""
    levels = [0.05, 0.5, 0.95]
    before, after = np.quantile(known, levels), np.quantile(new, levels)
    low, middle, high = np.abs(after - before)
    ends = [column.shown(float(value)) for value in (*before, *after)]
    if max(low, high) > 2 * middle:
        return f"90 % from {ends[0]} to {ends[2]} → from {ends[3]} to {ends[5]}"
    return f"median {ends[1]} → {ends[4]}"


def _compare_values(column: Column, new: Rows, known: Rows) -> ColumnDrift:
    assert column.values is not None
    names = (*column.values, "other values")
    counts = np.array([_counts(rows) for rows in (known, new)])
    if counts[0, -1] == 0:
        counts[1, -1] = 0  # values that the fit has not seen are a check of their own
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    most = int(np.abs(shares[1] - shares[0]).argmax())
    change = f"{names[most]}: {shares[0, most]:.0%} → {shares[1, most]:.0%} of rows"
    distance = float(np.abs(shares[1] - shares[0]).sum() / 2)
    return ColumnDrift(column.name, distance, _contingency_p(counts), change)


def _counts(hot: Rows) -> Rows:
    """How many rows have each value, and how many none of them."""
    counts = (hot > 0.5).sum(0)
    return np.append(counts, len(hot) - counts.sum()).astype(np.float64)


def _contingency_p(counts: Rows) -> float:
    """χ² of two rows of counts, where rare values are taken together; Fisher's test of two."""
    expected = counts.sum(0) * counts.sum(1).min() / counts.sum()
    rare = expected < MIN_EXPECTED
    table = np.column_stack([counts[:, ~rare], counts[:, rare].sum(1)])
    table = table[:, table.sum(0) > 0]
    if table.shape[1] < 2 or not table.sum(1).all():
        return 1.0
    if table.shape[1] == 2:
        return float(fisher_exact(table.astype(int))[1])
    return float(chi2_contingency(table, correction=False)[1])


def _alarms(
    found: Drift,
    alarmed: Sequence[bool],
    labels: Labels | None,
    names: Sequence[str],
    new_in: Sequence[str],
) -> Iterator[str]:
    """One sentence for each check that raised an alarm."""
    flagged, *rest = alarmed
    if flagged:
        yield f"{found.flagged} of the rows are flagged, {found.flagged.expected:.1%} were expected"
    if found.new_values is not None:
        new, *rest = rest
        if new:
            where = f", most in column {new_in[0]!r}" if new_in else ""
            yield f"{found.new_values} of the rows have a value that the fit has not seen{where}"
    for column in found.columns:
        if column.has_moved:
            yield f"column {column.column!r} moved: {column.change}"
    for share, name, is_low in zip(found.coverage, names, rest, strict=True):
        if is_low and labels is not None:
            yield f"{share} of the labels{name} lie where {labels.level:.0%} should"


def _sentences(found: Drift) -> Iterator[str]:
    verdict = "drift" if found.has_drifted else "no drift"
    yield f"{verdict} in {found.rows:,} rows, at {found.false_alarms:.1%} false alarms"
    yield from found.alarms
    yield f"flagged rows: {found.flagged}, {found.flagged.expected:.1%} expected"
    if found.columns and not found.moved:
        first = found.columns[0]
        yield f"none of {len(found.columns)} columns moved; the largest change is {first.column!r}"
    for share in found.coverage:
        yield f"labels covered: {share} of {share.rows:,}, {share.expected:.1%} expected"
    if found.rows < MIN_ROWS:
        yield f"in {found.rows} rows only large changes can be seen; {MIN_ROWS} show more"
    yield from found.unknown
