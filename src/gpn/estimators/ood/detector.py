"""The detector of a table: log p(outlier | x) / p(labeled | x), cross-fitted.

Labels are dealt into five parts. For each two of them, extremely randomised trees tell the labels
of the other three from synthetic outliers, by the columns and by `distances`. Trees cannot look
beyond what they saw, so that a term for distance is added: a row three times further away than any
label scores higher than all labels can, whatever the trees say, and the further the higher. With a
pool, two kinds of trees tell labels from pool rows; each counts as far as unseen rows confirm it.

A label is scored by the four fits that have not seen it. A new row has the mean of all ten, which
varies less: the `reference` scores are those of labels, drawn in by as much (`like_new_rows`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.tree import ExtraTreeClassifier
from sklearn.utils.class_weight import compute_sample_weight

from gpn.estimators.closed_form.mean import few_threads
from gpn.estimators.closed_form.trees import MAX_FEW_ROWS, Trees
from gpn.estimators.ood.distances import N_DISTANCES, Distances
from gpn.estimators.ood.joint import JointDistances
from gpn.estimators.ood.outliers import table_outliers
from gpn.estimators.ood.pool import MIN_ROWS, N_OLD_NUMBERS, Odds, PoolOdds, unlike_labels
from gpn.saving.validation import check, finite_array

Rows = NDArray[np.float64]
Array = NDArray[Any]

PARTS = 5
PAIRS = tuple(combinations(range(PARTS), 2))  # the parts that each fit leaves out
MIN_LABELS = 8
MAX_SEED = np.iinfo(np.int32).max
MIN_SINGLE_SHARE = 0.05
MAX_LABELS = 2000  # that distances are taken from
MAX_POOL = 10_000  # and as many labels, for the trees that know the pool
N_TREES = 25
POOL_TREES = 25
# Boosted trees of a pool: leaves, number and rate, while rows of both kinds are few, and of many.
FEW_ROWS = 5000
BOOSTING, MORE_BOOSTING = (31, 60, 0.1, 0.0), (63, 40, 0.25, 5.0)
BOOSTING_LEAF, BOOSTING_BINS = 5, 32
LEAF_AND_DEPTH, POOL_LEAF_AND_DEPTH = (5, 14), (3, 30)  # smallest leaf, largest depth
OUTLIERS_PER_LABEL = 2
OUTLIERS = 400, 3000
NEAR_SHARE, ROUNDING = 0.1, 1e-9
PROBES, MIN_REGULAR_SHARE = 400, 0.5
CLIP = 1e-3  # of the trees' probabilities
CAP = float(logit(1 - CLIP))
# Quantiles of the labels' log odds between which the gate begins, without and with a pool.
TYPICAL, POOL_TYPICAL = (0.8, 0.95), (0.5, 0.95)
ASSUMED_SHARE = 0.1
MAX_POOL_SHARE = 0.3
SAME = 1e-6  # standard deviations: single precision must not make a usual value a new one
MAX_MEAN_DOUBT, MAX_POOL_DOUBT = 0.005, 0.05  # of labels, without and with a pool
# λ of `like_new_rows` is 1/4 − 1/10 where members differ by chance alone, and 0.45 where only the
# parts that they leave out matter. On tables it is 0.24 with 20 labels and with 200.
MEMBER_NOISE, MAX_NOISE = 0.24, 0.5
FAR = np.log(3.0)  # log distance beyond the furthest label from which on a row is unknown


@dataclass(frozen=True)
class Nearness:
    """Which rows lie nearer to labels than nine in ten labels lie to each other.

    Between the points of a regular design most rows are as near as that: they are no outliers,
    although trees could draw a line around every point. Of random labels a tenth lies so near, and
    nothing is said.
    """

    distances: Distances
    limits: Rows  # of `neighbours` and `whitened`

    @classmethod
    def of(cls, labels: Rows, rng: np.random.Generator) -> "Nearness":
        distances = Distances.of(labels)
        found = cls(distances, np.quantile(distances.of_labels()[:, :2], NEAR_SHARE, axis=0))
        low, high = labels.min(0), labels.max(0)
        inside = low + (high - low) * rng.random((PROBES, labels.shape[1]))
        is_regular = found.is_near(inside).mean() > MIN_REGULAR_SHARE
        return found if is_regular else replace(found, limits=np.full(2, -np.inf))

    def is_near(self, rows: Rows) -> NDArray[np.bool_]:
        near: NDArray[np.bool_] = np.all(
            self.distances(rows)[:, :2] < self.limits + ROUNDING, axis=1
        )
        return near

    def without_near(self, rows: Rows) -> Rows:
        near = self.is_near(rows)
        return rows if near.all() else rows[~near]


@dataclass(frozen=True)
class Member:
    """What was learnt without two parts of the labels.

    pool_trees and pool_boosting tell pool rows from labels. Extremely randomised trees are better
    where pool rows lie elsewhere, boosted ones where few columns tell; older files lack them.
    """

    distances: Distances
    furthest: Rows  # the largest distances `neighbours` and `ellipsoid` of a label
    trees: Trees
    pool_trees: Trees | None = None
    pool_boosting: Trees | None = None

    @classmethod
    def fit(cls, labels: Rows, nearness: "Nearness", rng: np.random.Generator) -> "Member":
        """From labels, and from outliers made of them."""
        distances = Distances.of(labels)
        own = distances.of_labels()
        count = int(np.clip(OUTLIERS_PER_LABEL * len(labels), *OUTLIERS))
        outliers = nearness.without_near(table_outliers(labels, count, rng))
        kinds = joined(labels, own), joined(outliers, distances(outliers))
        trees = fit_trees(*kinds, N_TREES, LEAF_AND_DEPTH, rng)
        return cls(distances, own[:, [0, 2]].max(0), trees)

    def log_odds(self, rows: Rows) -> Rows:
        """Of an outlier against a label."""
        found = self.distances(rows)
        return self.of_distances(found, self.trees.predict(joined(rows, found)))

    def of_distances(self, found: Rows, shares: Rows) -> Rows:
        """The same from the distances, and from the trees' probability of an outlier."""
        beyond = np.maximum((found[:, [0, 2]] - self.furthest).max(1), 0.0)
        least = np.minimum(CAP * (2 * beyond / FAR - 1), CAP)
        odds: Rows = np.maximum(log_odds_of(shares), least) + beyond
        return odds

    def pool_log_odds(self, rows: Rows) -> Rows:
        """Of a pool row against a label, before calibration: a line for each kind of trees."""
        assert self.pool_trees is not None
        odds = [tree_log_odds(self.pool_trees, rows)]
        if self.pool_boosting is not None:
            odds.append(np.clip(self.pool_boosting.predict(rows), -CAP, CAP))
        return np.stack(odds)


