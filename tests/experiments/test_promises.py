"""The experiments behind the promises: their parts on small examples, and their result files."""

import json
from typing import Any

import numpy as np
import pytest

from experiments import agreement, harness, newcomer, thousand_fits


def result(name: str) -> Any:
    return json.loads((harness.RESULTS / name).read_text())


class TestNewcomer:
    def test_there_are_forty_tables_of_eight_kinds(self) -> None:
        assert len(newcomer.MESSES) == 40
        assert len({name.split(":")[0] for name in newcomer.MESSES}) == 8

    @pytest.mark.parametrize("name", newcomer.MESSES)
    def test_every_mess_changes_the_table_and_keeps_its_columns(self, name: str) -> None:
        table = newcomer.clean(0)
        messy = newcomer.MESSES[name](table, np.random.default_rng(0))
        same = all(
            len(a) == len(b) and np.array_equal(a, b)
            for a, b in (
                (messy.x, table.x),
                (messy.y, table.y),
                (messy.pool, table.pool),
                (messy.new, table.new),
            )
        )
        assert not same
        assert messy.x.columns.tolist() == messy.pool.columns.tolist()
        assert messy.x.columns.tolist() == messy.new.columns.tolist()
        assert len(messy.x) == len(messy.y)
        assert np.isfinite(messy.x.to_numpy()).all()

    def test_a_verdict_needs_both_figures_and_a_name(self) -> None:
        best = {"r2": 0.9, "coverage": 0.95}
        assert newcomer.is_as_good({"r2": 0.86, "coverage": 0.91}, best)
        assert not newcomer.is_as_good({"r2": 0.84, "coverage": 0.95}, best)
        assert not newcomer.is_as_good({"r2": 0.9, "coverage": 0.89}, best)
        assert newcomer.names(["column 'heat' has -999 in 5 of 100 rows"], "heat")
        assert not newcomer.names(["column 'heat' has -999 in 5 of 100 rows"], "load")

    def test_one_table_from_end_to_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(newcomer, "SEEDS", 1)
        row = newcomer.one_table("shifts: Celsius as Fahrenheit", 17)
        assert row["verdict"] == "warned"
        assert "'speed'" in row["warning"][0]

    def test_no_table_is_silent(self) -> None:
        tables = result("newcomer.json")["tables"]
        assert {row["table"] for row in tables} == set(newcomer.MESSES)
        assert [row["table"] for row in tables if row["verdict"] == "silent"] == []


class TestThousandFits:
    def test_a_few_fits_are_measured(self) -> None:
        rows = list(thousand_fits.measured(4, 2))
        assert [row["fits"] for row in rows] == [2, 4]
        assert rows[0]["files"] == rows[1]["files"]

    def test_growth_is_from_a_fifth_to_the_end(self) -> None:
        rows = [{"fits": i, "megabytes": 100.0 + i, "files": 8} for i in range(1, 11)]
        assert thousand_fits.growth(rows) == {"megabytes": 8.0, "files": 0}

    def test_a_thousand_fits_leave_no_files_open_and_little_memory(self) -> None:
        found = result("thousand_fits.json")
        assert found["fits"] == 1000
        assert found["growth"]["files"] == 0
        assert found["growth"]["megabytes"] < 0.1 * found["rows"][1]["megabytes"]


class TestAgreement:
    def test_differences_are_in_units_of_the_deviation(self) -> None:
        one = {"mean": np.array([1.0, 2.0]), "std": np.array([0.5, 1.0])}
        two = {"mean": np.array([1.1, 2.1]), "std": np.array([0.5, 1.2])}
        assert agreement.largest(one, two) == {"mean": 0.2, "std": 0.2}

    def test_one_case_answers(self) -> None:
        found = agreement.CASES["posterior in closed form"]()
        assert found["mean"].shape == (agreement.NEW,)
        assert (found["std"] > 0).all()

    def test_threads_change_less_than_a_thousandth_of_a_deviation(self) -> None:
        rows = result("agreement.json")["table"]
        closed = [row for row in rows if "closed form" in row["case"]]
        assert closed
        between = [row for row in closed if row["between"] == "one and two threads"]
        assert max(row.get("mean", 0.0) for row in between) < 1e-3
        again = [row for row in rows if row["between"] == "two runs with one thread"]
        assert (
            max(row[name] for row in again for name in row if name not in ("case", "between")) == 0
        )
