"""What a command cannot do it refuses in one line, and leaves nothing behind."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.cli.command import FIT, PREDICT, Command, check_refusal


def spoil(name: str, change: Callable[[pd.DataFrame], pd.DataFrame]) -> Callable[[], Any]:
    return lambda: change(pd.read_csv(name)).to_csv(name, index=False)


def cut(name: str) -> Callable[[], Any]:
    return lambda: Path(name).write_bytes(Path(name).read_bytes()[:2000])


def empty(name: str) -> Callable[[], Any]:
    return lambda: Path(name).write_text("")


BAD_FITS: list[tuple[Callable[[], Any], tuple[str, ...], str]] = [
    (lambda: None, (*FIT[:3], "nothing", *FIT[4:]), "target must be a column, got 'nothing'"),
    (
        spoil("labeled.csv", lambda t: t.assign(**{"yield": np.nan})),
        FIT,
        "must be known in some rows, it is missing in all 200",
    ),
    (spoil("labeled.csv", lambda t: t.assign(**{"yield": "same"})), FIT, "two classes at least"),
    (spoil("labeled.csv", lambda t: t[["yield"]]), FIT, "a column to read besides 'yield'"),
    (spoil("pool.csv", lambda t: t.head(0)), FIT, "at least one row, pool.csv has none"),
    (spoil("pool.csv", lambda t: t.drop(columns="heat")), FIT, "'heat' is missing"),
    (empty("labeled.csv"), FIT, "at least one row, labeled.csv has none"),
    (lambda: None, ("fit", "none.csv", *FIT[2:]), "there is no table none.csv"),
    (lambda: None, ("fit", "labeled.txt", *FIT[2:]), "must end in .csv"),
    (
        lambda: None,
        (*FIT[:-1], "no/such/m.gpn"),
        "folder of no/such/m.gpn must exist and be writable",
    ),
    (lambda: None, (*FIT, "--method", "magic"), "a method must be one of"),
    (lambda: None, (*FIT, "--kind", "ordinal"), "kind must be auto, regression or classification"),
    (lambda: None, (*FIT, "--device", "cuda:7"), "device must be one that this machine has"),
]


BAD_QUESTIONS: list[tuple[Callable[[], Any], tuple[str, ...], str]] = [
    (spoil("test.csv", lambda t: t.drop(columns="size")), PREDICT, "'size' is missing"),
    (
        spoil("test.csv", lambda t: t.assign(size="tall")),
        PREDICT,
        "finite numbers, got 'tall'",
    ),
    (spoil("test.csv", lambda t: t.assign(size=np.inf)), PREDICT, "must hold finite numbers"),
    (empty("test.csv"), PREDICT, "at least one row"),
    (cut("m.gpn"), PREDICT, "truncated or of another kind"),
    (lambda: Path("m.gpn").write_bytes(b"PK"), PREDICT, "truncated or of another kind"),
    (lambda: Path("m.gpn").unlink(), PREDICT, "there is no model file m.gpn"),
    (lambda: None, (*PREDICT[:-1], "no/o.csv"), "must exist and be writable"),
    (lambda: None, (*PREDICT[:-1], "o.xlsx"), "must end in .csv"),
    (lambda: None, (*PREDICT, "--level", "2"), "level must lie strictly between"),
    (lambda: None, ("evaluate", "m.gpn", "pool.csv"), "target must be a column, got 'yield'"),
]


@pytest.mark.parametrize(
    ("before", "spoilt", "arguments", "message"),
    [((), *case) for case in BAD_FITS] + [(FIT, *case) for case in BAD_QUESTIONS],
)
def test_what_is_bad_is_refused_and_leaves_nothing(
    before: tuple[str, ...],
    spoilt: Callable[[], Any],
    arguments: tuple[str, ...],
    message: str,
    run: Command,
    tables: Path,
) -> None:
    if before:
        run(*before)
    spoilt()
    check_refusal(run, arguments, message)


def test_a_wrong_option_is_status_2(run: Command) -> None:
    assert run("fit", "a.csv").exit_code == 2
    assert run("predict", "--nonsense").exit_code == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_not_writable(run: Command, tables: Path) -> None:
    Path("locked").mkdir(mode=0o500)
    result = run(*FIT[:-1], "locked/m.gpn")
    assert result.exit_code == 1
    assert "must exist and be writable" in result.stderr


def test_a_spoilt_number_in_the_target_is_named(run: Command, tables: Path) -> None:
    table = pd.read_csv("labeled.csv").astype({"yield": object})
    table.loc[7, "yield"] = "oops"
    table.to_csv("labeled.csv", index=False)
    result = run(*FIT)
    assert result.exit_code == 1
    assert "numbers but for 'oops'; correct or empty" in result.stderr


def test_columns_that_would_be_overwritten_get_another_name(run: Command, tables: Path) -> None:
    run(*FIT)
    table = pd.read_csv("test.csv").assign(mean=1.0)
    table.to_csv("test.csv", index=False)
    done = run(*PREDICT)
    assert done.exit_code == 0
    said = "warning: the table has a column 'mean' already; what is predicted is 'gpn_mean'.\n"
    assert done.stderr == said
    scored = pd.read_csv("o.csv")
    assert (scored["mean"] == 1).all()
    assert scored["gpn_mean"].std() > 0
    table.assign(gpn_mean=2.0).to_csv("test.csv", index=False)
    for out in ("p.csv", "p.parquet"):
        result = run("predict", "m.gpn", "test.csv", "--out", out)
        assert result.exit_code == 1
        assert "a column that is to be written, got 'gpn_mean'; rename it" in result.stderr
        assert not Path(out).exists()


@pytest.mark.parametrize("device", ["nonsense", "cuda:7"])
def test_devices_that_are_not_there(device: str, run: Command, tables: Path) -> None:
    run(*FIT)
    result = run(*PREDICT, "--device", device)
    assert result.exit_code == 1
    assert "device must be" in result.stderr
    other = run(*FIT, "--method", "ensemble", "--device", device)
    assert "for the method gpn only" in other.stderr


def test_a_folder_is_no_file(run: Command, tables: Path) -> None:
    Path("models").mkdir()
    assert "must be a file, got the folder models" in run(*FIT[:-1], "models").stderr