def fit_trees(
    known: Rows,
    unknown: Rows,
    n_trees: int,
    leaf_and_depth: tuple[int, int],
    rng: np.random.Generator,
) -> Trees:
    """Trees that tell two kinds of rows apart, which weigh the same.

    They are those of an `ExtraTreesClassifier`, one by one: a forest empties the filters of
    warnings for a moment at each tree, also for other threads.
    """
    rows = np.concatenate([known, unknown]).astype(np.float32)
    kind = np.r_[np.zeros(len(known)), np.ones(len(unknown))]
    weights = compute_sample_weight("balanced", kind)
    seeds = np.random.RandomState(int(rng.integers(2**31)))
    leaf, depth = leaf_and_depth
    trees = [
        ExtraTreeClassifier(
            min_samples_leaf=leaf, max_depth=depth, random_state=seeds.randint(MAX_SEED)
        )
        for _ in range(n_trees)
    ]
    return Trees.of_classes(
        [tree.fit(rows, kind, sample_weight=weights, check_input=False) for tree in trees]
    )


def fit_boosting(known: Rows, unknown: Rows) -> Trees:
    """Boosted trees that tell two kinds of rows apart, which weigh the same: their log odds."""
    n = len(known) + len(unknown)
    leaves, trees, rate, shrinkage = BOOSTING if n < FEW_ROWS else MORE_BOOSTING
    model = HistGradientBoostingClassifier(
        max_leaf_nodes=leaves,
        max_iter=trees,
        learning_rate=rate,
        l2_regularization=shrinkage,
        min_samples_leaf=BOOSTING_LEAF,
        max_bins=BOOSTING_BINS,
        class_weight="balanced",
        early_stopping=False,
        random_state=0,
    )
    kind = np.r_[np.zeros(len(known)), np.ones(len(unknown))]
    with few_threads(n):
        return Trees.of([model.fit(np.concatenate([known, unknown]), kind)])


