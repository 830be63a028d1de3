"""The second table, from synthetic result files alone."""

from pathlib import Path

import pytest

from experiments import harness
from experiments.paper.plans import PLANS
from experiments.paper.table import LABELS, extra_table


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    return tmp_path


def write(folder: Path, task: str, **values: float) -> None:
    metrics = {name: harness.summary([value, value + 0.02]) for name, value in values.items()}
    harness.save(folder / task / "gpn.json", {"metrics": metrics})


def lines(task: str) -> list[list[str]]:
    return [line.strip("| ").split(" | ") for line in extra_table(task).splitlines()]


def test_targets_have_detection_and_calibration_beyond_the_paper(folder: Path) -> None:
    write(folder, "superconductor", ood_aupr=0.9, ood_fpr95=0.1, ece=0.3)
    head, rule, *rows = lines("superconductor")
    assert head == ["method", "OOD AUPR", "OOD FPR95", "ID calibration error"]
    assert set(rule) == {"---"}
    assert len(rows) == len(PLANS["superconductor"].methods)
    assert rows[-1] == [LABELS["gpn"], "0.910 ± 0.014", "11.0 ± 1.4 %", "0.310 ± 0.014"]


def test_classes_have_every_score_for_the_pools_and_the_unseen_ood_set(
    folder: Path,
) -> None:
    known = {"ood_auc": 0.9, "ood_auc_entropy": 0.8, "ood_auc_mutual_information": 0.7}
    write(folder, "mnist", **known, ood_auc_unseen_kmnist=0.6, ood_auc_entropy_unseen_kmnist=0.5)
    head, _, *rows = lines("mnist")
    seen, unseen = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    assert {row[0] for row in seen} == {"Fashion-MNIST"}
    assert {row[0] for row in unseen} == {"KMNIST, unseen"}
    assert dict(zip(head, seen[-1], strict=True))["AUC by mutual information"] == "0.7100 ± 0.0141"
    last = dict(zip(head, unseen[-1], strict=True))
    assert (last["AUC"], last["AUC by entropy"]) == ("0.6100 ± 0.0141", "0.5100 ± 0.0141")
    assert last["AUC by logit variance"] == "not measured"


@pytest.mark.parametrize("task", PLANS)
def test_a_method_without_a_file_has_a_row_not_run(task: str, folder: Path) -> None:
    _, _, *rows = lines(task)
    assert {cell for row in rows for cell in row if cell.startswith("not")} == {"not run"}
    assert {method for method in PLANS[task].methods if LABELS[method] in extra_table(task)} == set(
        PLANS[task].methods
    )
