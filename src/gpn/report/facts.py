"""What was fitted, on what, and with which settings: names and texts."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import gpn
from gpn.core.config import Config
from gpn.methods.registry import name_of
from gpn.tables.model import TableModel

Lines = list[tuple[str, str]]
HELD = "known rows that set the threshold"


def facts_of(model: TableModel) -> dict[str, Any]:
    """The page's first part."""
    record, posterior = model.record, model.estimator.posterior_
    diagnostics = {} if record is None else dict(record.diagnostics)
    trials = diagnostics.pop("beta_search", [])
    return {
        "target": model.target,
        "method": name_of(posterior),
        "version": gpn.__version__,
        "lines": list(_lines(model)),
        "settings": list(settings(getattr(posterior, "config", None))),
        "diagnostics": [
            (name.replace("_", " "), text(value)) for name, value in diagnostics.items()
        ],
        "checks": [
            (name.replace("_", " "), check.verdict, check.sentence)
            for name, check in posterior.diagnostics().items()
        ],
        "trials": [{name: text(value) for name, value in trial.items()} for trial in trials],
        "notes": [] if record is None else record.notes,
        "warnings": [] if record is None else record.warnings,
    }


def _lines(model: TableModel) -> Iterator[tuple[str, str]]:
    record, estimator, columns = model.record, model.estimator, model.encoder
    posterior = estimator.posterior_
    yield "method", name_of(posterior)
    variant = _variant(getattr(posterior, "config", None))
    if variant:
        yield "variant", variant
    yield "target", model.target
    if model.is_classifier:
        yield "classes", ", ".join(map(str, estimator.classes_))
    yield "columns", f"{len(columns.medians)} of numbers, {len(columns.categories)} of categories"
    if record is not None:
        yield "labeled rows", f"{record.labeled:,}"
        made_up = "none given; some were made up from the labeled ones"
        yield "unlabeled rows", made_up if record.unlabeled is None else f"{record.unlabeled:,}"
    yield HELD, f"{len(estimator.reference_scores_):,}"
    calibration = estimator.calibration_scores_
    what = "sets of classes" if model.is_classifier else "intervals"
    yield f"{what} calibrated by", "none" if calibration is None else f"{len(calibration):,} rows"
    if not model.is_classifier and posterior.noise_std is not None:
        noise = posterior.noise_std * estimator.y_scale_.scale[0]
        yield "noise of labels (standard deviation)", f"{noise:.4g}"


def _variant(config: Any) -> str:
    names = ("anchor", "codes", "generator", "pool_weights", "regularise")
    found = {name: getattr(config, name, None) for name in names}
    return ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in found.items() if value)


def settings(config: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """Every setting of a configuration and of those inside it, as `outer.inner`."""
    if not isinstance(config, Config):
        return
    for field in dataclasses.fields(config):  # type: ignore[arg-type]
        value = getattr(config, field.name)
        if isinstance(value, Config):
            yield f"{before}{field.name}", type(value).__name__
            yield from settings(value, f"{before}{field.name}.")
        else:
            yield f"{before}{field.name}", text(value)


def text(value: Any) -> str:
    """Short, and without a float's tail."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, tuple):
        return ", ".join(map(text, value))
    return "not set" if value is None else str(value)
