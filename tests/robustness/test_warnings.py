"""Each warning of a fit: where it fires, where it does not, and what a file keeps of it."""

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
    beta_search=tuple(Trial(beta, 0.0, 0.1, 0.95, None) for beta in (0.03, 0.1, 0.3, 1.0))
)


def with_beta(beta: float) -> gpn.GPNConfig:
    return gpn.GPNConfig(beta=beta)


def pool(atypical: float, labels: int, **changes: int) -> FitReport:
    counts = {"n_classified": 2 * labels, "n_duplicates": 0, **changes}
    return FitReport(pool=PoolComposition(0.5, atypical, labels, **counts))


def codes(values: torch.Tensor) -> FitReport:
    return FitReport(codes=code_moments(values))


REPEATED = pool(0.95, 500, n_classified=30, n_duplicates=570)
KNOWN = pool(0.0, 500, n_classified=0, n_duplicates=500)
EMPTY, AXES = FitReport(), FitReport(posterior_explained_variance=0.2)


CASES: dict[str, tuple[gpn.GPNConfig, FitReport, str, str]] = {
    "OOD rows": (SPECTRAL, pool(0.4, 500), "pool", "good"),
    "no OOD rows": (SPECTRAL, pool(0.06, 500), "pool", "doubtful"),
    "a few beside labels": (SPECTRAL, REPEATED, "pool", "good"),
    "labels alone": (SPECTRAL, KNOWN, "pool", "doubtful"),
    "a few": (SPECTRAL, pool(0.07, 100_000), "pool", "good"),
    "few labels": (SPECTRAL, pool(0.05, 99), "pool", "not known"),
    "no classifier": (SPECTRAL, EMPTY, "pool", "not known"),
    "axes": (SPECTRAL, FitReport(explained_variance=0.51), "prior_axes", "good"),
    "few axes": (SPECTRAL, FitReport(explained_variance=0.49), "prior_axes", "doubtful"),
    "given axes": (SPECTRAL, AXES, "posterior_axes", "doubtful"),
    "no axes": (LEARNT, EMPTY, "prior_axes", "not known"),
    "drawn codes": (SPECTRAL, EMPTY, "codes", "good"),
    "codes": (LEARNT, codes(CODES), "codes", "good"),
    "moved": (LEARNT, codes(CODES + 1), "codes", "doubtful"),
    "shrunk": (LEARNT, codes(0.3 * CODES), "codes", "doubtful"),
    "spread": (LEARNT, codes(3 * CODES), "codes", "doubtful"),
    "flat": (LEARNT, codes(CODES[:, :1].repeat(1, 10)), "codes", "doubtful"),
    "points": (LEARNT, codes(torch.zeros(20, 10)), "codes", "doubtful"),
    "codes gone": (LEARNT, EMPTY, "codes", "not known"),
    "within": (with_beta(0.1), TRIALS, "beta", "good"),
    "lowest": (with_beta(0.03), TRIALS, "beta", "doubtful"),
    "highest": (with_beta(1.0), TRIALS, "beta", "doubtful"),
    "given": (with_beta(0.03), EMPTY, "beta", "not known"),
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
    kinds = (PoolWarning, AxesWarning, CodesWarning, SearchWarning, SyntheticPoolWarning)
    for kind in (*kinds, JitterWarning):
        assert issubclass(kind, gpn.GPNWarning)
    assert set(WARNINGS.values()) == set(kinds[:4])


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
    """A classifier that knows: labeled rows are small."""

    def fit(self, x_obs: torch.Tensor, x_pool: torch.Tensor) -> LogRatio:
        return lambda x: -x.abs().sum(1)


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_atypical_rows_are_counted(share: float) -> None:
    rng = torch.Generator().manual_seed(1)
    labeled, rows = torch.rand(2000, 1, generator=rng), torch.rand(4000, 1, generator=rng)
    rows[: int(share * 4000)] += 2
    found = mixture_weights(labeled, rows, BySize(), folds=2, rng=rng)
    expected = share + 0.05 * (1 - share)
    assert found.composition.atypical_share == pytest.approx(expected, abs=0.02)
    assert (found.weights[: int(share * 4000)] > 0.5).all()


SHORT = gpn.GPNConfig(
    anchor="independent",
    beta=0.1,
    noise_std=0.2,
    n_axes=20,
    trunk=gpn.MLPTrunk(widths=(8,)),
    train=gpn.TrainConfig(steps=2, label_batch=8, pool_batch=8, device="cpu"),
)


def fitted(spread: float) -> gpn.Posterior:
    """By trees, on a pool as wide as the labels or wider."""
    rng = torch.Generator().manual_seed(2)
    x, pool = torch.rand(400, 2, generator=rng), spread * torch.rand(600, 2, generator=rng)
    return gpn.GPN(SHORT).fit(gpn.Task(x, x[:, :1], pool=pool), rng=0)


def test_trees_detect_a_pool_without_ood_rows() -> None:
    with pytest.warns(PoolWarning, match="should hold rows unlike the labeled ones, it seems"):
        posterior = fitted(1.0)
    assert posterior.diagnostics()["pool"].value < 0.05


def test_what_was_found_is_saved(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        posterior = fitted(3.0)  # a healthy fit is silent
    found = posterior.diagnostics()
    assert found["pool"].verdict == "good"
    assert found["pool"].value > 0.5
    gpn.save(posterior, tmp_path / "p.gpn")
    assert gpn.load(tmp_path / "p.gpn").diagnostics() == found


def test_learnt_codes_are_checked(
    quick: gpn.GPNConfig, line: gpn.Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy = gpn.GPN(quick).fit(line, rng=0).diagnostics()["codes"]
    assert healthy.verdict == "good"
    monkeypatch.setattr("gpn.methods.gpn.fit_report.MIN_RANK_SHARE", 1.0)
    with pytest.warns(CodesWarning, match=r"about N\(0, I\), .*effective rank 2\.\d \(of 3\)"):
        gpn.GPN(quick).fit(line, rng=0)


def test_an_older_file_says_what_is_not_known(
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


def test_the_command_line_and_the_report_show_them(tmp_path: Path) -> None:
    model = models.model("yield")
    names = [name for name, _, _ in facts_of(model)["checks"]]
    assert names == ["pool", "prior axes", "posterior axes", "codes", "beta"]
    model.save(tmp_path / "m.gpn")
    result = CliRunner().invoke(app, ["inspect", str(tmp_path / "m.gpn"), "--json"])
    shown = json.loads(result.stdout)
    assert shown["codes"] == "good: codes are drawn from N(0, I) in training, too."
    assert shown["warnings"] == ["careful"]
    assert shown["intervals calibrated by"] == "none"
    assert CliRunner().invoke(app, ["inspect", str(tmp_path / "m.gpn")]).exit_code == 0
    assert all(verdict in VERDICTS for _, verdict, _ in facts_of(model)["checks"])
