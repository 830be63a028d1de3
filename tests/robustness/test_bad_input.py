"""What must hold and what came: every function of draws, scores and chains, and every plot.

Shapes are checked by the functions themselves here; the run-time checker of the other tests,
which users do not have, is off.
"""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch

import gpn
from gpn import metrics
from gpn.estimators import active_learning as acquisition
from gpn.estimators.intervals import conformal
from gpn.methods.mcmc import convergence as diagnostics

matplotlib = pytest.importorskip("matplotlib")

from matplotlib.figure import Figure  # noqa: E402

from gpn import plots  # noqa: E402

pytestmark = pytest.mark.usefixtures("as_users_have_it")

DRAWS = torch.randn(5, 4, 2, generator=torch.Generator().manual_seed(0))
ROWS, FLAT, OTHER = DRAWS[0], DRAWS[0, :, 0], torch.zeros(3)
SQUARE = torch.eye(4)
LAW, CLASSES = torch.full((4, 2), 0.5), torch.tensor([0, 1, 1, 0])
NAN = torch.tensor([0.0, torch.nan])
RNG = torch.Generator()
X = torch.linspace(0, 1, 4)[:, None]
TASK = gpn.Task(X, torch.tensor([0, 1, 1, 0]))
LEVEL = r"level must lie strictly between 0 and 1, got 2"
Case = tuple[Callable[..., Any], tuple[Any, ...], str]


def wants(name: str, axes: str, came: str) -> str:
    return rf"{name} must have the shape \({axes}\).*got \({came}\)"


METRICS: list[Case] = [
    (metrics.interval_width, (ROWS,), wants("draws", "s, n, o", "4, 2")),
    (metrics.interval_width, (DRAWS, 2), LEVEL),
    (metrics.interval_width, (DRAWS.numpy(),), r"draws must be a tensor.*got ndarray; try torch"),
    (metrics.interval_coverage, (DRAWS, FLAT), wants("targets", "n, o", "4,")),
    (metrics.interval_coverage, (DRAWS, ROWS[:3]), r"n = 4 as in draws, got \(3, 2\)"),
    (metrics.interval_coverage, (DRAWS, ROWS, 2), LEVEL),
    (metrics.marginal_w2, (ROWS, ROWS, ROWS, FLAT), wants("true_std", "n, o", "4,")),
    (metrics.draws_w2, (DRAWS, ROWS[:1], ROWS[:1]), r"true_mean .* n = 4 as in draws, got \(1, 2"),
    (metrics.joint_w2, (FLAT, SQUARE, OTHER, SQUARE), r"true_mean .* n = 4 as in mean, got \(3,\)"),
    (metrics.covariance_error, (SQUARE, SQUARE), wants("covariance", "o, n, n", "4, 4")),
    (metrics.band_coverage, (ROWS, ROWS, ROWS, ROWS, 2), LEVEL),
    (metrics.band_coverage, (ROWS, FLAT, ROWS, ROWS), wants("std", "n, o", "4,")),
    (metrics.total_variation, (LAW, LAW[:, :1]), r"o = 2 as in probabilities, got \(4, 1\)"),
    (metrics.probability_variance, (ROWS,), wants("logits", "s, n, o", "4, 2")),
    (metrics.mutual_information, (ROWS,), wants("logits", "s, n, o", "4, 2")),
    (metrics.ood_auc, (FLAT, ROWS), wants("scores_ood", "m", "4, 2")),
    (metrics.ood_auc, (FLAT, NAN), r"scores_ood must be finite, got NaN .* among 2"),
    (metrics.ood_roc, (FLAT[:0], FLAT), r"scores_id must have the shape \(n\) with no 0, got \(0,"),
    (metrics.ood_aupr, (NAN, FLAT), r"scores_id must be finite, got NaN"),
    (metrics.ood_fpr95, (FLAT, NAN), r"scores_ood must be finite, got NaN"),
    (metrics.ood_missed, (NAN, FLAT), r"scores_id must be finite, got NaN"),
    (metrics.ood_missed, (FLAT, FLAT, 1.5), r"fpr must lie strictly between 0 and 1, got 1.5"),
    (metrics.gaussian_nll, (DRAWS, FLAT), wants("targets", "n, o", "4,")),
    (metrics.gaussian_nll, (DRAWS, ROWS, -1.0), r"noise_std must not be negative, got -1"),
    (metrics.class_nll, (LAW, CLASSES + 1), r"from 0 to 1, got torch.int64 from 1 to 2"),
    (metrics.class_nll, (LAW, CLASSES[:3]), r"classes .* n = 4 as in probabilities, got \(3,\)"),
    (metrics.calibration_error, (LAW, CLASSES.float()), r"whole numbers .*got torch.float32"),
    (metrics.calibration_error, (LAW, CLASSES, 0), r"bins must be a whole number .*got 0"),
    (metrics.reliability, (FLAT, CLASSES), wants("probabilities", "n, o", "4,")),
    (metrics.interval_calibration_error, (DRAWS, FLAT), wants("targets", "n, o", "4,")),
    (metrics.coverage_curve, (DRAWS, ROWS[:, :1]), r"o = 2 as in draws, got \(4, 1\)"),
    (metrics.risk_coverage, (FLAT, OTHER), r"scores .* n = 4 as in errors, got \(3,\)"),
]
PICKS: list[Case] = [
    (acquisition.reduce_variance, (ROWS, 1), wants("root", "o, s, n", "4, 2")),
    (acquisition.reduce_variance, (DRAWS, 0), r"rows to pick must be a whole number .*got 0"),
    (acquisition.reduce_variance, (DRAWS, 1, -1.0), r"must not be negative, got .*=-1"),
    (acquisition.reduce_exact_variance, (ROWS, 1), wants("covariance", "o, n, n", "4, 2")),
    (diagnostics.split_rhat, (ROWS,), wants("chains", "c, t, q", "4, 2")),
    (diagnostics.split_rhat, (DRAWS[:, :3],), r"at least 4 draws each, got 3"),
    (diagnostics.effective_sample_size, (FLAT,), wants("chains", "c, t, q", "4,")),
]


