"""The README's and CONTRIBUTING's code runs as written, and what they name exists."""

import json
import re
import subprocess
from pathlib import Path
from statistics import fmean

import pytest

from experiments.tables import report

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


def test_the_confirmed_numbers_are_those_of_their_file() -> None:
    again = json.loads((RESULTS / "superconductor" / "gpn-again.json").read_text())["metrics"]
    loss, width, coverage, auc = (
        again[name]["mean"] for name in ("id_loss", "id_width", "ood_coverage", "ood_auc")
    )
    claim = (
        f"loss {loss:.3f}, width {width:.3f}, OOD CI-correct {100 * coverage:.1f} %, AUC {auc:.3f}"
    )
    assert claim in " ".join((ROOT / "experiments" / "README.md").read_text().split())


def test_the_command_lines_figures_are_those_of_its_file() -> None:
    report = json.loads((RESULTS / "superconductor" / "command-line.json").read_text())
    minutes, measured = report["seconds"]["all"] / 60, report["metrics"]
    claim = (
        f"take {minutes:.1f} minutes on two CPU cores with defaults: OOD AUC "
        f"{measured['ood_auc']:.3f}, and {100 * measured['coverage_95']:.0f} % of new labels"
    )
    assert claim in " ".join(README.split())


def test_the_classes_that_it_loses_are_those_of_its_files() -> None:
    def nll(table: str, method: str) -> float:
        path = RESULTS / "classes" / table / f"{method}.json"
        return float(json.loads(path.read_text())["metrics"]["nll/50"]["mean"])

    iris, wine = (
        f"{nll(table, 'logistic-regression'):.3f} against {nll(table, 'gpn'):.3f}"
        for table in ("iris", "wine")
    )
    assert f"NLL {iris}, and {wine}. On the other ten" in " ".join(README.split())


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


def test_the_numbers_of_the_suite_of_tables_are_those_of_its_files() -> None:
    found = [means for means in report.measured().values() if "gpn" in means]
    near = sum(report.above_best(means, "gpn") <= report.NEAR_NLL for means in found)
    close = sum(report.ratio_to_best(means, "gpn") <= report.NEAR_RMSE for means in found)
    ranks = [fmean(report.rank(m, "gpn", name) for m in found) for name in ("nll", "rmse")]
    coverage = 100 * fmean(means["gpn"]["coverage_95"] for means in found)
    text = " ".join(README.split())
    assert (
        f"within 0.05 nats of it on {near} of {len(found)} tables (mean rank {ranks[0]:.1f})"
        in text
    )
    assert f"within 3 % of it on {close} (mean rank {ranks[1]:.1f})" in text
    assert f"95 % intervals hold {coverage:.1f} % of new labels" in text
