"""Thousands of damaged files through every reader; a hundred thousand in `make test-all`."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

QUICK = {"images": 150, "models": 200, "pools": 150, "tables": 60, "commands": 15}
FULL = {"images": 9000, "models": 6000, "pools": 9000, "tables": 2500, "commands": 400}
ROOT = Path(__file__).parents[2]


def environment() -> dict[str, str]:
    """Arrow's own allocator reserves address space, and would meet the limit before any input."""
    return {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1"}


def fuzz(group: str, count: int, record: Callable[[str, object], None]) -> None:
    """Nothing but "read" and "refused", and no crash of the process that reads."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.drive", group, str(count)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr[-3000:]
    for result in results:
        assert not result["wrong"], json.dumps(result["wrong"][:3], indent=1).replace("\\n", "\n")
        assert result.get("refused", 0) > 0.1 * result["inputs"], "damage must do something"
    record("fuzzed", sum(result["inputs"] for result in results))


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory by Linux's means")
@pytest.mark.parametrize("group", QUICK)
def test_damaged_files_are_refused_in_our_own_words(
    group: str, record_property: Callable[[str, object], None]
) -> None:
    fuzz(group, QUICK[group], record_property)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits memory by Linux's means")
@pytest.mark.parametrize("group", FULL)
def test_a_hundred_thousand_damaged_files(
    group: str, record_property: Callable[[str, object], None]
) -> None:
    fuzz(group, FULL[group], record_property)


def test_the_full_run_is_a_hundred_thousand() -> None:
    readers = {"images": 9, "models": 4, "pools": 2, "tables": 3, "commands": 5}
    assert sum(FULL[group] * readers[group] for group in FULL) >= 100_000
