"""Tables for the command line, and what a command that went well says."""

import json
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from typer.testing import Result

Command = Callable[..., Result]


def rows(n: int = 200, seed: int = 0, spread: float = 1.0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "size": rng.uniform(-spread, spread, n),
            "heat": 300 + 50 * rng.uniform(-spread, spread, n),
            "colour": rng.choice(["red", "green", "blue"], n),
        }
    )
    table.loc[:4, "heat"] = np.nan
    table["yield"] = 10 * table["size"] + (table["colour"] == "red") + rng.normal(0, 0.1, n)
    table["grade"] = np.where(table["size"] > 0, "good", "bad")
    return table


FIT = ("fit", "labeled.csv", "--target", "yield", "--unlabeled", "pool.csv", "--out", "m.gpn")
PREDICT = ("predict", "m.gpn", "test.csv", "--out", "o.csv")


def done(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def check_refusal(run: Command, arguments: tuple[str, ...], message: str) -> None:
    """Status 1 and one line that says why, as text or as JSON; no file appears or goes."""
    before = sorted(os.listdir())
    result = run(*arguments)
    assert result.exit_code == 1, result.output
    assert result.stderr.count("error: ") == 1
    assert message in result.stderr
    as_json = run(*arguments, "--json")
    assert message in json.loads(as_json.stderr)["error"]
    assert sorted(os.listdir()) == before