def joined(rows: Rows, distances: Rows) -> Rows:
    """Columns, with their far ends drawn in, beside the distances."""
    return np.concatenate([np.arcsinh(rows), distances], axis=1)


def tree_log_odds(trees: Trees, inputs: Rows) -> Rows:
    return log_odds_of(trees.predict(inputs))


def log_odds_of(shares: Rows) -> Rows:
    odds: Rows = logit(np.clip(shares, CLIP, 1 - CLIP))
    return odds


@dataclass(frozen=True)
class FittedLabels:
    """The order in which labels were taken, cross-fitted log odds of the first of them, and how
    many trees have seen."""

    order: NDArray[np.int64]
    log_odds: Rows
    n_seen: int


@dataclass(frozen=True)
class Detector:
    """Log odds and probabilities that rows are unlike the labeled ones.

    part: the part of each label, of those that are stored. reference: log odds of these labels,
    sorted. share: the assumed share of outliers among new rows; that of the pool, where it holds
    some. fitted_labels: what a fit remembers of its labels, which is not stored.
    """

    shift: Rows
    scale: Rows
    labels: Rows
    part: NDArray[np.int64]
    members: tuple[Member, ...]
    reference: Rows
    share: float
    pool: PoolOdds | None = None
    fitted_labels: "FittedLabels | None" = None

    @classmethod
    def fit(cls, rows: Rows, pool: Rows | None, seed: int) -> "Detector":
        """From labeled rows, at least eight of them, and unlabeled ones."""
        rng = np.random.default_rng(seed)
        shift, std = rows.mean(0), rows.std(0)
        scale = np.where(std > 0, std, 1.0)
        order = rng.permutation(len(rows))
        every = (rows[order] - shift) / scale
        labels = every[:MAX_LABELS]
        part = np.arange(len(labels)) % PARTS
        nearness = Nearness.of(labels, rng.spawn(1)[0])
        members = tuple(Member.fit(labels[~np.isin(part, pair)], nearness, rng) for pair in PAIRS)
        scores = unseen_scores([member.log_odds for member in members], labels, part)
        reference = like_new_rows(scores.mean(0), scores)
        found = cls(shift, scale, labels, part, members, reference, share=0.0)
        new = None if pool is None else unlike_labels(rows, pool, MAX_POOL, rng)
        if new is not None:
            new = nearness.without_near((new - shift) / scale)
        if new is not None and len(new) >= MIN_ROWS:
            found = found._with_pool(every[:MAX_POOL], scores, new, rng)
        share = assumed_share(found.reference, ASSUMED_SHARE, MAX_MEAN_DOUBT)
        weights = found.atypical(found.reference)
        if found.pool is not None and new is not None and pool is not None:
            in_pool = found.pool.unlike_share * len(new) / min(len(pool), MAX_POOL)
            largest = min(max(in_pool, 1e-6), MAX_POOL_SHARE)
            share = max(share, assumed_share(found.reference, largest, MAX_POOL_DOUBT, weights))
        n_seen = len(labels) if found.pool is None else len(every[:MAX_POOL])
        fitted_labels = FittedLabels(order, found.reference, n_seen)
        reference = np.sort(found.reference)
        return replace(found, reference=reference, share=share, fitted_labels=fitted_labels)

    def label_log_odds(self, rows: Rows, numbers: NDArray[np.int64]) -> Rows:
        """`log_odds` of the labels `numbers` among the fit's `rows`, by trees that have not seen
        them."""
        assert self.fitted_labels is not None
        order, odds, n_seen = astuple(self.fitted_labels)
        place = np.argsort(order)[numbers]
        found = np.zeros(len(numbers))
        stored = place < len(odds)
        found[stored] = odds[place[stored]]
        scaled = self._scaled(rows[numbers])
        seen, new = ~stored & (place < n_seen), place >= n_seen
        found[seen] = self._log_odds(scaled[seen], place[seen] % PARTS)
        found[new] = self._log_odds(scaled[new])
        return found

    def _with_pool(
        self, labels: Rows, outlier: Rows, pool: Rows, rng: np.random.Generator
    ) -> "Detector":
        """Second trees for the pool, where unseen rows confirm that the score gains by them.

        outlier: log odds ``(4, n)`` of the stored labels without a pool, by unseen members.
        """
        parts = np.arange(len(labels)) % PARTS, np.arange(len(pool)) % PARTS
        members = []
        for member, pair in zip(self.members, PAIRS, strict=True):
            seen = labels[~np.isin(parts[0], pair)], pool[~np.isin(parts[1], pair)]
            trees = fit_trees(*seen, POOL_TREES, POOL_LEAF_AND_DEPTH, rng)
            boosting = fit_boosting(*seen)
            members.append(replace(member, pool_trees=trees, pool_boosting=boosting))
        scores = [member.pool_log_odds for member in members]
        of_labels = unseen_scores(scores, labels[: len(self.labels)], self.part)
        own = Odds(outlier.mean(0), of_labels.mean(0))
        some, part = pool[:MAX_LABELS], parts[1][:MAX_LABELS]
        others = [member.log_odds for member in self.members], scores
        odds = PoolOdds.fit(
            own, Odds(*(unseen_scores(each, some, part).mean(0) for each in others))
        )
        if odds is None:
            return self
        reference = like_new_rows(odds(own), odds.add(outlier, of_labels))
        return replace(self, members=tuple(members), reference=reference, pool=odds)

    def log_odds(self, rows: Rows) -> Rows:
        """log P(outlier | x) / P(labeled | x) for as many outliers as labels."""
        return self._log_odds(self._scaled(rows))

    def _scaled(self, rows: Rows) -> Rows:
        """Rows in the detector's units; what is a label's value but for rounding becomes that."""
        scaled: Rows = (rows - self.shift) / self.scale
        for column, values in self._repeated_values:
            cells = scaled[:, column]
            place = np.minimum(np.searchsorted(values, cells - SAME), len(values) - 1)
            scaled[:, column] = np.where(
                np.abs(values[place] - cells) <= SAME, values[place], cells
            )
        return scaled

    @cached_property
    def _repeated_values(self) -> list[tuple[int, Rows]]:
        """Of the columns in which labels share values: these values, sorted."""
        found = [(number, np.unique(column)) for number, column in enumerate(self.labels.T)]
        return [(number, values) for number, values in found if len(values) < len(self.labels)]

    def _log_odds(self, scaled: Rows, part: NDArray[np.int64] | None = None) -> Rows:
        """Of scaled rows; with their `part`, pool trees that have seen them do not count."""
        odds = self._outlier_log_odds(scaled)
        if self.pool is None:
            return odds
        scores = [member.pool_log_odds for member in self.members]
        if part is None:
            return self.pool.add(odds, np.mean([score(scaled) for score in scores], axis=0))
        return self.pool.add(odds, unseen_scores(scores, scaled, part).mean(0))

    def _outlier_log_odds(self, scaled: Rows) -> Rows:
        """The mean over members."""
        distances = self._joint_distances(scaled)
        if len(scaled) <= MAX_FEW_ROWS:
            return self._log_odds_of_few(scaled, distances)
        inputs = joined(scaled, distances[0])
        total = np.zeros(len(scaled))
        for member, found in zip(self.members, distances, strict=True):
            inputs[:, -N_DISTANCES:] = found
            total += member.of_distances(found, member.trees.predict(inputs))
        return total / len(self.members)

    def _log_odds_of_few(self, scaled: Rows, distances: Rows) -> Rows:
        """The same, with the trees of all members in one call."""
        counts = [len(member.trees.value) for member in self.members]
        columns = np.broadcast_to(np.arcsinh(scaled), (len(distances), *scaled.shape))
        inputs = np.concatenate([columns, distances], axis=2).swapaxes(0, 1)
        values = self._trees.few(np.repeat(inputs, counts, axis=1).reshape(-1, inputs.shape[2]))
        starts = np.cumsum([0, *counts[:-1]])
        shares = np.add.reduceat(values.reshape(len(scaled), sum(counts)), starts, axis=1)
        each = [
            member.of_distances(distances[i], shares[:, i] + member.trees.baseline)
            for i, member in enumerate(self.members)
        ]
        mean: Rows = np.mean(each, axis=0)
        return mean

    @cached_property
    def _joint_distances(self) -> JointDistances:
        distances = [member.distances for member in self.members]
        return JointDistances.of(self.labels, self.part, PAIRS, distances)

    @cached_property
    def _trees(self) -> Trees:
        """Those of all members, one after the other."""
        return Trees.side_by_side([member.trees for member in self.members])

    def __getstate__(self) -> dict[str, Any]:
        """Without what is computed again where it is needed."""
        state = dict(self.__dict__)
        for name in ("_joint_distances", "_trees", "_gate_ends", "_repeated_values"):
            state.pop(name, None)
        return state

    def probability(self, log_odds: Rows) -> Rows:
        """P(outlier | x) for the assumed share of outliers."""
        moved: Rows = expit(log_odds + logit(self.share))
        return moved

    def doubt(self, log_odds: Rows) -> Rows:
        """`probability`, but 0 where a row is as typical as most labels: for the gate."""
        doubts: Rows = self.atypical(log_odds) * self.probability(log_odds)
        return doubts

    def atypical(self, log_odds: Rows) -> Rows:
        """0 where log odds are as low as those of most labels, 1 from the highest ones on.

        With a pool the trees have seen real rows of both kinds, and the gate begins earlier.
        """
        low, high = self._gate_ends
        beyond: Rows = np.clip((log_odds - low) / max(high - low, 1e-9), 0.0, 1.0)
        return beyond

    @cached_property
    def _gate_ends(self) -> tuple[float, float]:
        ends = TYPICAL if self.pool is None else POOL_TYPICAL
        low, high = np.quantile(self.reference, ends)
        return float(low), float(high)

    def arrays(self) -> dict[str, Array]:
        """Everything, by name; distances are computed again from the labels."""
        pool = (0.0,) * N_OLD_NUMBERS if self.pool is None else self.pool.stored()
        arrays: dict[str, Array] = {
            "scale": np.stack([self.shift, self.scale]),
            "labels": self.labels,
            "part": self.part,
            "reference": self.reference,
            "furthest": np.stack([member.furthest for member in self.members]),
            "numbers": np.array([self.share, float(self.pool is not None), *pool]),
        }
        for number, member in enumerate(self.members):
            kinds = {
                "trees": member.trees,
                "pool": member.pool_trees,
                "boosting": member.pool_boosting,
            }
            for kind, trees in kinds.items():
                stored = {} if trees is None else trees.arrays()
                arrays |= {f"{number}/{kind}/{name}": array for name, array in stored.items()}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], width: int) -> "Detector":
        """The detector of a table with `width` columns whose `arrays()` these are."""
        rule = "a detector must have finite numbers for each label and column"
        labels = finite_array(rule, arrays["labels"], (None, width))
        shift, scale = finite_array(rule, arrays["scale"], (2, width))
        reference = finite_array(rule, arrays["reference"], (None,))
        furthest = finite_array(rule, arrays["furthest"], (len(PAIRS), 2))
        share, has_pool, *odds = map(float, finite_array(rule, arrays["numbers"], (None,)))
        has_boosting = bool(has_pool) and len(odds) == N_OLD_NUMBERS + 1
        check(has_boosting or len(odds) == N_OLD_NUMBERS, rule, len(odds))
        part = arrays["part"]
        check(bool((scale > 0).all()) and 0 < share < 1 and len(reference) > 1, rule, "others")
        check(bool((np.diff(reference) >= 0).all()), rule, "another order")
        whole = part.shape == (len(labels),) and len(np.unique(part[np.isin(part, range(PARTS))]))
        check(whole == PARTS, "labels must have all parts", part.shape)
        members = tuple(
            Member(
                Distances.of(labels[~np.isin(part, pair)]),
                furthest[number],
                _trees(arrays, f"{number}/trees/", width + N_DISTANCES),
                _trees(arrays, f"{number}/pool/", width) if has_pool else None,
                _trees(arrays, f"{number}/boosting/", width) if has_boosting else None,
            )
            for number, pair in enumerate(PAIRS)
        )
        pool = PoolOdds.restored(odds) if has_pool else None
        return cls(shift, scale, labels, part, members, reference, share, pool)


