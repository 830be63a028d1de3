"""The protocol on small made-up data: choices by rule, runs that resume."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import gpn
from experiments import results
from experiments.__main__ import main
from experiments.paper import place as places
from experiments.paper.choose import chosen
from experiments.paper.evaluate import _likeliest
from experiments.paper.place import Place
from experiments.paper.pool_share import run_shares
from experiments.paper.run import run_again, run_method, trial
from experiments.paper.scalability import run_scalability
from experiments.paper.settings import DIALS, METHODS, PLANS, configured
from experiments.paper.split import Split
from experiments.paper.superconductor import superconductor
from experiments.paper.table import more
from experiments.paper.table import table as table_of
from experiments.paper.tasks import TASKS
from gpn.methods.gpn.fitting.fit_many import fit_many
from tests.experiments.conftest import quiet, tiny


def test_the_choice_is_safe_first_and_good_second() -> None:
    losses = [(0.100, 0.7), (0.104, 0.9), (0.108, 0.99), (0.5, 1.0)]
    assert chosen([{"id_loss": loss, "ood_coverage": c} for loss, c in losses]) == 1
    accuracies = [(0.990, 0.7), (0.9821, 0.9), (0.9819, 1.0)]
    assert chosen([{"accuracy": a, "ood_auc": auc} for a, auc in accuracies]) == 1


@pytest.mark.parametrize("task", PLANS)
def test_every_method_has_five_settings_that_can_be_built(task: str) -> None:
    plan = PLANS[task]
    for method in plan.methods:
        dial, values = plan.dial(method)
        assert len(set(values)) == 5
        built = [gpn.methods.get(method, **configured(plan, method, v)).config for v in values]
        turned = [getattr(c, dial, None) or c.train.weight_decay for c in built]
        assert len({str(c) for c in built}) == 5, f"{method}: {turned}"


@pytest.mark.parametrize("method", METHODS)
def test_a_method_from_trials_to_its_file(
    method: str, table: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny(monkeypatch, "superconductor")
    lines: list[str] = []
    place = Place(results=tmp_path, device="cpu")
    report = run_method("superconductor", method, place, lines.append)
    assert len(lines) == 5 + 2
    file = json.loads((tmp_path / "superconductor" / f"{method}.json").read_text())
    assert file == json.loads(json.dumps(report))
    assert file["metrics"]["ood_auc"]["n"] == 2
    assert file["choice"]["chosen"] in PLANS["superconductor"].dial(method)[1]
    wanted = {"id_loss", "id_width", "id_coverage", "ood_coverage", "ood_auc", "nll", "ece"}
    assert wanted <= set(file["metrics"])
    (tmp_path / "superconductor" / f"{method}.json").unlink()
    assert run_method("superconductor", method, place, lines.append) == file
    assert len(lines) == 7, "every run is known again"
    run_method("superconductor", method, place, lines.append)
    assert "is finished" in lines[7]


def test_settings_and_then_seeds_of_a_gpn_are_fitted_side_by_side(
    table: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny(monkeypatch, "superconductor", train=gpn.TrainConfig(steps=5, label_batch=16))
    counts, lines, method = [], [], Place.method

    def counted(*how: Any, **more: Any) -> Any:
        fitted = fit_many(*how, **more)
        counts.append(len(fitted))
        return fitted

    def as_with_many_labels(*how: Any) -> Any:
        return method(*how, anchor="independent", n_axes=4)

    monkeypatch.setattr("experiments.paper.run.fit_many", counted)
    monkeypatch.setattr(Place, "method", as_with_many_labels)
    run_method("superconductor", "gpn", Place(results=tmp_path, device="cpu"), lines.append)
    assert counts == [5, 2]
    assert len(lines) == 7


@pytest.mark.parametrize("method", ["gpn", "ensemble-or"])
def test_test_rows_have_no_say_in_the_choice(
    method: str, table: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial is the same, whatever the test rows are."""
    tiny(monkeypatch, "superconductor")
    honest = trial("superconductor", method, 0, Place(results=tmp_path / "a", device="cpu"), quiet)

    def spoilt(seed: int, folder: Path | None = None) -> Split:
        split = superconductor(seed, folder)
        for rows in (split.test.x_id, split.test.y_id, split.test.x_ood, split.test.y_ood):
            assert rows is not None
            rows.fill_(torch.nan)
        return split

    monkeypatch.setitem(TASKS, "superconductor", spoilt)
    places._split.cache_clear()
    blind = trial("superconductor", method, 0, Place(results=tmp_path / "b", device="cpu"), quiet)
    assert blind["valid"] == honest["valid"]


