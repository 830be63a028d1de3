"""Every example runs, in short."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHORT = {"bayesian_optimisation.py": ["--steps", "2", "--out", "picture.png"]}


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "examples").glob("*.py")))
def test_an_example_runs_and_draws(name: str, tmp_path: Path) -> None:
    call = [sys.executable, str(ROOT / "examples" / name), *SHORT[name]]
    here = {"PYTHONPATH": str(ROOT / "src"), "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        call, cwd=tmp_path, env={**os.environ, **here}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "picture.png").stat().st_size > 10_000
