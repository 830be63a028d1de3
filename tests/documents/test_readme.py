"""The README's code and commands run as written, and what it names exists.

Its numbers are compared with the result files in `test_docs.py`.
"""

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("code", blocks(README, "python"))
def test_readme_code_runs(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    assert "print" not in code or capsys.readouterr().out


def test_it_is_a_screen_and_a_half_with_ten_lines_of_each() -> None:
    assert len(README.splitlines()) <= 95
    (python,), shell = blocks(README, "python"), blocks(README, "bash")[1]
    assert len([line for line in python.splitlines() if line]) <= 12
    assert len(shell.splitlines()) <= 10


def test_its_example_flags_few_known_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(blocks(README, "python")[0], "README.md", "exec"), names)
    rng = np.random.default_rng(1)
    known, far = rng.uniform(-1, 1, (2000, 2)), rng.uniform(2, 3, (200, 2))
    assert names["model"].is_ood(known).mean() < 0.08
    assert names["model"].is_ood(far).all()
    y = 20 + 5 * known[:, 0] - 3 * known[:, 1] ** 2 + rng.normal(0, 0.3, 2000)
    low, high = names["model"].predict_interval(known, level=0.9)
    assert 0.85 < np.mean((low <= y) & (y <= high)) < 0.95


def test_its_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On small synthetic tables, in the order of the text."""
    pd, testing = pytest.importorskip("pandas"), pytest.importorskip("typer.testing")
    pytest.importorskip("plotly")
    from gpn.cli.commands import app

    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name in ("labeled", "pool", "new", "test", "held_out", "other"):
        x = rng.uniform(-1, 1, (60, 2)) + (5 if name == "other" else 0)
        table = pd.DataFrame(x, columns=["heat", "time"])
        if name in ("labeled", "test", "held_out"):
            table["yield"] = x[:, 0] + rng.normal(0, 0.1, 60)
        table.to_csv(f"{name}.csv", index=False)
    for line in blocks(README, "bash")[1].splitlines():
        words = shlex.split(line, comments=True)
        assert words[0] == "gpn"
        done = testing.CliRunner().invoke(app, words[1:])
        assert done.exit_code == 0, f"{line}\n{done.output}"
    assert Path("scored.csv").exists()
    assert Path("report.html").exists()


def test_first_block_is_the_two_commands() -> None:
    first = blocks(README, "bash")[0]
    assert [line.split("#")[0].strip() for line in first.splitlines()] == ["make demo", "make test"]
    for target in ("demo", "test"):
        plan = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, check=False)
        assert plan.returncode == 0, plan.stderr


@pytest.mark.parametrize("path", re.findall(r"\]\(((?!http)[^)#]+)\)", README))
def test_files_that_the_readme_names_exist(path: str) -> None:
    assert (ROOT / path).exists(), path


RESULTS = ROOT / "experiments" / "results"


def test_the_confirmed_numbers_are_those_of_their_file() -> None:
    again = json.loads((RESULTS / "superconductor" / "gpn-again.json").read_text())["metrics"]
    loss, width, coverage, auc = (
        again[name]["mean"] for name in ("id_loss", "id_width", "ood_coverage", "ood_auc")
    )
    claim = (
        f"loss {loss:.3f}, width {width:.3f}, OOD CI-correct {100 * coverage:.1f} %, AUC {auc:.3f}"
    )
    assert claim in " ".join((ROOT / "experiments" / "README.md").read_text().split())


def benchmark(name: str) -> dict[str, float]:
    path = ROOT / "benchmarks" / "results" / f"{name}.json"
    return {row["what"]: row["value"] for row in json.loads(path.read_text())["rows"]}


def test_the_benchmarks_figures_are_those_of_their_files() -> None:
    text = (ROOT / "benchmarks" / "README.md").read_text()
    images = "10000 images, TF32: ratio"
    assert f"TF32 | {benchmark('draws')[images]:.3f} ×" in text
    assert f"TF32 | {benchmark('moments')[images]:.3f} ×" in text
    step = "200 steps of 256 labels, steps replayed: ratio"
    assert f"both replayed | {benchmark('training')[step]:.2f} ×" in text
    members = "40 steps, members on the same trunk: ratio"
    assert f"as one axis | {benchmark('ensemble')[members]:.3f} ×" in text
    default = "default, 1539 steps, 9852 labels, 2 cores: "
    cpu = benchmark("superconductor_cpu")
    auc, seconds = cpu[default + "ood_auc"], cpu[default + "fit"]
    assert f"default, AUC {auc:.3f} | {seconds:.0f} s" in text


@pytest.mark.parametrize(
    "peer", ["GPN", "GPyTorch SVGP", "laplace-torch", "torch-uncertainty"], ids=lambda name: name
)
def test_the_peers_are_those_of_their_file(peer: str) -> None:
    found = {k.split(": ")[1]: v for k, v in benchmark("peers").items() if k.startswith(peer)}
    text = (ROOT / "benchmarks" / "README.md").read_text()
    (line,) = [
        row for row in text.splitlines() if row.startswith(f"| {peer.split()[0]}") and " ms" in row
    ]
    for claim in (
        f"| {found['fit']:.1f} s |",
        f"| {1000 * found['100 functions at 4000 rows']:.1f} ms |",
        "| 1 × |" if peer == "GPN" else f"| {found['100 functions at 4000 rows, ratio']:.1f} × |",
        f"| {found['ood_auc']:.3f} |",
    ):
        assert claim in line


def test_the_profile_is_that_of_its_file() -> None:
    text = (ROOT / "benchmarks" / "README.md").read_text()
    found = benchmark("profile")
    for what, name in {
        "choosing and augmenting rows": "rows and augmentation",
        "a step of the trunk on 512 labels, replayed": "step of the trunk on as many labels",
        "**a GPN's step, replayed**": "step of the GPN",
        "a GPN's step, not replayed": "step of the GPN, nothing replayed",
    }.items():
        assert f"| {what} | {found[name]:.2f} ms |" in text
