"""A header that claims a terabyte allocates nothing, and a bomb is refused before it expands."""

import json
import subprocess
import sys

import pytest

from tests.fuzz.test_fuzz import ROOT, environment

FORMATS = {"idx", "idx.gz", "npz", "posterior file", "csv.gz", "parquet"}


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory by Linux's means")
def test_claims_of_terabytes_and_bombs_are_refused_in_little_memory() -> None:
    command = [sys.executable, "-m", "tests.fuzz.claims"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each for each in outcomes if each["outcome"] != "refused"] == []
    assert {each["file"].split(":")[0] for each in outcomes} == FORMATS
