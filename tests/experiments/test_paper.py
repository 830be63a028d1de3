"""The protocol on small synthetic data: choices by rule, runs that resume."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import gpn
from experiments import harness
from experiments.__main__ import main
from experiments.paper import context as contexts
from experiments.paper.contamination import run_contamination
from experiments.paper.context import RunContext
from experiments.paper.evaluate import likely_noise_std
from experiments.paper.plans import GRIDS, METHODS, PLANS, method_config
from experiments.paper.protocol import best_trial, confirm, run_method, run_one
from experiments.paper.scalability import run_scalability
from experiments.paper.table import extra_table
from experiments.paper.table import table as table_of
from experiments.paper.tasks import TASKS
from experiments.paper.tasks.split import Split
from experiments.paper.tasks.superconductor import superconductor
from gpn.methods.gpn.fitting.fit_many import fit_many
from tests.experiments.conftest import quiet, tiny


def table_context(results: Path) -> RunContext:
    return RunContext("superconductor", results, device="cpu")


def test_the_choice_is_safe_first_and_good_second() -> None:
    losses = [(0.100, 0.7), (0.104, 0.9), (0.108, 0.99), (0.5, 1.0)]
    assert best_trial([{"id_loss": loss, "ood_coverage": c} for loss, c in losses]) == 1
    accuracies = [(0.990, 0.7), (0.9821, 0.9), (0.9819, 1.0)]
    assert best_trial([{"accuracy": a, "ood_auc": auc} for a, auc in accuracies]) == 1


@pytest.mark.parametrize("task", PLANS)
def test_every_method_has_five_settings_that_can_be_built(task: str) -> None:
    plan = PLANS[task]
    for method in plan.methods:
        name, values = plan.grid(method)
        assert len(set(values)) == 5
        built = [gpn.methods.get(method, **method_config(plan, method, v)).config for v in values]
        tried = [getattr(c, name, None) or c.train.weight_decay for c in built]
        assert len({str(c) for c in built}) == 5, f"{method}: {tried}"


@pytest.mark.parametrize("method", METHODS)
def test_a_method_from_trials_to_its_file(
    method: str, table: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny(monkeypatch, "superconductor")
    lines: list[str] = []
    context = table_context(tmp_path)
    report = run_method(context, method, lines.append)
    assert len(lines) == 5 + 2
    file = json.loads((tmp_path / "superconductor" / f"{method}.json").read_text())
    assert file == json.loads(json.dumps(report))
    assert file["metrics"]["ood_auc"]["n"] == 2
    assert file["choice"]["chosen"] in PLANS["superconductor"].grid(method)[1]
    wanted = {"id_loss", "id_width", "id_coverage", "ood_coverage", "ood_auc", "nll", "ece"}
    assert wanted <= set(file["metrics"])
    (tmp_path / "superconductor" / f"{method}.json").unlink()
    assert run_method(context, method, lines.append) == file
    assert len(lines) == 7, "every run is found"
    run_method(context, method, lines.append)
    assert "is finished" in lines[7]


def test_values_and_then_seeds_of_a_gpn_are_fitted_as_one_axis(
    table: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny(monkeypatch, "superconductor", train=gpn.TrainConfig(steps=5, label_batch=16))
    counts, lines, method = [], [], RunContext.method

    def counted(*arguments: Any, **options: Any) -> Any:
        fitted = fit_many(*arguments, **options)
        counts.append(len(fitted))
        return fitted

    def as_with_many_labels(*arguments: Any) -> Any:
        return method(*arguments, anchor="independent", n_axes=4)

    monkeypatch.setattr("experiments.paper.protocol.fit_many", counted)
    monkeypatch.setattr(RunContext, "method", as_with_many_labels)
    run_method(table_context(tmp_path), "gpn", lines.append)
    assert counts == [5, 2]
    assert len(lines) == 7


@pytest.mark.parametrize("method", ["gpn", "ensemble-or"])
def test_test_rows_do_not_affect_the_choice(
    method: str, table: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial is the same, whatever the test rows are."""
    tiny(monkeypatch, "superconductor")
    value = PLANS["superconductor"].grid(method)[1][0]
    honest = run_one(table_context(tmp_path / "a"), method, value, log=quiet)

    def spoilt(seed: int, folder: Path | None = None) -> Split:
        split = superconductor(seed, folder)
        for rows in (split.test.x_id, split.test.y_id, split.test.x_ood, split.test.y_ood):
            assert rows is not None
            rows.fill_(torch.nan)
        return split

    monkeypatch.setitem(TASKS, "superconductor", spoilt)
    contexts._split.cache_clear()
    blind = run_one(table_context(tmp_path / "b"), method, value, log=quiet)
    assert blind["valid"] == honest["valid"]


