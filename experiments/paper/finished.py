"""What earlier runs have left, and whether it is what would be run today."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from experiments import results
from experiments.paper.place import Place

HARDWARE = {"device", "devices", "num_nodes", "strategy", "graphs"}


def same_config(asked: Any, kept: Any) -> bool:
    """Whether `kept` is what `asked` came to, on whatever device.

    Values that were left open have been filled in from the data, and what an older file does not
    name it cannot contradict.
    """
    if isinstance(asked, dict) and isinstance(kept, dict):
        shared = asked.keys() & kept.keys() - HARDWARE
        return all(same_config(asked[name], kept[name]) for name in shared)
    return asked in (None, "auto") or asked == kept


def fits(where: dict[str, Any], row: dict[str, Any]) -> bool:
    """Whether a row is of this kind."""
    return all(row.get(name) == value for name, value in where.items())


def steps_of(method: Any) -> int:
    """How long the method trains."""
    return results.plain(method.config)["train"]["steps"]


def complete(
    place: Place, task: str, method: str, settings: list[int], seeds: Iterable[int], name: str
) -> dict[str, Any] | None:
    """The method's summary, if it has all of these seeds, chosen from all of these settings."""
    report = results.kept(place.file(task, name)) or {}
    choice = report.get("choice", {})
    own = [place.setting(task, method, number) for number in settings]
    if [{choice.get("dial"): value} for value in choice.get("values", [])] != own:
        return None
    asked = results.plain(place.method(task, method, choice["chosen"]).config)
    same = report.get("seeds") == list(seeds) and report.get("quick") == place.quick
    return report if same and same_config(asked, report.get("config")) else None


def rows_of(path: Path, quick: float | None) -> list[dict[str, Any]]:
    """The rows of an earlier summary, each with the device that it was made on."""
    report = results.kept(path) or {}
    if report.get("quick") != quick:
        return []
    return [{"device": report.get("device"), **row} for row in report.get("rows", [])]


def save_rows(path: Path, task: str, rows: list[dict[str, Any]], quick: float | None) -> Path:
    """A summary of rows; where nothing is new, the file stays as it is."""
    if rows_of(path, quick) == rows:
        return path
    devices = " and ".join(dict.fromkeys(str(row["device"]) for row in rows))
    report = {"task": task, "device": devices, "versions": results.versions(), "quick": quick}
    return results.save(path, {**report, "rows": rows})
