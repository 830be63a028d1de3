"""β from held-out labels, and the labels' noise on the way."""

from typing import Any

import pytest

from gpn.methods.gpn.fitting import basis as ground
from gpn.methods.gpn.fitting.select import BETAS, CLOSE, Trial, largest_within
from tests.methods.gpn.test_variants import fit, labels, targets


def test_beta_is_searched_on_held_out_labels() -> None:
    """The largest β that scores about as well as the best, and the noise that came of it."""
    posterior = fit(targets(30, 2), anchor="independent", pool_weights="equal")
    trials = posterior.fit_report.beta_search
    assert tuple(trial["beta"] for trial in trials) == BETAS
    best = min(trials, key=lambda trial: trial["score"])
    good = [trial for trial in trials if trial["score"] <= best["score"] + CLOSE]
    chosen = max(good, key=lambda trial: trial["beta"])
    assert posterior.config.beta == chosen["beta"]
    assert posterior.noise_std == posterior.config.noise_std > 0


def test_the_largest_of_those_about_as_good_as_the_best() -> None:
    scores = {0.03: 1.0, 0.1: 0.9, 0.3: 0.9 + 0.9 * CLOSE, 1.0: 0.9 + 1.1 * CLOSE}
    trials = [Trial(beta, score, 0.1, 0.95, 0.1) for beta, score in scores.items()]
    assert largest_within(trials[::-1]).beta == 0.3


def test_trials_share_what_does_not_hang_on_beta(monkeypatch: pytest.MonkeyPatch) -> None:
    """Axes are found once for the whole fit, weights once for all trials and once at the end."""
    counts = {"spectral_axes": 0, "mixture_weights": 0}

    def counted(name: str) -> Any:
        work = getattr(ground, name)

        def run(*given: Any) -> Any:
            counts[name] += 1
            return work(*given)

        return run

    for name in counts:
        monkeypatch.setattr(ground, name, counted(name))
    posterior = fit(targets(30, 2), anchor="independent")
    assert counts == {"spectral_axes": 1, "mixture_weights": 3}, "once to count strangers"
    assert len(posterior.fit_report.beta_search) == len(BETAS)
    assert posterior.fit_report.explained_variance > 0.5
    assert len(posterior.report["pool_weights"]) == len(posterior.report["pool_rows"])


def test_beta_of_classes_is_searched_too() -> None:
    posterior = fit(labels(30, 2), anchor="independent", pool_weights="equal")
    trials = posterior.fit_report.beta_search
    assert posterior.config.beta in [trial["beta"] for trial in trials]
    assert posterior.noise_std is None, "classes have no noise of their own"
    assert all(0 <= trial["coverage"] <= 1 for trial in trials)


@pytest.mark.parametrize(
    ("settings", "searched"),
    [
        ({"beta": 0.2}, []),
        ({"beta": 0.2, "target_noise": True, "noise_std": 0.3}, []),
        ({"beta": 0.2, "target_noise": True}, []),
        ({"noise_std": 0.3}, list(BETAS)),
    ],
    ids=["beta", "both", "noise open", "beta open"],
)
def test_what_is_given_is_not_searched(settings: dict[str, Any], searched: list[float]) -> None:
    posterior = fit(targets(12, 2), anchor="independent", pool_weights="equal", **settings)
    trials = posterior.fit_report.beta_search
    assert [trial["beta"] for trial in trials] == searched
    assert posterior.config.beta == settings.get("beta", posterior.config.beta)
    assert posterior.noise_std == settings.get("noise_std", posterior.noise_std)
    is_learnt = "beta" not in settings or "target_noise" in settings
    assert (posterior.noise_std is not None) == is_learnt
