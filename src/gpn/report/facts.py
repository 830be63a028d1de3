"""What was fitted, on which data and with which settings, as text."""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from gpn.columns.column_types import NUMBER, plural
from gpn.columns.encoder import TableEncoder
from gpn.core.config import Config
from gpn.core.priors.ard import ARDPrior
from gpn.core.warnings import UNKNOWN, Diagnostic
from gpn.estimators.ood.pool import PoolOdds
from gpn.estimators.ood.thresholds import false_alarm_std
from gpn.methods.registry import name_of
from gpn.report.measure import noise_std_of
from gpn.tables.model import TableModel

VARIANT = ("anchor", "codes", "generator", "pool_weights", "regularise")
KERNELS = {"cos": "RBF", "matern": "Matérn 5/2"}


def facts_of(model: TableModel, *, every_check: bool = False) -> dict[str, Any]:
    """The first section of the page, and what `gpn inspect` prints.

    Of the checks, those that apply to the fit, unless every one is asked for.
    """
    record, posterior = model.record, model.estimator.posterior_
    diagnostics = {} if record is None else dict(record.diagnostics)
    trials = diagnostics.pop("beta_search", [])
    return {
        "target": model.target,
        "method": name_of(posterior),
        "version": version("gpn"),
        "lines": list(_lines(model)),
        "settings": list(_settings(model)),
        "closed_form": _is_closed_form(posterior),
        "diagnostics": [
            (name.replace("_", " "), as_text(value)) for name, value in diagnostics.items()
        ],
        "checks": [
            (name.replace("_", " "), check.verdict, check.sentence)
            for name, check in posterior.diagnostics().items()
            if every_check or _applies(posterior, name, check)
        ],
        "trials": [{name: as_text(value) for name, value in trial.items()} for trial in trials],
        "notes": [] if record is None else record.notes,
        "warnings": [] if record is None else record.warnings,
    }


def _lines(model: TableModel) -> Iterator[tuple[str, str]]:
    record, estimator, columns = model.record, model.estimator, model.encoder
    posterior = estimator.posterior_
    yield "method", name_of(posterior)
    config = getattr(posterior, "config", None)
    chosen = {name: getattr(config, name, None) for name in VARIANT}
    if chosen["generator"] == "closed-form":
        yield "fitted", "in closed form, no network was trained"
    elif any(chosen.values()):
        parts = [f"{name.replace('_', ' ')}: {value}" for name, value in chosen.items() if value]
        yield "variant", ", ".join(parts)
    yield "target", model.target
    if model.is_classifier:
        yield "classes", ", ".join(map(str, estimator.classes_))
    yield "columns", ", ".join(_counted_kinds(columns))
    if record is not None:
        synthetic = "none given; synthetic rows were drawn around the labeled ones"
        yield "labeled rows", f"{record.labeled:,}"
        yield "unlabeled rows", synthetic if record.unlabeled is None else f"{record.unlabeled:,}"
    n_known = len(estimator.reference_scores_)
    yield "known rows that set the threshold", f"{n_known:,}"
    error = 100 * false_alarm_std(n_known, 0.05)
    yield "false alarms at the usual threshold", f"5 % of known rows, give or take {error:.1f} %"
    if estimator.detector_ is not None and record is not None and record.unlabeled is not None:
        yield "unlabeled rows in the detector", pool_sentence(estimator.detector_.pool)
    calibration = estimator.calibration_scores_
    what = "sets of classes" if model.is_classifier else "intervals"
    yield f"{what} calibrated by", "none" if calibration is None else f"{len(calibration):,} rows"
    if not model.is_classifier and posterior.noise_std is not None:
        noise = f"{noise_std_of(estimator):.4g}, in units of {model.target}"
        yield "noise of labels (standard deviation)", noise


def _counted_kinds(columns: TableEncoder) -> Iterator[str]:
    """ "3 of numbers", "1 of dates", "2 of categories"."""
    kinds = Counter(plural(columns.times.get(name, NUMBER)) for name in columns.medians)
    kinds["categories"] = len(columns.categories)
    return (f"{count} of {kind}" for kind, count in kinds.items() if count)


def _applies(posterior: Any, name: str, check: Diagnostic) -> bool:
    """Whether a check says something about this fit: nothing is sampled in a closed form."""
    if name == "codes" and _is_closed_form(posterior):
        return False
    return check.value is not None or check.verdict != UNKNOWN


def _is_closed_form(posterior: Any) -> bool:
    return getattr(getattr(posterior, "config", None), "generator", None) == "closed-form"


def pool_sentence(pool: PoolOdds | None) -> str:
    """Whether the detector uses the unlabeled rows."""
    if pool is None:
        return "not used: the score finds unlike rows as well without them, or they are too few"
    return f"used: a classifier tells them from labeled ones with an AUC of {pool.auc:.3f}"


def _settings(model: TableModel) -> Iterator[tuple[str, str]]:
    """The settings that play a part in the fit, in the units of the data where they have some."""
    posterior = model.estimator.posterior_
    config: Any = getattr(posterior, "config", None)
    if _is_closed_form(posterior) and isinstance(config.prior, ARDPrior):
        yield from _prior_settings(model, config)
        return
    for name, text in settings(config):
        has_unit = name == "noise_std" and not model.is_classifier and config.noise_std is not None
        yield name, f"{noise_std_of(model.estimator):.4g} {model.target}" if has_unit else text


def _prior_settings(model: TableModel, config: Any) -> Iterator[tuple[str, str]]:
    """The prior of a fit in closed form: its kernel, its size, and a scale for each column."""
    prior, scales = config.prior, config.prior.column_scales
    wide_network = f"of an infinitely wide network ({prior.activation})"
    yield "kernel", KERNELS.get(prior.activation, wide_network)
    if model.is_classifier:
        yield "temperature", as_text(config.temperature)
    else:
        size = math.sqrt(prior.height) * float(model.estimator.y_scale_.scale[0])
        yield f"size of what is not straight, in units of {model.target}", as_text(size)
    if len(scales) > model.encoder.width:
        role = "the prior's mean" if prior.mean_columns else "one more column"
        yield "predictions of the mean model", f"are {role}"
    for name, place in model.encoder.places().items():
        yield f"scale of {name}, in its standard deviations", as_text(min(scales[place]))


def settings(config: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every setting of a configuration and of those nested in it, as `outer.inner`."""
    if not isinstance(config, Config):
        return
    for field in dataclasses.fields(config):  # type: ignore[arg-type]
        name, value = f"{prefix}{field.name}", getattr(config, field.name)
        if isinstance(value, Config):
            yield name, type(value).__name__
            yield from settings(value, f"{name}.")
        else:
            yield name, as_text(value)


def as_text(value: Any) -> str:
    """A setting as text, floats with four significant digits."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, tuple):
        return ", ".join(map(as_text, value))
    return "not set" if value is None else str(value)
