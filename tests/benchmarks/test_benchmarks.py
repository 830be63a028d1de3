"""Every benchmark runs on small synthetic data, and works are timed in turn."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from benchmarks import harness
from benchmarks.__main__ import BENCHMARKS, main, run
from benchmarks.context import BenchmarkContext
from benchmarks.harness import Row, in_turn, table

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_writes_a_file(name: str, tmp_path: Path) -> None:
    rows = run(name, BenchmarkContext(CPU, tmp_path, quick=True))
    report = json.loads((tmp_path / f"{name}.json").read_text())
    assert set(report) >= {"name", "device", "versions", "rows"}
    assert report["name"] == name
    assert [Row(**row) for row in report["rows"]] == rows
    assert any(row.against for row in rows), "something must be compared"
    assert all(row.value is None or row.value >= 0 for row in rows)
    assert table(tmp_path).count("\n") == 1 + len(rows)


def test_works_are_timed_in_turn_and_the_median_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two warm-up rounds are not counted; of 5, 1 and 3 seconds, 3 is the median."""
    clock, log = [0.0], []
    durations = {"one": iter([90, 90, 5, 1, 3]), "two": iter([90, 90, 1, 1, 7])}

    def work(name: str) -> Callable[[], None]:
        def run() -> None:
            log.append(name)
            clock[0] += next(durations[name])

        return run

    monkeypatch.setattr(harness.time, "perf_counter", lambda: clock[0])
    times = in_turn({"one": work("one"), "two": work("two")}, 3, 2, CPU)
    assert times == {"one": 3, "two": 1}
    assert log == ["one", "two"] * 5


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    main(["list"])
    listed = capsys.readouterr().out
    assert all(name in listed for name in BENCHMARKS)
    with pytest.raises(SystemExit):
        main(["run", "nothing"])
    assert "must be one of" in capsys.readouterr().err
    main(["run", "ensemble_axis", "--quick", "--device", "cpu"])
    assert "ratio" in capsys.readouterr().out.splitlines()[-1]