def test_the_grouped_split_uses_the_choice_of_the_random_one(
    table: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for task in ("superconductor", "superconductor-grouped"):
        tiny(monkeypatch, task)
    grouped = RunContext("superconductor-grouped", tmp_path, device="cpu")
    with pytest.raises(FileNotFoundError, match="must be chosen first"):
        run_method(grouped, "gp", quiet)
    first = run_method(table_context(tmp_path), "gp", quiet)
    second = run_method(grouped, "gp", quiet)
    assert second["choice"]["chosen"] == first["choice"]["chosen"]
    assert len(second["choice"]["valid"]) == 1


def test_finished_runs_are_not_repeated(
    table: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny(monkeypatch, "superconductor")
    context, lines = table_context(tmp_path), []
    first = run_method(context, "gp", lines.append)
    (tmp_path / "superconductor" / "runs" / "gp-1-valid.json").unlink()
    (tmp_path / "superconductor" / "gp.json").unlink()
    lines.clear()
    again = run_method(context, "gp", lines.append)
    assert len(lines) == 1, "only the missing one"
    assert again["metrics"] == first["metrics"]
    monkeypatch.setitem(GRIDS, "gp", ("noise_std", (0.15, 0.2, 0.3, 0.4, 0.5)))
    lines.clear()
    run_method(context, "gp", lines.append)
    assert "noise_std=0.15" in lines[0], "a run of another value does not count"


@pytest.mark.parametrize("method", ["gpn", "gpn-paper", "dropout", "ensemble-or"])
def test_classes_have_their_own_columns(
    method: str, pictures: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trunk = gpn.ConvTrunk(channels=(2,), widths=(8,))
    train = gpn.TrainConfig(steps=4, label_batch=16, pool_batch=16)
    tiny(monkeypatch, "mnist", trunk=trunk, ensemble_trunk=trunk, train=train, seeds=1)
    context = RunContext("mnist", tmp_path, device="cpu", quick=0.5)
    metrics = run_method(context, method, quiet)["metrics"]
    wanted = {"accuracy", "id_entropy", "ood_entropy", "ood_auc", "ood_aupr", "ood_fpr95", "ece"}
    scores = {"ood_auc_entropy", "ood_auc_mutual_information", "ood_auc_logit_variance"}
    assert wanted | scores | {"ood_auc_unseen_kmnist"} <= set(metrics)
    assert all(value["mean"] >= 0 for name, value in metrics.items() if name != "nll")


def test_the_chosen_value_is_confirmed_on_new_splits(
    table: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny(monkeypatch, "superconductor")
    context = table_context(tmp_path)
    first, again = (run(context, "gp", quiet) for run in (run_method, confirm))
    assert first["seeds"] == [0, 1]
    assert again["seeds"] == [2, 3]
    assert again["choice"]["chosen"] == first["choice"]["chosen"]
    assert again["metrics"]["id_loss"] != first["metrics"]["id_loss"]
    saved = json.loads((tmp_path / "superconductor" / "gp-again.json").read_text())
    assert saved["metrics"] == again["metrics"]


def test_the_noise_behind_likelihoods_is_not_misled_by_a_few_wide_rows() -> None:
    """Residuals of 0.3 and a few rows with a variance far above: squares less variances is 0."""
    rng = torch.Generator().manual_seed(0)
    spread = torch.where(torch.arange(2000) < 100, 2.0, 0.01)[:, None]
    draws = spread * torch.randn(100, 2000, 1, generator=rng)
    y = 0.3 * torch.randn(2000, 1, generator=rng)
    assert likely_noise_std(draws, y) == pytest.approx(0.3, rel=0.1)


def test_contamination_and_scalability_use_the_chosen_values(
    table: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny(monkeypatch, "superconductor", seeds=1)
    monkeypatch.setattr("experiments.paper.scalability.MAX_MEMBERS", 4)
    context = table_context(tmp_path)
    for method in ("gpn", "gpn-paper", "ensemble-or", "ensemble-pr"):
        run_method(context, method, quiet)
    lines: list[str] = []
    rows = json.loads(run_contamination(context, lines.append).read_text())["rows"]
    assert len(rows) == len(lines) == 15
    run_contamination(context, lines.append)
    assert len(lines) == 15, "finished runs are not repeated"
    grown = json.loads(run_scalability(context, lines.append).read_text())["rows"]
    assert [row["members"] for row in grown] == [0] * 5 + [2, 4, 4] * 2
    assert grown[6]["seconds"] > grown[5]["seconds"]
    assert len({row["device"] for row in grown}) == 1


def test_a_missing_choice_is_an_error_with_the_command(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"must be chosen first.*run mnist --method gpn"):
        RunContext("mnist", tmp_path).chosen("gpn")
    assert RunContext("mnist", tmp_path, quick=0.1).chosen("gpn") == PLANS["mnist"].betas[2]


def test_a_choice_of_another_plan_is_an_error(tmp_path: Path) -> None:
    context = RunContext("mnist", tmp_path)
    harness.save(context.file("gpn"), {"choice": {"chosen": 0.7}})
    with pytest.raises(FileNotFoundError, match=r"one of beta=.*got 0\.7.*run mnist"):
        context.chosen("gpn")


@pytest.mark.parametrize("command", ["run", "confirm"])
def test_a_method_that_a_task_does_not_have_is_refused(command: str) -> None:
    with pytest.raises(SystemExit, match=r"a method for mnist must be one of dropout.*got gp\."):
        main([command, "mnist", "--method", "gp"])


README = Path(__file__).parents[2] / "experiments" / "README.md"


def test_the_readme_shows_the_tables_that_the_files_give() -> None:
    measured = [task for task in PLANS if (harness.RESULTS / task).exists()]
    assert measured
    for task in measured:
        assert table_of(task) in README.read_text()
        assert extra_table(task) in README.read_text()


def test_a_method_without_a_file_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("experiments.harness.RESULTS", tmp_path)
    lines = table_of("mnist").splitlines()
    assert len(lines) == 2 + 8
    assert all("not run" in line for line in lines[2:])
    assert "not run (98.9 %)" in lines[2], "with the paper's number"
