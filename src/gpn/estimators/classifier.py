"""Classifiers: classes of any kind, numbers or words."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from gpn import metrics
from gpn.core.posterior.base import Posterior, sample_covariance_root
from gpn.estimators import active_learning as acquisition
from gpn.estimators.base import (
    DRAWS,
    Array,
    _Named,
    as_array,
    as_seed,
    most_unknown,
    to_numpy,
)
from gpn.estimators.calibration import CalibratedSets
from gpn.estimators.chunks import in_chunks
from gpn.estimators.gpn import _GPN
from gpn.training.checkpoint import CheckpointLike

CHUNK_ROWS = 10_000

MAX_CANDIDATES = 3000


class Classifier(ClassifierMixin, CalibratedSets):
    """Classes of any kind: numbers, words."""

    def _learn(
        self, X: Any, y: Any, X_unlabeled: Any, sample_weight: Any, checkpoint: CheckpointLike
    ) -> None:
        X, y = validate_data(self, as_array(X), as_array(y), dtype=np.float64, allow_nd=True)
        _check_classes(y)
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y must hold two classes at least, got one class only: {self.classes_[0]!r}; "
                "add labels of another class."
            )
        X, numbers = self._weighted(X, numbers.astype(np.int64), sample_weight)
        self._fit(X, numbers, X_unlabeled, len(self.classes_), checkpoint=checkpoint)

    @in_chunks
    def predict(self, X: Any) -> Array:
        """The most probable class."""
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]

    @in_chunks
    def predict_proba(self, X: Any) -> Array:
        """Class probabilities, averaged over the posterior."""
        return self._probabilities(self._inputs(X))

    @in_chunks
    def predict_log_proba(self, X: Any) -> Array:
        """The logarithm of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def sample_proba(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Class probabilities of each function: ``(n, classes, s)``."""
        return self._sampled(self._draws(self._inputs(X), n_samples, as_seed(random_state)))

    def _sampled(self, draws: torch.Tensor) -> Array:
        return np.moveaxis(to_numpy(draws.softmax(-1)), 0, -1)

    @in_chunks
    def entropy(self, X: Any) -> Array:
        """The entropy of `predict_proba`, in nats."""
        x = self._inputs(X)
        return to_numpy(self.posterior_.entropy(x).double())

    def suggest(self, X_pool: Any, n: int = 1) -> NDArray[np.int64]:
        """The numbers of the `n` rows whose classes would leave the least variance in the pool.

        The variance is that of class probabilities; a class is one draw of them.
        """
        x = self._inputs(X_pool)
        some = most_unknown(self.posterior_.mutual_information(x).cpu(), max(MAX_CANDIDATES, n))
        p = self._draws(x[some], DRAWS, 0).softmax(-1)
        noise = float((p.mean(0) * (1 - p.mean(0))).mean())
        picked = acquisition.reduce_variance(sample_covariance_root(p), n, noise)
        return to_numpy(some[picked])

    def _scores(self, x: torch.Tensor, posterior: Posterior | None = None) -> Array:
        under = posterior or self.posterior_
        parts = [under.sample(part, DRAWS, rng=1).cpu().double() for part in x.split(CHUNK_ROWS)]
        return to_numpy(torch.cat([metrics.probability_variance(part) for part in parts]))


def _check_classes(y: Array) -> None:
    """Raise where a row has no class, or where classes cannot be put in order."""
    missing = [i for i, name in enumerate(y.tolist()) if name is None]
    if missing:
        raise ValueError(
            f"y must have a class for every row, got None in {len(missing)} of {len(y)} (first: "
            f"row {missing[0]}); move rows without one to X_unlabeled."
        )
    texts = {isinstance(name, str) for name in y.tolist()}
    if len(texts) > 1:
        raise TypeError(
            "classes must be all texts or all numbers, got both; try y.astype(str) before the fit."
        )


class GPNClassifier(_GPN, Classifier):
    """A Generative Posterior Network for classes; the options are those of `GPNRegressor`."""


class PosteriorClassifier(_Named, Classifier):
    """Any method of `gpn.methods` for classes."""
