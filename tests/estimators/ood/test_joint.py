"""The scores of all members in one pass are the mean of what each member says alone."""

import pickle

import numpy as np
import pytest

from gpn.estimators.ood.detector import Detector

RNG = np.random.default_rng(0)


def labels(kind: str) -> np.ndarray:
    if kind == "few":
        return RNG.normal(size=(9, 3))
    if kind == "ties":
        return RNG.integers(0, 4, size=(80, 3)).astype(float)
    return RNG.normal(size=(120, 4))


@pytest.fixture(scope="module", params=["few", "ties", "many", "pool"])
def fitted(request: pytest.FixtureRequest) -> tuple[Detector, np.ndarray]:
    known = labels(request.param)
    pool = None
    if request.param == "pool":
        pool = RNG.normal(size=(400, 4))
        pool[:, 3] = pool[:, 0]  # rows like labels but for this
    detector = Detector.fit(known, pool, 0)
    assert (detector.pool is not None) == (request.param == "pool")
    width = known.shape[1]
    rows = [known, RNG.normal(size=(100, width)), 50 * RNG.normal(size=(20, width))]
    return detector, (np.concatenate(rows) - detector.shift) / detector.scale


def test_joint_distances_are_those_of_each_member(fitted: tuple[Detector, np.ndarray]) -> None:
    detector, rows = fitted
    found = detector._joint_distances(rows)
    each = np.stack([member.distances(rows) for member in detector.members])
    zero = each < -10  # the logarithm of a distance of 0 is that of its rounding error
    np.testing.assert_allclose(found[~zero], each[~zero], rtol=1e-7, atol=1e-7)
    assert (found[zero] < -10).all()


def test_ranks_of_cells_that_equal_labels() -> None:
    """The rank of a tie counts all labels at or below it, and all at or above it."""
    known = np.array([[0.0], [1.0], [1.0], [1.0], [2.0], [3.0], [3.0], [5.0], [5.0], [8.0]] * 2)
    detector = Detector.fit(known, None, 0)
    cells = np.linspace(-1, 9, 101)[:, None]
    scaled = np.concatenate([(cells - detector.shift) / detector.scale, detector.labels])
    found = detector._joint_distances(scaled)[:, :, 3]
    each = np.stack([member.distances(scaled)[:, 3] for member in detector.members])
    np.testing.assert_array_equal(found, each)


def test_log_odds_are_the_mean_of_the_members(fitted: tuple[Detector, np.ndarray]) -> None:
    detector, rows = fitted
    mean = np.mean([member.log_odds(rows) for member in detector.members], axis=0)
    np.testing.assert_allclose(detector._outlier_log_odds(rows), mean, rtol=1e-9, atol=1e-9)
    few = [detector._outlier_log_odds(rows[i : i + 3]) for i in range(0, len(rows), 3)]
    np.testing.assert_allclose(np.concatenate(few), mean, rtol=1e-9, atol=1e-9)


def test_what_is_computed_for_speed_is_not_pickled(fitted: tuple[Detector, np.ndarray]) -> None:
    detector, rows = fitted
    fresh = pickle.loads(pickle.dumps(detector))
    found = detector.log_odds(rows)
    assert "_joint_distances" in vars(detector)
    assert "_joint_distances" not in vars(pickle.loads(pickle.dumps(detector)))
    np.testing.assert_array_equal(fresh.log_odds(rows), found)
