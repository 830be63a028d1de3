"""Inputs that guided fuzzing found: found/GROUP/READER/ holds them, and each is refused now."""

import signal
import sys
import warnings
from pathlib import Path

import pytest

from tests.fuzz import drive

FOUND = Path(__file__).parent / "found"
CASES = sorted(FOUND.glob("*/*/*.bin"))


def test_there_are_some() -> None:
    assert CASES


@pytest.mark.skipif(sys.platform != "linux", reason="limits time by Linux's means")
@pytest.mark.parametrize("case", CASES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_an_input_that_was_found_is_refused(case: Path, tmp_path: Path) -> None:
    group, name = case.parts[-3:-1]
    reader = next(each for each in drive.GROUPS[group](tmp_path) if each.name == name)
    previous = signal.signal(signal.SIGPROF, drive._alarm)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert drive.outcome_of(reader, case.read_bytes()) == "refused"
    finally:
        signal.signal(signal.SIGPROF, previous)
