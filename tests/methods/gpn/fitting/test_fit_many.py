"""Many fits as one axis equal the same fits one by one."""

from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

import gpn
from gpn.core.pools.base import TensorPool
from gpn.core.pools.rows import DatasetPool
from gpn.methods.gpn.fitting.fit_many import IncompatibleFits, StackedObjectives, fit_many

CONFIG = gpn.GPNConfig(
    anchor="independent",
    beta=0.3,
    pool_weights="mixture",
    n_axes=8,
    reference_rows=64,
    trunk=gpn.MLPTrunk(widths=(16, 16), ramps=3),
    train=gpn.TrainConfig(steps=30, label_batch=16, pool_batch=12, learning_rate=1e-2),
)
NEW = torch.linspace(-2, 2, 9)[:, None].expand(-1, 3).double()


def sine_task(n: int, seed: int) -> gpn.Task:
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=rng, dtype=torch.float64)
    pool = torch.cat([x, 3 * torch.randn(2 * n, 3, generator=rng, dtype=torch.float64)])
    return gpn.Task(x, x.sum(1, keepdim=True).sin(), pool=pool)


def test_every_fit_equals_the_fit_alone() -> None:
    """Splits of different sizes, seeds and β, each with its own pool weights and encodings."""
    tasks, seeds = [sine_task(40, 0), sine_task(50, 1), sine_task(40, 0)], [3, 4, 3]
    configs = [CONFIG, CONFIG, CONFIG.replace(beta=1.0)]
    together = fit_many(configs, tasks, seeds)
    for config, split, seed, posterior in zip(configs, tasks, seeds, together, strict=True):
        alone = gpn.GPN(config).fit(split, rng=seed)
        torch.testing.assert_close(posterior.mean(NEW), alone.mean(NEW), rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(posterior.std(NEW), alone.std(NEW), rtol=1e-6, atol=1e-8)
        assert posterior.config == alone.config
    assert not torch.allclose(together[0].std(NEW), together[2].std(NEW), rtol=0.01)


def test_dropout_masks_differ_between_members() -> None:
    trunk = CONFIG.trunk.replace(dropout=0.5)  # type: ignore[union-attr]
    config = CONFIG.replace(trunk=trunk)
    first, second = fit_many([config] * 2, [sine_task(40, 0)] * 2, [0, 0])
    assert not torch.allclose(first.mean(NEW), second.mean(NEW), rtol=1e-3)


def test_a_pool_that_is_not_in_memory_is_sampled_as_in_a_fit_alone() -> None:
    task = sine_task(40, 0)
    assert isinstance(task.pool, TensorPool)
    task.pool = DatasetPool(TensorDataset(task.pool.rows))
    (posterior,) = fit_many([CONFIG], [task], [3])
    alone = gpn.GPN(CONFIG).fit(task, rng=3)
    torch.testing.assert_close(posterior.mean(NEW), alone.mean(NEW), rtol=1e-6, atol=1e-8)


def test_the_history_is_the_mean_over_all() -> None:
    task = sine_task(40, 0)
    (first,) = fit_many([CONFIG], [task], [3])
    both = fit_many([CONFIG] * 2, [task] * 2, [3, 3])
    last = [posterior.fit_report.history.checks[-1] for posterior in (first, both[0])]
    assert last[0] == pytest.approx(last[1])


DIFFERENT = {
    "train": {"train": CONFIG.train.replace(steps=31)},  # type: ignore[union-attr]
    "trunk": {"trunk": gpn.MLPTrunk(widths=(16, 16), ramps=3, activation="relu")},
    "pool_weights": {"pool_weights": "equal"},
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_networks_and_training_must_be_the_same(name: str) -> None:
    configs = [CONFIG, CONFIG.replace(**DIFFERENT[name])]
    with pytest.raises(IncompatibleFits, match=rf"need the same {name}, got .* one by one"):
        fit_many(configs, [sine_task(20, 0)] * 2, [0, 0])


def test_incompatible_fits_are_refused() -> None:
    task, module = sine_task(20, 0), gpn.ModuleTrunk(module=torch.nn.Linear(3, 4))
    with pytest.raises(IncompatibleFits, match=r"need independent anchors with β given.*beta=None"):
        fit_many([CONFIG.replace(beta=None)], [task], [0])
    with pytest.raises(IncompatibleFits, match=r"need our own trunks, got a module"):
        fit_many([CONFIG.replace(trunk=module)], [task], [0])
    with pytest.raises(IncompatibleFits, match=r"number of labels in a batch, got 12 and 14"):
        fit_many([CONFIG] * 2, [sine_task(12, 0), sine_task(14, 0)], [0, 0])
    with pytest.raises(IncompatibleFits, match=r"one shape, got 2 kinds"):
        fit_many([CONFIG, CONFIG.replace(n_axes=7)], [task, task], [0, 0])
    classes = gpn.Task(task.x_obs, torch.arange(20) % 3, pool=task.pool)
    with pytest.raises(
        IncompatibleFits, match=r"are for targets .* got classes with codes='spectral'"
    ):
        fit_many([CONFIG], [classes], [0])
    with pytest.raises(ValueError, match=r"equally many and at least one, got 1, 2 and 1"):
        fit_many([CONFIG], [task, task], [0])
    with pytest.raises(ValueError, match=r"at least one, got 0, 0 and 0"):
        fit_many([], [], [])
    far = gpn.Task(1e8 * task.x_obs, task.y_obs, pool=task.pool)
    with pytest.raises(ValueError, match=r"x must be of the prior's size"):
        fit_many([CONFIG], [far], [0])


def test_ctrl_c_ends_all_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    terms, calls = StackedObjectives.terms, []

    def interrupted(self: StackedObjectives, *rows: torch.Tensor) -> Any:
        calls.append(1)
        if len(calls) == 20:
            raise KeyboardInterrupt
        return terms(self, *rows)

    monkeypatch.setattr(StackedObjectives, "terms", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit_many([CONFIG], [sine_task(20, 0)], [0])
