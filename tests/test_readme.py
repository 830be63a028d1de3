"""The README's and CONTRIBUTING's code runs as written, and what they name exists."""

import json
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
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


def test_there_is_code_to_run() -> None:
    assert blocks(README, "python")


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


def metric(task: str, name: str, digits: str) -> str:
    measured = json.loads((RESULTS / task / "gpn.json").read_text())["metrics"]
    return format(measured[name]["mean"], digits)


def test_the_numbers_on_real_data_are_those_of_the_files() -> None:
    text = " ".join(README.split())
    assert f"OOD AUC {metric('superconductor', 'ood_auc', '.3f')} on superconductor" in text
    assert f"{metric('mnist', 'ood_auc', '.4f')} on MNIST" in text
    cifar = metric("cifar10", "ood_auc", ".4f"), metric("cifar10", "accuracy", ".1%")
    assert f"{cifar[0]} with {cifar[1].replace('%', ' %')} accuracy on CIFAR-10" in text


def test_the_command_lines_figures_are_those_of_its_file() -> None:
    report = json.loads((RESULTS / "superconductor" / "command-line.json").read_text())
    minutes, measured = report["seconds"]["all"] / 60, report["metrics"]
    said = (
        f"take {minutes:.1f} minutes on two CPU cores with defaults: OOD AUC "
        f"{measured['ood_auc']:.3f}, and {100 * measured['coverage_95']:.0f} % of new labels"
    )
    assert said in " ".join(README.split())


def benchmark(name: str) -> dict[str, float]:
    path = ROOT / "benchmarks" / "results" / f"{name}.json"
    return {row["what"]: row["value"] for row in json.loads(path.read_text())["rows"]}


def test_the_memory_of_big_pools_is_that_of_its_file() -> None:
    found = benchmark("big_pool")
    small, large = (
        found[f"default_fit, {rows} rows of 81 float32 in .npy: peak memory"]
        for rows in ("100,000", "10,000,000")
    )
    assert f"from {small:.0f} to {large:.0f} MB" in " ".join(README.split())


def test_the_benchmarks_figures_are_those_of_their_files() -> None:
    text = (ROOT / "benchmarks" / "README.md").read_text()
    images = "10000 images, TF32: ratio"
    assert f"TF32 | {benchmark('draws')[images]:.3f} ×" in text
    assert f"TF32 | **{benchmark('moments')[images]:.3f} ×**" in text
    step = "200 steps of 256 labels, steps replayed: ratio"
    assert f"both replayed | {benchmark('training')[step]:.2f} ×" in text
    members = "40 steps, members on the same trunk: ratio"
    assert f"as one axis | {benchmark('ensemble')[members]:.3f} ×" in text
