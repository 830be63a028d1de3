"""The page from the numbers: one HTML file with its script, style and data inside.

Text from the data reaches the page in three ways only: through a template that escapes it, as JSON
in which no tag can begin, and from there by the page's script as text, never as markup. A content
security policy allows nothing but the page's own scripts, by their hashes, and no request.
"""

import base64
import hashlib
import json
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

SCRIPTS = ("plots.js", "performance.js", "measures.js", "rows.js", "functions.js")
TILES = {
    "rows": ("labeled test rows", "{:,}"),
    "rmse": ("root mean square error", "{:.4g}"),
    "mae": ("mean absolute error", "{:.4g}"),
    "r2": ("R²: variance explained", "{:.3f}"),
    "coverage_95": ("of labels inside 95 % intervals", "{:.1%}"),
    "width_95": ("mean width of 95 % intervals", "{:.4g}"),
    "accuracy": ("accuracy", "{:.1%}"),
    "nll": ("negative log likelihood", "{:.3f}"),
    "ece": ("expected calibration error", "{:.3f}"),
    "set_coverage_95": ("of labels inside 95 % sets", "{:.1%}"),
    "set_size_95": ("mean size of 95 % sets", "{:.2f}"),
    "flagged": ("of these rows flagged as OOD", "{:.1%}"),
}


def render(data: dict[str, Any]) -> str:
    """The whole page."""
    scripts = [get_plotlyjs(), *(_asset(name) for name in SCRIPTS)]
    values = {
        **data,
        "tiles": tiles(
            data.get("summary", {}), data.get("confidence", {}), data.get("baseline") or {}
        ),
        "css": Markup(_asset("report.css")),
        "data": Markup(as_json({name: data[name] for name in data if name != "summary"})),
        "scripts": [Markup(script) for script in scripts],
        "policy": policy(scripts),
    }
    page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return page.from_string(_asset("page.html")).render(values)


def as_json(value: Any) -> str:
    """JSON in which no tag can begin; arrays as base64 float32 with their shape."""
    text = json.dumps(value, default=_encoded, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def policy(scripts: list[str]) -> str:
    """The content security policy: run these scripts, request nothing."""
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def tiles(
    summary: dict[str, Any],
    confidence: dict[str, tuple[float, float]] | None = None,
    baseline: dict[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """The key figures as text, each with its confidence interval and the baseline's figure."""
    made = []
    for key, value in summary.items():
        if value is None:
            continue
        name, form = TILES[key]
        details = []
        if confidence and key in confidence:
            low, high = confidence[key]
            details.append(f"{low:.1%} to {high:.1%} with 95 % confidence")
        if baseline and key in baseline and key != "rows":
            details.append(f"{baseline['name']}: {form.format(baseline[key])}")
        made.append({"name": name, "value": form.format(value), "details": details})
    return made


def _encoded(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, np.ndarray):
        raise TypeError(f"a report must hold plain values and arrays, got {type(value).__name__}.")
    content = base64.b64encode(np.ascontiguousarray(value, "<f4").tobytes()).decode()
    return {"f32": content, "shape": list(value.shape)}


def _asset(name: str) -> str:
    return files("gpn.report").joinpath("assets", name).read_text(encoding="utf-8")
