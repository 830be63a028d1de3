"""`gpn watch`: status 0 without drift, 3 with one, and the usual one for what cannot be used."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.cli.command import Command, check_refusal, done


def rows(n: int, seed: int, shift: float = 0.0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"speed": rng.normal(size=n) + shift, "heat": 300 + rng.normal(size=n)})
    days = pd.Timestamp("2025-01-01") + pd.to_timedelta(rng.integers(0, 90, n), "D")
    table["day"] = days.strftime("%Y-%m-%d")
    table["colour"] = rng.choice(["red", "blue"], n)
    table["yield"] = 2 * table["speed"] + (table["colour"] == "red") + rng.normal(0, 0.2, n)
    return table


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that stores no rows for its report."""
    from gpn.tables.model import fit_table

    path = tmp_path_factory.mktemp("watch") / "m.gpn"
    fit_table(rows(120, 0), "yield", mean=None, keep_rows=False, random_state=0).save(path)
    return path


def test_rows_like_those_of_the_fit_have_status_0(run: Command, model: Path) -> None:
    rows(200, 1).to_csv("new.csv", index=False)
    found = done(run("watch", model, "new.csv", "--json"))
    assert not found["has_drifted"]
    assert found["moved"] == []
    assert found["coverage"][0]["rows"] == 200


def test_a_column_that_moved_has_status_3_and_is_named(run: Command, model: Path) -> None:
    new = rows(200, 1, shift=1.0).drop(columns="yield")
    new["day"] = "2026-02-03"
    new.to_csv("new.csv", index=False)
    result = run("watch", model, "new.csv")
    assert result.exit_code == 3
    assert result.stdout.startswith("drift in 200 rows")
    assert "column 'speed' moved: median" in result.stdout
    assert "→ 2026-02-03" in result.stdout, "a date as it stands in the table"
    assert "'heat' moved" not in result.stdout
    assert "coverage is not checked" in result.stdout
    as_json = run("watch", model, "new.csv", "--json")
    assert as_json.exit_code == 3
    assert as_json.stderr == ""


def test_labels_that_come_late_are_compared(run: Command, model: Path) -> None:
    new = rows(200, 1)
    new["yield"] += 3
    new.loc[50:, "yield"] = np.nan
    new.to_csv("new.csv", index=False)
    result = run("watch", model, "new.csv")
    assert result.exit_code == 3
    assert "of the labels lie where 95% should" in result.stdout
    assert "of 50, 95.0% expected" in result.stdout


def test_reference_rows_are_what_is_compared_with(run: Command, model: Path) -> None:
    for name, seed in (("new.csv", 1), ("month.csv", 2)):
        rows(200, seed, shift=1.0).drop(columns="yield").to_csv(name, index=False)
    assert run("watch", model, "new.csv").exit_code == 3
    assert run("watch", model, "new.csv", "--reference", "month.csv").exit_code == 0


def test_what_cannot_be_used_has_its_usual_status(run: Command, model: Path) -> None:
    rows(20, 1).drop(columns="heat").to_csv("new.csv", index=False)
    check_refusal(run, ("watch", str(model), "new.csv"), "'heat' is missing")
    check_refusal(run, ("watch", str(model), "no.csv"), "there is no table no.csv")
    rows(20, 1).to_csv("new.csv", index=False)
    share = "false_alarms must lie strictly between 0 and 1"
    check_refusal(run, ("watch", str(model), "new.csv", "--false-alarms", "2"), share)
    assert run("watch", model, "new.csv", "--nonsense").exit_code == 2


def test_of_a_long_file_a_sample_is_compared(
    run: Command, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpn.cli.commands.MAX_WATCHED_ROWS", 50)
    rows(200, 1).to_csv("new.csv", index=False)
    result = run("watch", model, "new.csv")
    assert "200 rows, of which 50 are taken at random" in result.stderr
    assert result.stdout.startswith("no drift in 50 rows")