CONFORMAL: list[Case] = [
    (conformal.interval_scores, (ROWS, ROWS, FLAT), wants("std", "n, o", "4,")),
    (conformal.class_scores, (LAW, CLASSES + 1), r"from 0 to 1, got torch.int64 from 1 to 2"),
    (conformal.conformal_quantile, (FLAT, 0.5), wants("scores", "n, o", "4,")),
    (conformal.conformal_quantile, (ROWS, 2), LEVEL),
    (conformal.conformal_quantile, (ROWS, 0.9), r"0\.9 needs at least 9 calibration rows, got 4"),
    (conformal.conformal_rank, (4, 2), LEVEL),
    (conformal.weighted_quantile, (FLAT, ROWS, 0.5), wants("scores", "n, o", "4,")),
    (conformal.weighted_quantile, (ROWS, ROWS.abs(), 2), LEVEL),
    (conformal.weighted_levels, (FLAT,), wants("weights", "m, o", "4,")),
    (conformal.fewest_rows, (2,), LEVEL),
]


def band(axes: Any, *given: Any) -> None:
    plots.band(axes, *given, color="red", label="")


PLOTS: list[Case] = [
    (plots.band, (X, OTHER, FLAT), r"mean .* n = 4 as in x, got \(3,\)"),
    (plots.outline, (X, FLAT, OTHER), r"std .* n = 4 as in x, got \(3,\)"),
    (plots.functions, (X[:3], DRAWS), r"draws .* n = 3 as in x, got \(5, 4, 2\)"),
    (plots.observations, (TASK,), r"labels must be numbers to be drawn, got a task of classes"),
    (plots.code_plane, (DRAWS[:, :, 0],), r"codes must have 2 dimensions to be drawn, got 4"),
    (plots.code_functions, (X, DRAWS, ROWS), r"there must be 5 colors, one per draw, got 4"),
    (plots.code_colors, (FLAT,), wants("codes", "s, q", "4,")),
    (plots.roc, (FLAT, NAN), r"scores_ood must be finite, got NaN"),
    (plots.roc, (FLAT, ["a"]), r"what is drawn must be numbers in an array, got list"),
    (plots.roc_curve, (FLAT, OTHER), r"found .* k = 4 as in false_alarms, got \(3,\)"),
    (plots.ood_histogram, ({},), r"scores must name at least one set of rows, got none"),
    (plots.ood_histogram, ({"a": NAN},), r"scores must be finite to be drawn, got NaN"),
    (plots.ood_histogram, ({"a": ROWS},), r"the scores of 'a' must have the shape.*got \(4, 2\)"),
    (plots.calibration, (DRAWS, FLAT), wants("targets", "n, o", "4,")),
    (plots.intervals, (FLAT, OTHER, FLAT), r"low .* n = 4 as in truth, got \(3,\)"),
    (plots.reliability, (LAW, CLASSES + 1), r"from 0 to 1, got torch.int64 from 1 to 2"),
    (plots.risk_coverage, (FLAT, OTHER), r"scores .* n = 4 as in errors, got \(3,\)"),
    (plots.model_figure, (None, ROWS, OTHER), r"inconsistent numbers of samples: \[4, 3\]"),
    (plots.class_boxes, (LAW, ["one"]), r"there must be 2 names, one per class, got 1"),
]


def named(cases: list[Case]) -> list[Any]:
    return [pytest.param(*case, id=f"{case[0].__name__}-{i}") for i, case in enumerate(cases)]


@pytest.mark.parametrize(("function", "given", "message"), named([*METRICS, *PICKS, *CONFORMAL]))
def test_functions_say_what_must_hold(
    function: Callable[..., Any], given: tuple[Any, ...], message: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        function(*given)


@pytest.mark.parametrize(("function", "given", "message"), named(PLOTS))
def test_plots_say_what_must_hold(
    function: Callable[..., Any], given: tuple[Any, ...], message: str
) -> None:
    no_axes = function in (plots.code_colors, plots.model_figure)
    axes = () if no_axes else (Figure().subplots(),)
    call = band if function is plots.band else function
    with pytest.raises((ValueError, TypeError), match=message):
        call(*axes, *given)


@pytest.mark.parametrize(
    ("module", "cases"),
    [
        (metrics, METRICS),
        (acquisition, PICKS),
        (diagnostics, PICKS),
        (conformal, CONFORMAL),
        (plots, PLOTS),
    ],
)
def test_no_public_function_is_without_a_bad_input(module: Any, cases: list[Case]) -> None:
    names = getattr(module, "__all__", dir(module))
    public = {
        name
        for name in names
        if inspect.isfunction(found := getattr(module, name))
        and found.__module__.startswith(module.__name__)
        and not name.startswith("_")
    }
    takes_no_data = {"method_color"}
    assert public - takes_no_data == {
        case[0].__name__ for case in cases if case[0].__module__.startswith(module.__name__)
    }
