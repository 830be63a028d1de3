"""The adapter passes skpro's conformance suite, and says what the estimator says."""

import numpy as np
import pandas as pd
import pytest

import gpn

pytest.importorskip("skpro", reason="needs pip install 'gpn[skpro]'")

from skpro.utils import check_estimator

from gpn.skpro import ProbabilisticGPN, RowDistribution


def table(n: int = 60) -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(n, 2)), columns=["a", "b"])
    y = pd.DataFrame({"target": X["a"] - 0.5 * X["b"] ** 2 + 0.1 * rng.normal(size=n)})
    return X, y


@pytest.fixture(scope="module")
def fitted() -> ProbabilisticGPN:
    return ProbabilisticGPN().fit(*table())


@pytest.mark.filterwarnings("ignore")  # of skpro and its scenarios of few rows
@pytest.mark.parametrize("kind", [ProbabilisticGPN, RowDistribution])
def test_the_conformance_suite_passes(kind: type) -> None:
    results = check_estimator(kind, raise_exceptions=False, verbose=False)
    assert len(results) > 20
    failed = {name: found for name, found in results.items() if str(found) != "PASSED"}
    assert not failed


def test_intervals_quantiles_and_moments_are_the_estimators(fitted: ProbabilisticGPN) -> None:
    X, y = table()
    model = gpn.GPNRegressor(random_state=0).fit(X, y["target"])
    new = table(20)[0] * 1.5
    said = model.predict_distribution(new)
    np.testing.assert_allclose(fitted.predict(new)["target"], model.predict(new))
    np.testing.assert_allclose(fitted.predict_var(new)["target"], said.std() ** 2)
    interval = fitted.predict_interval(new, coverage=[0.9])["target"][0.9]
    np.testing.assert_allclose(interval["lower"], said.ppf(0.05), atol=1e-9)
    np.testing.assert_allclose(interval["upper"], said.ppf(0.95), atol=1e-9)
    quantiles = fitted.predict_quantiles(new, alpha=[0.3])["target"][0.3]
    np.testing.assert_allclose(quantiles, model.predict_quantiles(new, 0.3), atol=1e-9)


def test_distributions_are_the_estimators_at_any_label(fitted: ProbabilisticGPN) -> None:
    X, y = table()
    found, said = fitted.predict_proba(X), fitted.estimator_.predict_distribution(X)
    labels = y["target"].to_numpy()
    np.testing.assert_allclose(found.cdf(y)["target"], said.cdf(labels))
    np.testing.assert_allclose(found.log_pdf(y)["target"], said.logpdf(labels))
    few = found.iloc[[3, 5]]
    np.testing.assert_allclose(few.mean()["target"], said.mean()[[3, 5]])


def test_several_targets_have_a_column_each() -> None:
    X, y = table()
    y["other"] = -2 * y["target"] + 1
    model = ProbabilisticGPN().fit(X, y)
    assert list(model.predict(X).columns) == ["target", "other"]
    assert model.predict_proba(X).shape == (60, 2)
    assert model.predict_var(X).shape == (60, 2)
