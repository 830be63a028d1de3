"""β from held-out labels, and the labels' noise with it."""

from typing import Any

import pytest

from gpn.methods.gpn.fit_report import Trial
from gpn.methods.gpn.fitting import basis
from gpn.methods.gpn.fitting.select import BETAS, MAX_SCORE_LOSS, largest_within
from tests.methods.gpn.small import classes, fit, targets


def test_beta_is_searched_on_held_out_labels() -> None:
    """The largest β that scores about as well as the best, and the noise given that β."""
    posterior = fit(targets(30, 2), anchor="independent", pool_weights="equal")
    trials = posterior.fit_report.beta_search
    assert tuple(trial.beta for trial in trials) == BETAS
    best = min(trial.score for trial in trials)
    good = [trial.beta for trial in trials if trial.score <= best + MAX_SCORE_LOSS]
    assert posterior.config.beta == max(good)
    assert posterior.noise_std == posterior.config.noise_std > 0


def test_the_largest_beta_that_is_about_as_good_as_the_best() -> None:
    scores = {0.03: 1.0, 0.1: 0.9, 0.3: 0.9 + 0.9 * MAX_SCORE_LOSS, 1.0: 0.9 + 1.1 * MAX_SCORE_LOSS}
    trials = tuple(Trial(beta, score, 0.1, 0.95, 0.1) for beta, score in scores.items())
    assert largest_within(trials[::-1]).beta == 0.3


def test_trials_share_what_does_not_depend_on_beta(monkeypatch: pytest.MonkeyPatch) -> None:
    """Axes are computed once for the whole fit; weights once to see how many outliers the pool
    lacks, once for all trials, and once for the fit."""
    counts = {"spectral_axes": 0, "mixture_weights": 0}

    def counted(name: str) -> Any:
        work = getattr(basis, name)

        def run(*args: Any, **options: Any) -> Any:
            counts[name] += 1
            return work(*args, **options)

        return run

    for name in counts:
        monkeypatch.setattr(basis, name, counted(name))
    posterior = fit(targets(30, 2), anchor="independent")
    assert counts == {"spectral_axes": 1, "mixture_weights": 3}
    report = posterior.fit_report
    assert len(report.beta_search) == len(BETAS)
    assert report.explained_variance is not None
    assert report.explained_variance > 0.5
    assert report.pool is not None
    assert report.pool.n_labels == 30, "the weights of the fit are those of all labels"
    assert report.pool.n_classified + report.pool.n_duplicates == 40


def test_beta_of_classes_is_searched_too() -> None:
    posterior = fit(classes(30, 2), anchor="independent", pool_weights="equal")
    trials = posterior.fit_report.beta_search
    assert posterior.config.beta in [trial.beta for trial in trials]
    assert posterior.noise_std is None, "classes have no noise"
    assert all(0 <= trial.coverage <= 1 for trial in trials)


@pytest.mark.parametrize(
    ("settings", "searched"),
    [
        ({"beta": 0.2}, []),
        ({"beta": 0.2, "target_noise": True, "noise_std": 0.3}, []),
        ({"beta": 0.2, "target_noise": True}, []),
        ({"noise_std": 0.3}, list(BETAS)),
    ],
    ids=["beta set", "both set", "noise open", "beta open"],
)
def test_settings_are_not_searched(settings: dict[str, Any], searched: list[float]) -> None:
    posterior = fit(targets(12, 2), anchor="independent", pool_weights="equal", **settings)
    assert [trial.beta for trial in posterior.fit_report.beta_search] == searched
    assert posterior.config.beta == settings.get("beta", posterior.config.beta)
    assert posterior.noise_std == settings.get("noise_std", posterior.noise_std)
    is_learnt = "beta" not in settings or "target_noise" in settings
    assert (posterior.noise_std is not None) == is_learnt
