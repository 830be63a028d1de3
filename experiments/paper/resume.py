"""What earlier runs have saved, and whether it is what would be run now."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from experiments import harness
from experiments.paper.context import Log, RunContext

HARDWARE = {"device", "devices", "num_nodes", "strategy", "graphs"}
Row = dict[str, Any]


def same_config(config: Any, saved: Any) -> bool:
    """Whether `saved` is what `config` resolved to, on any device.

    Open values were filled in from the data, and a field that an older file does not have cannot
    contradict.
    """
    if isinstance(config, dict) and isinstance(saved, dict):
        shared = config.keys() & saved.keys() - HARDWARE
        return all(same_config(config[name], saved[name]) for name in shared)
    return config in (None, "auto") or config == saved


def matches(key: Row, row: Row) -> bool:
    """Whether a row has these values."""
    return all(row.get(name) == value for name, value in key.items())


def load_run(path: Path, key: Row, method: Any) -> Row | None:
    """The saved run, if it has these values and was made with the method's configuration."""
    run = harness.load(path)
    if run is None or not matches(key, run):
        return None
    return run if same_config(harness.plain(method.config), run.get("config")) else None


def row_key(context: RunContext, name: str, method: Any, **which: Any) -> Row:
    """What identifies a row: the method, `which` run of it, its hyperparameter and its steps."""
    setting = {context.plan.grid(name)[0]: context.chosen(name)}
    steps = harness.plain(method.config)["train"]["steps"]
    return {"method": name, **which, **setting, "steps": steps}


def finished_report(
    context: RunContext,
    method: str,
    values: list[Any],
    seeds: Iterable[int],
    name: str,
    log: Log = print,
) -> dict[str, Any] | None:
    """The method's summary, if it has all of these seeds, chosen among all of these values."""
    path = context.file(name)
    report = harness.load(path) or {}
    choice = report.get("choice", {})
    if (choice.get("dial"), choice.get("values")) != (context.plan.grid(method)[0], values):
        return None
    config = harness.plain(context.method(method, choice["chosen"]).config)
    same = report.get("seeds") == list(seeds) and report.get("quick") == context.quick
    if not same or not same_config(config, report.get("config")):
        return None
    log(
        f"{context.name} {method} is finished: {path} has every seed of the present settings; to "
        f"run it again, delete that file and runs/{method}-[0-9]*.json next to it"
    )
    return report


def read_rows(path: Path, quick: float | None) -> list[Row]:
    """The rows of an earlier summary, each with its device."""
    report = harness.load(path) or {}
    if report.get("quick") != quick:
        return []
    return [{"device": report.get("device"), **row} for row in report.get("rows", [])]


def merge_rows(
    context: RunContext, path: Path, new: Iterable[Row], key: Callable[[Row], Any]
) -> Path:
    """Add rows to a summary, in the order of their keys; of rows with one key the new one stays."""
    earlier = read_rows(path, context.quick)  # another process may have written it meanwhile
    by_key = {key(row): row for row in (*earlier, *new)}
    rows = [by_key[each] for each in sorted(by_key)]
    if rows == earlier:
        return path
    devices = " and ".join(dict.fromkeys(str(row["device"]) for row in rows))
    report = {"task": context.name, "device": devices, "versions": harness.versions()}
    return harness.save(path, {**report, "quick": context.quick, "rows": rows})
