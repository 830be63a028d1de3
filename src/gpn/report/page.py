"""The page from the numbers: one HTML file with its script, its style and its data inside.

Texts of the data reach the page in three ways only: through a template that escapes them, as JSON
in which no tag can begin, and from there by the page's script as text, never as markup. A policy
in the page lets nothing run but its own scripts, by their hashes, and nothing be fetched.
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

SCRIPTS = ("plots.js", "measures.js", "unknown.js", "functions.js", "plane.js", "ready.js")
NO_PLANE = {
    "gpn": "the functions of this variant are no affine function of their code.",
    "other": "this method has no code, its functions can only be drawn at random.",
}
TILES = {
    "rows": ("labeled test rows", "{:,}"),
    "rmse": ("root mean square error", "{:.4g}"),
    "mae": ("mean absolute error", "{:.4g}"),
    "r2": ("R²: variance explained", "{:.3f}"),
    "coverage_95": ("of labels in 95 % intervals", "{:.1%}"),
    "width_95": ("mean width of 95 % intervals", "{:.4g}"),
    "accuracy": ("of classes right", "{:.1%}"),
    "nll": ("negative log likelihood", "{:.3f}"),
    "ece": ("calibration error", "{:.3f}"),
    "set_coverage_95": ("of classes in their 95 % sets", "{:.1%}"),
    "set_size_95": ("classes in a 95 % set, on average", "{:.2f}"),
    "flagged": ("of these rows flagged as unknown", "{:.1%}"),
}


def render(numbers: dict[str, Any]) -> str:
    """The whole page."""
    scripts = [get_plotlyjs(), *(_asset(name) for name in SCRIPTS)]
    functions = numbers["functions"]
    known = {**numbers, "tiles": tiles(numbers.get("summary", {})), "lead": lead(numbers)}
    known |= {
        "has_functions": functions is not None,
        "has_plane": functions is not None and functions["plane"] is not None,
        "left_out": 0 if functions is None else functions["left_out"],
        "no_plane": NO_PLANE["gpn" if numbers["fit"]["method"].startswith("gpn") else "other"],
        "css": Markup(_asset("report.css")),
        "data": Markup(as_json(_of_script(numbers))),
        "scripts": [Markup(script) for script in scripts],
        "policy": policy(scripts),
    }
    page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return page.from_string(_asset("page.html")).render(known)


def as_json(value: Any) -> str:
    """JSON in which no tag can begin; arrays as base64 of 32-bit numbers with their shape."""
    text = json.dumps(value, default=_packed, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def policy(scripts: list[str]) -> str:
    """What the browser may do: run these scripts, and fetch nothing."""
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def tiles(summary: dict[str, Any]) -> list[dict[str, str]]:
    """The key figures, as they are shown."""
    shown = [(TILES[name], value) for name, value in summary.items() if value is not None]
    return [{"name": name, "value": form.format(value)} for (name, form), value in shown]


def lead(numbers: dict[str, Any]) -> str:
    """One sentence: which model, looked at on which rows."""
    tables = " and ".join(f"{count:,} {name} rows" for name, count in numbers["tables"].items())
    kind = "A classifier" if numbers["kind"] == "classes" else "A regression"
    return f"{kind} by the method {numbers['fit']['method']}, looked at on {tables}."


def _of_script(numbers: dict[str, Any]) -> dict[str, Any]:
    """What the script needs; the rest is in the template already."""
    shown = {
        name: value for name, value in numbers.items() if name not in ("fit", "said", "summary")
    }
    return {**shown, "fit": {"target": numbers["fit"]["target"]}}


def _packed(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, np.ndarray):
        raise TypeError(f"a report must hold plain values and arrays, got {type(value).__name__}.")
    content = base64.b64encode(np.ascontiguousarray(value, "<f4").tobytes()).decode()
    return {"f32": content, "shape": list(value.shape)}


def _asset(name: str) -> str:
    return files("gpn.report").joinpath("assets", name).read_text(encoding="utf-8")
