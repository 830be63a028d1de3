"""The protocol on small made-up data: splits without leaks, choices by rule, runs that resume."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import gpn
from experiments import results
from experiments.paper import place as places
from experiments.paper.choose import chosen
from experiments.paper.images import cifar10, mnist
from experiments.paper.place import Place
from experiments.paper.pool_share import run_shares, with_share
from experiments.paper.run import run_method, trial
from experiments.paper.scalability import run_scalability
from experiments.paper.settings import DIALS, METHODS, PLANS, configured
from experiments.paper.split import Split
from experiments.paper.superconductor import THRESHOLD, superconductor, superconductor_grouped
from experiments.paper.table import table as table_of
from experiments.paper.tasks import TASKS
from gpn.core.pool import TensorPool


def rows(n: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.randn(n, *shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Four hundred rows of three features, each twice, with temperatures around the threshold."""
    x = rows(200, 3).double().repeat(2, 1)
    y = THRESHOLD + 10 * x[:, 0] + rows(400, seed=1).double()
    made = SimpleNamespace(x=x, y=y)
    monkeypatch.setattr(gpn.data, "superconductivity", lambda folder=None: made)
    places._split.cache_clear()
    return made


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small image sets under every name: each has its own brightness."""

    def images(name: str, folder: Any = None) -> SimpleNamespace:
        channels, size = (1, 28) if "mnist" in name else (3, 32)
        level = 20 * (1 + sum(map(ord, name)) % 10)
        rng = torch.Generator().manual_seed(level)

        def part(n: int) -> SimpleNamespace:
            noise = torch.randint(50, (n, channels, size, size), generator=rng)
            y = torch.randint(10, (n,), generator=rng)
            return SimpleNamespace(x=(noise + level).clamp(max=255).to(torch.uint8), y=y)

        return SimpleNamespace(train=part(90), test=part(20))

    monkeypatch.setattr(gpn.data, "images", images)
    monkeypatch.setattr("experiments.paper.images.VALID", 30)
    places._split.cache_clear()


def quiet(line: str) -> None:
    pass


def as_set(x: Tensor) -> set[tuple[float, ...]]:
    return {tuple(row) for row in x.flatten(1).tolist()}


def pool_rows(split: Split) -> Tensor:
    assert isinstance(split.task.pool, TensorPool)
    return split.task.pool.rows


class TestSuperconductor:
    def test_known_rows_are_labeled_and_all_training_rows_are_in_the_pool(
        self, table: SimpleNamespace
    ) -> None:
        split = superconductor(0)
        everything = len(pool_rows(split)) + sum(
            len(x) for part in (split.valid, split.test) for x in (part.x_id, part.x_ood)
        )
        assert everything == 400
        assert len(pool_rows(split)) == 280
        assert as_set(split.task.x_obs) <= as_set(pool_rows(split))
        limit = split.task.y_obs.min()
        assert split.test.y_ood is not None
        assert (split.test.y_id >= limit - 0.2).all()
        assert split.test.y_ood.max() < limit + 0.2
        assert split.test.y_ood.max() < split.test.y_id.min()

    def test_training_rows_alone_set_the_scale(self, table: SimpleNamespace) -> None:
        pool = pool_rows(superconductor(0)).double()
        torch.testing.assert_close(pool.mean(0), torch.zeros(3).double(), atol=1e-6, rtol=0)
        torch.testing.assert_close(pool.std(0), torch.ones(3).double(), atol=1e-6, rtol=0)

    @pytest.mark.parametrize("seed", range(6))
    @pytest.mark.parametrize("group", [2, 7, 40])
    def test_only_the_grouped_split_keeps_twins_together(
        self, seed: int, group: int, table: SimpleNamespace
    ) -> None:
        """Whatever the size of the groups, and wherever the cuts would fall in them."""
        table.x = table.x[: -(-400 // group)].repeat_interleave(group, dim=0)[:400]
        for make, leaks in ((superconductor, True), (superconductor_grouped, False)):
            split = make(seed).merged()
            test = as_set(torch.cat([split.test.x_id, split.test.x_ood]))
            assert bool(test & as_set(pool_rows(split))) == leaks

    def test_seeds_differ(self, table: SimpleNamespace) -> None:
        assert as_set(superconductor(0).test.x_id) != as_set(superconductor(1).test.x_id)


class TestImages:
    @pytest.mark.parametrize("make", [mnist, cifar10])
    def test_half_of_the_pool_is_strange_and_no_test_image_is_in_it(
        self, make: Any, pictures: None
    ) -> None:
        split = make(0)
        pool = as_set(pool_rows(split))
        assert len(split.task.x_obs) == 60
        known = sum(
            row in as_set(split.task.x_obs)
            for row in map(tuple, pool_rows(split).flatten(1).tolist())
        )
        assert known / len(pool_rows(split)) == pytest.approx(0.5, abs=0.1)
        for part in (split.valid.x_id, split.valid.x_ood, split.test.x_id, split.test.x_ood):
            assert not as_set(part) & pool
        for unseen in split.unseen.values():
            assert not as_set(unseen) & pool

    def test_objects_are_flipped_and_digits_are_not(self, pictures: None) -> None:
        assert mnist(0).task.augment == gpn.data.FlipAndShift(shift=2, flip=False)
        assert cifar10(0).task.augment == gpn.data.FlipAndShift(shift=4, flip=True)

    def test_any_set_can_be_the_strangers(self, pictures: None) -> None:
        other = cifar10(0, ood="my-own")
        assert as_set(other.test.x_ood) != as_set(cifar10(0).test.x_ood)


def test_merging_gives_the_validation_rows_to_the_training_rows(table: SimpleNamespace) -> None:
    split = superconductor(0)
    merged = split.merged()
    assert len(merged.task.x_obs) == len(split.task.x_obs) + len(split.valid.x_id)
    assert len(pool_rows(merged)) == 320
    assert as_set(split.valid.x_ood) <= as_set(pool_rows(merged))
    assert len(split.task.x_obs) < len(merged.task.x_obs), "the first one is as it was"


def test_the_choice_is_safe_first_and_good_second() -> None:
    losses = [(0.100, 0.7), (0.104, 0.9), (0.108, 0.99), (0.5, 1.0)]
    assert chosen([{"id_loss": loss, "ood_coverage": c} for loss, c in losses]) == 1
    accuracies = [(0.990, 0.7), (0.987, 0.9), (0.98, 1.0)]
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


def tiny(monkeypatch: pytest.MonkeyPatch, task: str, **changes: Any) -> None:
    small = gpn.MLPTrunk(widths=(8,) * 2, activation="relu")
    train = gpn.TrainConfig(steps=40, label_batch=16, pool_batch=16)
    plan = replace(PLANS[task], trunk=small, ensemble_trunk=small, train=train, seeds=2)
    monkeypatch.setitem(PLANS, task, replace(plan, **changes))


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


@pytest.mark.parametrize("share", [0.5, 0.1, 0.0])
def test_strangers_are_the_asked_share_of_the_pool(share: float, table: SimpleNamespace) -> None:
    split = superconductor(0).contaminated(share, seed=0)
    labeled = as_set(split.task.x_obs)
    strange = [tuple(row) not in labeled for row in pool_rows(split).tolist()]
    assert sum(strange) / len(strange) == pytest.approx(share, abs=0.01)


def test_a_made_up_pool_keeps_to_the_range_of_the_labels(table: SimpleNamespace) -> None:
    split = with_share(superconductor(0), None, seed=0)
    x, made = split.task.x_obs, pool_rows(split)
    assert made.shape == x.shape
    assert not as_set(made) & as_set(x)
    assert (made >= x.amin(0)).all()
    assert (made <= x.amax(0)).all()


def test_shares_and_scalability_use_the_chosen_settings(
    table: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny(monkeypatch, "superconductor", seeds=1)
    monkeypatch.setattr("experiments.paper.scalability.MOST_MEMBERS", 4)
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


def test_a_setting_that_was_never_chosen_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"must be chosen first.*run mnist --method gpn"):
        Place(results=tmp_path).choice("mnist", "gpn")
    assert Place(results=tmp_path, quick=0.1).choice("mnist", "gpn") == PLANS["mnist"].betas[2]


README = Path(__file__).parents[2] / "experiments" / "README.md"


def test_the_readme_shows_the_tables_that_the_files_give() -> None:
    measured = [task for task in PLANS if (results.RESULTS / task).exists()]
    assert measured
    for task in measured:
        assert table_of(task) in README.read_text()


def test_a_method_without_a_file_is_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("experiments.results.RESULTS", tmp_path)
    lines = table_of("mnist").splitlines()
    assert len(lines) == 2 + 8
    assert all("not run" in line for line in lines[2:])
    assert "not run (98.9 %)" in lines[2], "the paper's number stands beside it"
