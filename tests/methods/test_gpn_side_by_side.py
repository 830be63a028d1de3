"""Fits side by side are the fits that they would be one by one."""

import pytest
import torch

import gpn
from gpn.methods.gpn.side_by_side import fit_side_by_side

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


def task(n: int, seed: int) -> gpn.Task:
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=rng, dtype=torch.float64)
    pool = torch.cat([x, 3 * torch.randn(2 * n, 3, generator=rng, dtype=torch.float64)])
    return gpn.Task(x, x.sum(1, keepdim=True).sin(), pool=pool)


def test_each_is_the_fit_that_it_would_be_alone() -> None:
    """Splits of different sizes, seeds and β, each with its own pool weights and ramps."""
    tasks, seeds = [task(40, 0), task(50, 1), task(40, 0)], [3, 4, 3]
    configs = [CONFIG, CONFIG, CONFIG.replace(beta=1.0)]
    together = fit_side_by_side(configs, tasks, seeds)
    for config, own, seed, posterior in zip(configs, tasks, seeds, together, strict=True):
        alone = gpn.GPN(config).fit(own, rng=seed)
        torch.testing.assert_close(posterior.mean(NEW), alone.mean(NEW), rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(posterior.std(NEW), alone.std(NEW), rtol=1e-6, atol=1e-8)
        assert posterior.config == alone.config
    assert not torch.allclose(together[0].std(NEW), together[2].std(NEW), rtol=0.01)


def test_dropout_differs_from_member_to_member() -> None:
    trunk = CONFIG.trunk.replace(dropout=0.5)  # type: ignore[union-attr]
    config = CONFIG.replace(trunk=trunk)
    first, second = fit_side_by_side([config] * 2, [task(40, 0)] * 2, [0, 0])
    assert not torch.allclose(first.mean(NEW), second.mean(NEW), rtol=1e-3)


def test_what_cannot_stand_side_by_side_is_refused() -> None:
    own = task(20, 0)
    with pytest.raises(ValueError, match=r"need independent anchors with β given.*beta=None"):
        fit_side_by_side([CONFIG.replace(beta=None)], [own], [0])
    other = CONFIG.replace(trunk=gpn.MLPTrunk(widths=(8, 8)))
    with pytest.raises(ValueError, match=r"one shape, got 2 kinds"):
        fit_side_by_side([CONFIG, other], [own, own], [0, 0])
    classes = gpn.Task(own.x_obs, torch.arange(20) % 3, pool=own.pool)
    with pytest.raises(ValueError, match=r"are for targets .* got ClosedFormClasses"):
        fit_side_by_side([CONFIG], [classes], [0])
    with pytest.raises(ValueError, match="zip"):
        fit_side_by_side([CONFIG], [own, own], [0])
