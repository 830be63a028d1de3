"""Every example runs as written, shows what it says, and writes nothing but its picture."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

matplotlib = pytest.importorskip("matplotlib")
from matplotlib.image import imread  # noqa: E402

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
GALLERY = ROOT / "docs" / "gallery"
MAX_LINES, MAX_BYTES = 59, 150_000


def run(example: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The example in a process of its own, in an empty folder, with warnings as errors."""
    source = ROOT / "src"
    settings = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    strict = ["-W", "error", "-W", "ignore::DeprecationWarning"]  # GPyTorch's own
    command = [sys.executable, *strict, str(ROOT / "examples" / f"{example}.py")]
    out = ("--out", str(folder / "picture.png"))
    return subprocess.run(
        [*command, *out, *options],
        cwd=folder,
        env=settings,
        capture_output=True,
        text=True,
        check=False,
    )


def numbers(text: str) -> list[float]:
    """What stands before a % sign, and counts, in the order of the text."""
    return [float(number) for number in re.findall(r"(\d+(?:\.\d+)?)(?=%| of )", text)]


def ood_rows_are_flagged(output: str) -> None:
    in_distribution, ood, *_ = numbers(output)
    assert in_distribution < 25, "a twentieth on average over fits; the highest of 25 scores"
    assert ood > 80


def suggestions_are_better(output: str) -> None:
    random, suggest = numbers(output)
    assert suggest > random


def the_night_is_scored(output: str) -> None:
    (aside,) = numbers(output)
    assert 1400 < aside < 2100, "the 1,500 rows in °F, and few others"


SHORT = {"bayesian_optimisation": ["--steps", "2"]}
CLAIMS = {
    "active_learning": suggestions_are_better,
    "batch_job": the_night_is_scored,
    "frozen_features": ood_rows_are_flagged,
    "images_own_trunk": ood_rows_are_flagged,
    "tabular_with_pool": ood_rows_are_flagged,
}


@pytest.mark.parametrize("example", [path.stem for path in EXAMPLES])
def test_it_runs_and_shows_what_it_says(example: str, tmp_path: Path) -> None:
    done = run(example, tmp_path, *SHORT.get(example, []))
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["picture.png"]
    assert_is_a_picture(tmp_path / "picture.png")
    if example in CLAIMS:
        CLAIMS[example](done.stdout)


def test_the_batch_job_says_by_its_status_that_too_much_is_unknown(tmp_path: Path) -> None:
    assert run("batch_job", tmp_path, "--too-many", "0.1").returncode == 3


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_is_short_and_in_the_gallery(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_LINES
    tutorials = "".join(page.read_text() for page in (ROOT / "docs" / "tutorials").glob("*.md"))
    assert f"(../../examples/{path.name})" in tutorials
    assert f"(../gallery/{path.stem}.png)" in tutorials
    assert_is_a_picture(GALLERY / f"{path.stem}.png")
    assert (GALLERY / f"{path.stem}.png").stat().st_size < MAX_BYTES


def assert_is_a_picture(path: Path) -> None:
    pixels = imread(path)
    assert min(pixels.shape[:2]) > 200
    assert pixels[..., :3].std() > 0.05, "not blank"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_overwrites_no_tracked_picture(path: Path) -> None:
    """By default the picture goes to demo/ of the current folder, which git ignores."""
    assert f'Path("demo/{path.stem}.png")' in path.read_text()
