"""Which columns share a scale: those that say one category together."""

import numpy as np
from numpy.typing import NDArray

Groups = tuple[int, ...]  # a number for each column; columns of one number share a scale


def category_groups(X: NDArray[np.float64]) -> Groups:
    """Adjacent columns of 0 and 1 of which each row has one share a number; others have their own.

    These are the indicators of a category's values, whoever made them.
    """
    is_indicator = ((X == 0) | (X == 1)).all(0)
    groups: list[int] = []
    while (first := len(groups)) < X.shape[1]:
        width = _category_width(X, is_indicator, first)
        groups += [groups[-1] + 1 if groups else 0] * width
    return tuple(groups)


def _category_width(X: NDArray[np.float64], is_indicator: NDArray[np.bool_], first: int) -> int:
    """How many columns from `first` on are the indicators of one category; else 1."""
    total = np.zeros(len(X))
    for column in range(first, X.shape[1]):
        total = total + X[:, column]
        if not is_indicator[column] or (total > 1).any():
            return 1
        if (total == 1).all():
            return column - first + 1
    return 1


def one_group(groups: Groups) -> Groups:
    """All columns share a scale."""
    return (0,) * len(groups)


def with_own(groups: Groups, n_columns: int) -> Groups:
    """Further columns, each with a scale of its own."""
    first = max(groups) + 1
    return (*groups, *range(first, first + n_columns))