def _trees(arrays: Mapping[str, Array], prefix: str, width: int) -> Trees:
    stored = {name: arrays[f"{prefix}{name}"] for name in ("links", "numbers", "baseline")}
    return Trees.from_arrays(stored, width)


def unseen_scores(
    scores: Sequence[Callable[[Rows], Rows]], rows: Rows, part: NDArray[np.int64]
) -> Rows:
    """The scores ``(4, …, n)`` of each row by the members that have not seen its part."""
    parts = []
    for own in range(PARTS):
        unseen = [score for score, pair in zip(scores, PAIRS, strict=True) if own in pair]
        parts.append(np.stack([score(rows[part == own]) for score in unseen]))
    order = np.concatenate([np.flatnonzero(part == own) for own in range(PARTS)])
    found: Rows = np.concatenate(parts, axis=-1)[..., np.argsort(order)]
    return found


def like_new_rows(score: Rows, of_members: Rows) -> Rows:
    """Scores ``(n,)`` of labels, drawn in until they vary as little as those of new rows.

    The mean of four members is that of ten and noise of variance w = λ E Var[members]. Noise moves
    scores from where they are frequent: s + w (log p)'(s)/2 has, to first order, the distribution
    before it. p is taken as the logistic density with the scores' mean and variance,
    (log p)'(s) = −tanh((s − m)/2h)/h: as of a normal density near m, as of exponential tails far
    from it. The order of scores stays.
    """
    variance = float(score.var())
    if variance == 0:
        return score
    noise = min(MEMBER_NOISE * float(of_members.var(0, ddof=1).mean()), MAX_NOISE * variance)
    scale = math.sqrt(3 * variance) / math.pi
    drawn: Rows = score - noise / 2 * np.tanh((score - score.mean()) / (2 * scale)) / scale
    return drawn


def different_rows(rows: Rows) -> NDArray[np.int64]:
    """Each row once where nearly all have copies: repeated measurements, whose rows are new each.

    Otherwise all of them: copies say how often such a row comes, and new rows may be copies too.
    """
    _, first, counts = np.unique(rows, axis=0, return_index=True, return_counts=True)
    repeats = np.sum(counts == 1) < MIN_SINGLE_SHARE * len(rows)
    return first if repeats else np.arange(len(rows))


def assumed_share(
    reference: Rows, largest: float, max_doubt: float, weights: Rows | None = None
) -> float:
    """`largest`, or less where labels would be unknown with a higher mean probability."""
    shares = largest * 0.7 ** np.arange(40)
    each = expit(reference[:, None] + logit(shares))
    doubts = (each if weights is None else each * weights[:, None]).mean(0)
    enough = np.flatnonzero(doubts <= max_doubt)
    return float(shares[enough[0]] if len(enough) else shares[-1])
