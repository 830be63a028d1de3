"""Trees as plain arrays: what scikit-learn fitted, without its objects.

A model file holds numbers only, so that the trees of a mean, of a noise or of a detector are stored
as numbers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.tree import DecisionTreeRegressor, ExtraTreeClassifier

try:  # scikit-learn's compiled walk through one tree; numpy walks through all where it is missing
    from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE
    from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
except ImportError:
    PREDICTOR_RECORD_DTYPE = TreePredictor = None

Array = NDArray[Any]
Boosting: TypeAlias = HistGradientBoostingRegressor | HistGradientBoostingClassifier

CHUNK_NUMBERS = 2**21  # rows times trees
MAX_FEW_ROWS = 40  # beyond, a call for each tree costs less than a copy of each row for each tree
NO_CATEGORIES = np.zeros((0, 8), np.uint32), np.zeros(0, np.uint32)


@dataclass(frozen=True)
class Trees:
    """The mean of several ensembles of trees: baseline + Σ_t value of the leaf, over n_models.

    Arrays have a line per tree and a column per node; a leaf's children are itself.
    """

    feature: NDArray[np.int32]
    threshold: NDArray[np.float64]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: NDArray[np.float64]
    baseline: float
    depth: int

    @classmethod
    def of(cls, models: Sequence[Boosting], output: int = 0) -> "Trees":
        """The mean of fitted models, before any link function; `output` of several classes."""
        trees = [tree[output].nodes for model in models for tree in model._predictors]
        size = max(map(len, trees))
        table = np.zeros((len(trees), size), trees[0].dtype)
        for line, nodes in zip(table, trees, strict=True):
            line[: len(nodes)] = nodes
        is_leaf, own = table["is_leaf"] != 0, np.arange(size)
        baseline = float(
            np.mean([np.ravel(model._baseline_prediction)[output] for model in models])
        )
        return cls(
            np.where(is_leaf, 0, table["feature_idx"]).astype(np.int32),
            table["num_threshold"].astype(np.float64),
            np.where(is_leaf, own, table["left"]).astype(np.int32),
            np.where(is_leaf, own, table["right"]).astype(np.int32),
            np.where(is_leaf, table["value"], 0.0) / len(models),
            baseline,
            int(table["depth"].max()),
        )

    @classmethod
    def of_classes(cls, trees: Sequence[ExtraTreeClassifier]) -> "Trees":
        """The mean probability of the second class."""

        def share(value: Array) -> Array:
            counts = value[:, 0]
            part: Array = counts[:, 1] / np.maximum(counts.sum(1), 1e-300)
            return part

        return cls._of_leaves(trees, share)

    @classmethod
    def of_regression(cls, trees: Sequence[DecisionTreeRegressor]) -> "Trees":
        """The mean of all trees."""
        return cls._of_leaves(trees, lambda value: value[:, 0, 0])

    @classmethod
    def _of_leaves(cls, trees: Sequence[Any], leaf_value: Callable[[Array], Array]) -> "Trees":
        """The mean over trees of a number of each leaf."""
        fitted = [tree.tree_ for tree in trees]
        shape = len(fitted), max(tree.node_count for tree in fitted)
        links = np.tile(np.arange(shape[1], dtype=np.int32), (3, shape[0], 1))
        links[0] = 0
        numbers = np.zeros((2, *shape))
        for line, tree in enumerate(fitted):
            n, inner = tree.node_count, tree.children_left >= 0
            links[0, line, :n] = np.where(inner, tree.feature, 0)
            links[1, line, :n] = np.where(inner, tree.children_left, np.arange(n))
            links[2, line, :n] = np.where(inner, tree.children_right, np.arange(n))
            numbers[0, line, :n] = np.where(inner, tree.threshold, 0.0)
            numbers[1, line, :n] = np.where(inner, 0.0, leaf_value(tree.value)) / shape[0]
        depth = max(tree.max_depth for tree in fitted)
        return cls(links[0], numbers[0], links[1], links[2], numbers[1], 0.0, int(depth))

    @classmethod
    def mean(cls, parts: Sequence["Trees"]) -> "Trees":
        """The mean of several."""
        every = cls.side_by_side(parts)
        mean = float(np.mean([part.baseline for part in parts]))
        return replace(every, value=every.value / len(parts), baseline=mean)

    @classmethod
    def side_by_side(cls, parts: Sequence["Trees"]) -> "Trees":
        """The trees of several, one after the other: their sum, without baselines."""
        size = max(part.value.shape[1] for part in parts)

        def together(name: str) -> Array:
            arrays = [getattr(part, name) for part in parts]
            return np.concatenate([np.pad(a, ((0, 0), (0, size - a.shape[1]))) for a in arrays])

        return cls(
            together("feature"),
            together("threshold"),
            together("left"),
            together("right"),
            together("value"),
            0.0,
            max(part.depth for part in parts),
        )

    def predict(self, X: Array) -> NDArray[np.float64]:
        """The sum at each row."""
        if TreePredictor is None:
            return self._walked(X)
        total = np.full(len(X), self.baseline)
        if len(X) <= MAX_FEW_ROWS:
            values = self.few(np.repeat(X, len(self.value), axis=0))
            return total + values.reshape(len(X), len(self.value)).sum(1)
        rows = np.ascontiguousarray(X, np.float64)
        for tree in self._compiled:
            total += tree.predict(rows, *NO_CATEGORIES, 1)
        return total

    def few(self, X: Array) -> NDArray[np.float64]:
        """The value of tree t at row t, t + T, t + 2T, …, of T trees: one call for all of them."""
        number = np.arange(len(X), dtype=np.float64) % len(self.value)
        rows = np.concatenate([number[:, None], X], axis=1)
        found: NDArray[np.float64] = self._as_one_tree.predict(rows, *NO_CATEGORIES, 1)
        return found

    @cached_property
    def _compiled(self) -> list[Any]:
        """scikit-learn's form of each tree."""
        return [_compiled(self._nodes(number)) for number in range(len(self.value))]

    @cached_property
    def _as_one_tree(self) -> Any:
        """All trees below one that sends a row to the tree whose number is its first column."""
        parts, starts, end = [_fork(len(self.value))], [], len(self.value) - 1
        for number in range(len(self.value)):
            nodes = self._nodes(number)
            nodes["feature_idx"] += 1
            for side in ("left", "right"):
                nodes[side] += end
            starts.append(end)
            parts.append(nodes)
            end += len(nodes)
        fork = parts[0]
        for side in ("left", "right"):
            to_tree = fork[side] >= len(fork)
            fork[side][to_tree] = np.array(starts)[fork[side][to_tree] - len(fork)]
        return _compiled(np.concatenate(parts))

    def _nodes(self, number: int) -> Array:
        """A tree as scikit-learn's records. A link that does not lead on ends in its node."""
        size = int(max(self.left[number].max(), self.right[number].max())) + 1
        own = np.arange(size)
        nodes = np.zeros(size, PREDICTOR_RECORD_DTYPE)
        nodes["value"], nodes["feature_idx"] = (
            self.value[number, :size],
            self.feature[number, :size],
        )
        nodes["num_threshold"] = self.threshold[number, :size]
        nodes["left"], nodes["right"] = self.left[number, :size], self.right[number, :size]
        nodes["is_leaf"] = (nodes["left"] <= own) | (nodes["right"] <= own)
        return nodes

    def __getstate__(self) -> dict[str, Any]:
        """Without what is computed again where it is needed."""
        state = dict(self.__dict__)
        for name in ("_compiled", "_as_one_tree"):
            state.pop(name, None)
        return state

    def _walked(self, X: Array) -> NDArray[np.float64]:
        size = max(1, CHUNK_NUMBERS // max(1, len(self.value)))
        chunks = [self._predict(X[i : i + size]) for i in range(0, len(X), size)]
        return np.concatenate(chunks) if chunks else np.zeros(0)

    def _predict(self, X: Array) -> NDArray[np.float64]:
        n_trees, size = self.value.shape
        first = np.arange(n_trees) * size
        node = np.tile(first, (len(X), 1))
        rows = np.arange(len(X))[:, None]
        feature, threshold = self.feature.ravel(), self.threshold.ravel()
        left, right = self.left.ravel(), self.right.ravel()
        for _ in range(self.depth):
            goes_left = X[rows, feature[node]] <= threshold[node]
            node = first + np.where(goes_left, left[node], right[node])
        return self.baseline + self.value.ravel()[node].sum(1)

    def arrays(self) -> dict[str, Array]:
        """Everything, by name."""
        return {
            "links": np.stack([self.feature, self.left, self.right]),
            "numbers": np.stack([self.threshold, self.value]),
            "baseline": np.array([self.baseline, float(self.depth)]),
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array], n_features: int) -> "Trees":
        """The trees whose `arrays()` these are; links that lead elsewhere are refused."""
        links, numbers, baseline = arrays["links"], arrays["numbers"], arrays["baseline"]
        size = links.shape[2]
        right = (
            links.dtype == np.int32
            and links.ndim == 3
            and len(links) == 3
            and numbers.shape == (2, *links.shape[1:])
            and baseline.shape == (2,)
            and bool(np.isfinite(numbers[1]).all() and np.isfinite(baseline).all())
            and bool((links >= 0).all() and (links[1:] < size).all())
            and bool((links[0] < n_features).all())
            and 0 <= baseline[1] <= size
        )
        if not right:
            raise ValueError("trees must have links to their own nodes and finite values")
        feature, left, others = links
        return cls(
            feature, numbers[0], left, others, numbers[1], float(baseline[0]), int(baseline[1])
        )


def _compiled(nodes: Array) -> Any:
    return TreePredictor(nodes, NO_CATEGORIES[0], NO_CATEGORIES[0])


def _fork(count: int) -> Array:
    """A tree by column 0, whose leaf for the value t is the node count − 1 + t."""
    nodes = np.zeros(count - 1, PREDICTOR_RECORD_DTYPE)
    open_ranges, free = [(0, count, 0)] if count > 1 else [], 1
    while open_ranges:
        first, last, place = open_ranges.pop()
        middle = (first + last) // 2
        nodes["num_threshold"][place] = middle - 0.5
        for side, low, high in (("left", first, middle), ("right", middle, last)):
            if high - low == 1:
                nodes[side][place] = count - 1 + low
            else:
                nodes[side][place] = free
                open_ranges.append((low, high, free))
                free += 1
    return nodes