def test_the_grouped_split_takes_the_settings_of_the_random_one(
    table: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for task in ("superconductor", "superconductor-grouped"):
        tiny(monkeypatch, task)
    place = Place(results=tmp_path, device="cpu")
    with pytest.raises(FileNotFoundError, match="must be chosen first"):
        run_method("superconductor-grouped", "gp", place, quiet)
    first = run_method("superconductor", "gp", place, quiet)
    second = run_method("superconductor-grouped", "gp", place, quiet)
    assert second["choice"]["chosen"] == first["choice"]["chosen"]
    assert len(second["choice"]["valid"]) == 1


def test_finished_runs_are_not_made_again(
    table: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny(monkeypatch, "superconductor")
    place, lines = Place(results=tmp_path, device="cpu"), []
    first = run_method("superconductor", "gp", place, lines.append)
    (tmp_path / "superconductor" / "runs" / "gp-1-valid.json").unlink()
    (tmp_path / "superconductor" / "gp.json").unlink()
    lines.clear()
    again = run_method("superconductor", "gp", place, lines.append)
    assert len(lines) == 1, "only the one that is gone"
    assert again["metrics"] == first["metrics"]
    monkeypatch.setitem(DIALS, "gp", ("noise_std", (0.15, 0.2, 0.3, 0.4, 0.5)))
    lines.clear()
    run_method("superconductor", "gp", place, lines.append)
    assert "noise_std=0.15" in lines[0], "nor is a run of another setting taken for it"


@pytest.mark.parametrize("method", ["gpn", "gpn-paper", "dropout", "ensemble-or"])
def test_classes_have_their_own_columns(
    method: str, pictures: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trunk = gpn.ConvTrunk(channels=(2,), widths=(8,))
    train = gpn.TrainConfig(steps=4, label_batch=16, pool_batch=16)
    tiny(monkeypatch, "mnist", trunk=trunk, ensemble_trunk=trunk, train=train, seeds=1)
    place = Place(results=tmp_path, device="cpu", quick=0.5)
    metrics = run_method("mnist", method, place, quiet)["metrics"]
    wanted = {"accuracy", "id_entropy", "ood_entropy", "ood_auc", "ood_aupr", "ood_fpr95", "ece"}
    scores = {"ood_auc_entropy", "ood_auc_mutual_information", "ood_auc_logit_variance"}
    assert wanted | scores | {"ood_auc_unseen_kmnist"} <= set(metrics)
    assert all(value["mean"] >= 0 for name, value in metrics.items() if name != "nll")


def test_the_chosen_setting_is_run_again_on_splits_that_no_choice_saw(
    table: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny(monkeypatch, "superconductor")
    place = Place(results=tmp_path, device="cpu")
    first, again = (run("superconductor", "gp", place, quiet) for run in (run_method, run_again))
    assert first["seeds"] == [0, 1]
    assert again["seeds"] == [2, 3]
    assert again["choice"]["chosen"] == first["choice"]["chosen"]
    assert again["metrics"]["id_loss"] != first["metrics"]["id_loss"]
    kept = json.loads((tmp_path / "superconductor" / "gp-again.json").read_text())
    assert kept["metrics"] == again["metrics"]


def test_the_noise_behind_likelihoods_is_not_misled_by_a_few_wide_rows() -> None:
    """Residuals of 0.3 and a few rows with a variance far above: squares less variances is 0."""
    rng = torch.Generator().manual_seed(0)
    spread = torch.where(torch.arange(2000) < 100, 2.0, 0.01)[:, None]
    draws = spread * torch.randn(100, 2000, 1, generator=rng)
    y = 0.3 * torch.randn(2000, 1, generator=rng)
    assert _likeliest(draws, y) == pytest.approx(0.3, rel=0.1)


def test_shares_and_scalability_use_the_chosen_settings(
    table: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny(monkeypatch, "superconductor", seeds=1)
    monkeypatch.setattr("experiments.paper.scalability.MAX_MEMBERS", 4)
    place = Place(results=tmp_path, device="cpu")
    for method in ("gpn", "gpn-paper", "ensemble-or", "ensemble-pr"):
        run_method("superconductor", method, place, quiet)
    lines: list[str] = []
    rows = json.loads(run_shares("superconductor", place, lines.append).read_text())["rows"]
    assert len(rows) == len(lines) == 15
    run_shares("superconductor", place, lines.append)
    assert len(lines) == 15, "what is done is not done again"
    grown = json.loads(run_scalability("superconductor", place, lines.append).read_text())["rows"]
    assert [row["members"] for row in grown] == [0] * 5 + [2, 4, 4] * 2
    assert grown[6]["seconds"] > grown[5]["seconds"]
    assert len({row["device"] for row in grown}) == 1


def test_a_setting_that_was_never_chosen_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"must be chosen first.*run mnist --method gpn"):
        Place(results=tmp_path).choice("mnist", "gpn")
    assert Place(results=tmp_path, quick=0.1).choice("mnist", "gpn") == PLANS["mnist"].betas[2]


def test_a_setting_of_another_plan_is_asked_for_anew(tmp_path: Path) -> None:
    place = Place(results=tmp_path)
    results.save(place.file("mnist", "gpn"), {"choice": {"chosen": 0.7}})
    with pytest.raises(FileNotFoundError, match=r"one of today's beta=.*got 0\.7.*run mnist"):
        place.chosen("mnist", "gpn")


@pytest.mark.parametrize("command", ["run", "again"])
def test_a_method_that_a_task_does_not_have_is_refused(command: str) -> None:
    with pytest.raises(SystemExit, match=r"a method for mnist must be one of dropout.*got gp\."):
        main([command, "mnist", "--method", "gp"])


README = Path(__file__).parents[2] / "experiments" / "README.md"


def test_the_readme_shows_the_tables_that_the_files_give() -> None:
    measured = [task for task in PLANS if (results.RESULTS / task).exists()]
    assert measured
    for task in measured:
        assert table_of(task) in README.read_text()
        assert more(task) in README.read_text()


def test_a_method_without_a_file_is_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("experiments.results.RESULTS", tmp_path)
    lines = table_of("mnist").splitlines()
    assert len(lines) == 2 + 8
    assert all("not run" in line for line in lines[2:])
    assert "not run (98.9 %)" in lines[2], "the paper's number stands beside it"
