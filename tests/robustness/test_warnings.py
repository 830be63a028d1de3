"""Diagnostics of a fit: their verdicts, their warnings, and their place in a model file."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import gpn
from gpn.cli.commands import app
from gpn.core.priors.cholesky import JitterWarning
from gpn.core.warnings import (
    VERDICTS,
    AxesWarning,
    CodesWarning,
    PoolWarning,
    SearchWarning,
    warn_doubtful,
)
from gpn.estimators import SyntheticPoolWarning
from gpn.methods.gpn.fit_report import WARNINGS, FitReport, Trial, diagnose
from gpn.methods.gpn.model.codes import code_moments
from gpn.methods.gpn.pool.density_ratio import DensityRatioFitter, LogRatio
from gpn.methods.gpn.pool.mixture import PoolComposition, mixture_weights
from gpn.report.facts import facts_of
from gpn.saving.validation import ModelError
from tests.fuzz import models
from tests.saving.test_format import rewrite

SPECTRAL, LEARNT = gpn.GPNConfig(), gpn.GPNConfig.paper()
RNG = torch.Generator().manual_seed(0)
CODES = torch.randn(100, 10, generator=RNG)


TRIALS = FitReport(
    beta_search=tuple(Trial(beta, 0.0, 0.1, 0.95, 0.1) for beta in (0.03, 0.1, 0.3, 1.0))
)


def with_beta(beta: float) -> gpn.GPNConfig:
    return gpn.GPNConfig(beta=beta)


def pool(
    atypical: float, labels: int, classified: int | None = None, duplicates: int = 0
) -> FitReport:
    n_classified = 2 * labels if classified is None else classified
    return FitReport(pool=PoolComposition(0.5, atypical, labels, n_classified, duplicates))


def learnt(codes: torch.Tensor) -> FitReport:
    return FitReport(codes=code_moments(codes))


NOTHING = FitReport()
CASES: dict[str, tuple[gpn.GPNConfig, FitReport, str, str]] = {
    "OOD rows": (SPECTRAL, pool(0.4, 500), "pool", "good"),
    "no OOD rows": (SPECTRAL, pool(0.06, 500), "pool", "doubtful"),
    "a few among duplicates": (SPECTRAL, pool(0.95, 500, 30, 570), "pool", "good"),
    "duplicates alone": (SPECTRAL, pool(0.0, 500, 0, 500), "pool", "doubtful"),
    "a few": (SPECTRAL, pool(0.07, 100_000), "pool", "good"),
    "few labels": (SPECTRAL, pool(0.05, 99), "pool", "not known"),
    "no classifier": (SPECTRAL, NOTHING, "pool", "not known"),
    "axes": (SPECTRAL, FitReport(explained_variance=0.51), "prior_axes", "good"),
    "few axes": (SPECTRAL, FitReport(explained_variance=0.49), "prior_axes", "doubtful"),
    "few posterior axes": (
        SPECTRAL,
        FitReport(posterior_explained_variance=0.2),
        "posterior_axes",
        "doubtful",
    ),
    "no axes": (LEARNT, NOTHING, "prior_axes", "not known"),
    "drawn codes": (SPECTRAL, NOTHING, "codes", "good"),
    "codes": (LEARNT, learnt(CODES), "codes", "good"),
    "shifted": (LEARNT, learnt(CODES + 1), "codes", "doubtful"),
    "narrow": (LEARNT, learnt(0.3 * CODES), "codes", "doubtful"),
    "wide": (LEARNT, learnt(3 * CODES), "codes", "doubtful"),
    "of rank one": (LEARNT, learnt(CODES[:, :1].repeat(1, 10)), "codes", "doubtful"),
    "all equal": (LEARNT, learnt(torch.zeros(20, 10)), "codes", "doubtful"),
    "codes not saved": (LEARNT, NOTHING, "codes", "not known"),
    "β within": (with_beta(0.1), TRIALS, "beta", "good"),
    "lowest β": (with_beta(0.03), TRIALS, "beta", "doubtful"),
    "highest β": (with_beta(1.0), TRIALS, "beta", "doubtful"),
    "β not searched": (with_beta(0.03), NOTHING, "beta", "not known"),
}


@pytest.mark.parametrize(("config", "report", "name", "verdict"), CASES.values(), ids=CASES.keys())
def test_verdicts_and_their_warnings(
    config: gpn.GPNConfig, report: FitReport, name: str, verdict: str
) -> None:
    found = diagnose(config, report)
    assert found[name].verdict == verdict
    assert (found[name].value is None) <= (verdict != "doubtful")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_doubtful(found, WARNINGS)
    expected = [WARNINGS[name]] if verdict == "doubtful" else []
    assert [entry.category for entry in caught] == expected
    assert all("should" in str(entry.message) for entry in caught)


def test_every_warning_can_be_filtered_by_one_name() -> None:
    categories = (PoolWarning, AxesWarning, CodesWarning, SearchWarning, SyntheticPoolWarning)
    for category in (*categories, JitterWarning):
        assert issubclass(category, gpn.GPNWarning)
    assert set(WARNINGS.values()) == set(categories[:4])


def test_the_moments_of_codes() -> None:
    """Of two axes with variances 3 and 1 the effective rank is exp(H(3/4, 1/4))."""
    codes = torch.tensor([[3.0, 1], [3.0, -1], [-3.0, 1], [-3.0, -1]]).double()
    codes[:, 0] *= 3**0.5 / 3
    moments = code_moments(codes + torch.tensor([1.0, 0.0]))
    entropy = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25))
    assert moments.rank == pytest.approx(np.exp(entropy))
    assert moments.spread == pytest.approx(2**0.5)
    assert moments.shift == pytest.approx(0.5**0.5)


class BySize(DensityRatioFitter):
    """A perfect classifier: labeled rows are small."""

    def fit(self, x_obs: torch.Tensor, x_pool: torch.Tensor) -> LogRatio:
        return lambda x: -x.abs().sum(1)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_rows_unlike_the_labeled_ones_are_counted(share: float) -> None:
    """All OOD rows, and one in twenty of the others."""
    rng = torch.Generator().manual_seed(1)
    labeled, rows = torch.rand(2000, 1, generator=rng), torch.rand(4000, 1, generator=rng)
    rows[: int(share * 4000)] += 2
    composition = mixture_weights(labeled, rows, BySize(), folds=2, rng=rng).composition
    expected = share + 0.05 * (1 - share)
    assert composition.atypical_share == pytest.approx(expected, abs=0.02 * (1 - share))


SHORT = gpn.GPNConfig(
    anchor="independent",
    beta=0.1,
    noise_std=0.2,
    n_axes=20,
    trunk=gpn.MLPTrunk(widths=(8,)),
    train=gpn.TrainConfig(steps=2, label_batch=8, pool_batch=8, device="cpu"),
)


def fitted(spread: float) -> gpn.Posterior:
    """With trees as the classifier, on a pool as wide as the labels or wider."""
    rng = torch.Generator().manual_seed(2)
    x, rows = torch.rand(400, 2, generator=rng), spread * torch.rand(600, 2, generator=rng)
    return gpn.GPN(SHORT).fit(gpn.Task(x, x[:, :1], pool=rows), rng=0)


def test_trees_detect_a_pool_without_ood_rows() -> None:
    with pytest.warns(PoolWarning, match="should hold rows unlike the labeled ones, it seems"):
        posterior = fitted(1.0)
    assert posterior.diagnostics()["pool"].value < 0.05


def test_diagnostics_are_saved(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        posterior = fitted(3.0)  # a healthy fit is silent
    found = posterior.diagnostics()
    assert found["pool"].verdict == "good"
    assert found["pool"].value > 0.5
    gpn.save(posterior, tmp_path / "p.gpn")
    assert gpn.load(tmp_path / "p.gpn").diagnostics() == found


def test_learnt_codes_are_diagnosed(
    quick: gpn.GPNConfig, line: gpn.Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy = gpn.GPN(quick).fit(line, rng=0).diagnostics()["codes"]
    assert healthy.verdict == "good"
    monkeypatch.setattr("gpn.methods.gpn.fit_report.MIN_RANK_SHARE", 1.0)
    with pytest.warns(CodesWarning, match=r"about N\(0, I\), .*effective rank 2\.\d \(of 3\)"):
        gpn.GPN(quick).fit(line, rng=0)


def test_diagnostics_of_a_file_are_checked_and_may_be_absent(
    quick: gpn.GPNConfig, line: gpn.Task, tmp_path: Path
) -> None:
    path = tmp_path / "p.gpn"
    gpn.save(gpn.GPN(quick).fit(line, rng=0), path)
    for broken in ("[]", '{"a": 1}', '{"a": {"value": "x", "verdict": "good", "sentence": ""}}'):
        rewrite(path, diagnostics=broken)
        with pytest.raises(ModelError, match="must fit its method"):
            gpn.load(path)
    rewrite(path, diagnostics='{"a": {"value": 1, "verdict": "fine", "sentence": ""}}')
    with pytest.raises(ModelError, match="a verdict must be known, got 'fine'"):
        gpn.load(path)
    rewrite(path, diagnostics="{}")
    assert gpn.load(path).diagnostics() == {}


def test_other_methods_have_no_diagnostics(line: gpn.Task) -> None:
    assert gpn.methods.get("gp").fit(line).diagnostics() == {}


def test_the_command_line_and_the_report_show_diagnostics(tmp_path: Path) -> None:
    model = models.model("yield")
    names = [name for name, _, _ in facts_of(model, every_check=True)["checks"]]
    assert names == ["pool", "prior axes", "posterior axes", "codes", "beta"]
    shown_names = [name for name, _, _ in facts_of(model)["checks"]]
    assert shown_names == ["pool", "prior axes", "codes"], "those that apply to the fit"
    model.save(tmp_path / "m.gpn")
    result = CliRunner().invoke(app, ["inspect", str(tmp_path / "m.gpn"), "--json"])
    shown = json.loads(result.stdout)
    assert shown["codes"] == "good: codes are drawn from N(0, I) in training, too."
    assert shown["warnings"] == ["careful"]
    assert shown["intervals calibrated by"] == "none"
    assert CliRunner().invoke(app, ["inspect", str(tmp_path / "m.gpn")]).exit_code == 0
    assert all(verdict in VERDICTS for _, verdict, _ in facts_of(model)["checks"])
