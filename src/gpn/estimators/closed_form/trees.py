"""Trees as plain arrays: what scikit-learn fitted, without its objects.

A model file holds numbers only, so that the trees of a mean, of a noise or of a detector are stored
as numbers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.tree import DecisionTreeRegressor, ExtraTreeClassifier

Array = NDArray[Any]
Boosting: TypeAlias = HistGradientBoostingRegressor | HistGradientBoostingClassifier

CHUNK_NUMBERS = 2**21  # rows times trees


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
        size = max(part.value.shape[1] for part in parts)

        def together(name: str) -> Array:
            arrays = [getattr(part, name) for part in parts]
            return np.concatenate([np.pad(a, ((0, 0), (0, size - a.shape[1]))) for a in arrays])

        return cls(
            together("feature"),
            together("threshold"),
            together("left"),
            together("right"),
            together("value") / len(parts),
            float(np.mean([part.baseline for part in parts])),
            max(part.depth for part in parts),
        )

    def predict(self, X: Array) -> NDArray[np.float64]:
        """The sum at each row."""
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
