"""Table, summary and figure from synthetic result files."""

from pathlib import Path

import pytest

from experiments import __main__ as command
from experiments import harness
from experiments.tables import report


def write(folder: Path, table: str, method: str, nll: float, rmse: float, splits: int = 2) -> None:
    row = {"n_train": 90, "n_test": 10, "n_columns": 3, "coverage_95": 0.9, "fit_seconds": 1.0}
    rows = [{"split": k, **row, "nll": nll + k, "rmse": rmse} for k in range(splits)]
    harness.save(folder / "tables" / table / f"{method}.json", {"rows": rows})


@pytest.fixture
def files(results: Path) -> Path:
    """GPN is best on one table and 0.2 nats and 10 % behind the GP on the other."""
    write(results, "first", "gpn", nll=1.0, rmse=2.0)
    write(results, "first", "gp-ard", nll=1.04, rmse=4.0)
    write(results, "second", "gpn", nll=0.3, rmse=1.1)
    write(results, "second", "gp-ard", nll=0.1, rmse=1.0, splits=5)
    return results


def test_the_best_of_each_table_is_bold_on_shared_splits(files: Path) -> None:
    lines = [line.strip("| ").split(" | ") for line in report.table().splitlines()]
    named = [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]
    assert [row["table"] for row in named] == ["first", "second"]
    assert (named[0]["rows"], named[0]["columns"]) == ("100", "3")
    assert (named[0]["GPN"], named[0]["GP, ARD"]) == ("**1.50**<br>**2**", "1.54<br>4")
    assert (named[1]["GPN"], named[1]["GP, ARD"]) == ("0.80<br>1.1", "**0.60**<br>**1**")
    assert named[0]["GPN coverage"] == "90.0%"
    assert "CatBoost" not in named[0]  # which has no files


def test_the_summary_counts_what_is_near_the_best(files: Path) -> None:
    lines = [line.strip("| ").split(" | ") for line in report.summary().splitlines()]
    assert lines[2][:9] == ["GPN", "2", "1", "1.50", "0.20", "1", "1.50", "1.049", "1.10"]
    assert lines[3][:9] == ["GP, ARD", "2", "2", "1.50", "0.04", "1", "1.50", "1.414", "2.00"]


def test_the_command_writes_the_page_and_the_picture(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command.main(["tables", "report"])
    page = (files / "tables" / "tables.md").read_text()
    assert report.table() in page
    assert report.summary() in page
    assert page.strip() in capsys.readouterr().out
    assert (files / "figures" / "tables.png").read_bytes().startswith(b"\x89PNG")


def test_without_files_it_says_what_to_run(results: Path) -> None:
    with pytest.raises(SystemExit, match="error: a report must have result files"):
        command.main(["tables", "report"])
