"""GPNs with an unusual prior, pool or noise, and Ctrl-C."""

from typing import Any

import pytest
import torch
from torch import Tensor

import gpn
from gpn.core.priors.spectral import spectral_axes
from gpn.methods.gpn.defaults import resolve
from gpn.methods.gpn.fitting.basis import axes_of, pool_weights, prior_basis, stored_pool
from gpn.metrics import marginal_w2
from tests.methods.gpn.small import (
    WITHOUT_KERNEL,
    classes,
    context,
    fit,
    images,
    rows,
    targets,
)


@pytest.mark.parametrize("codes", ["spectral", "learnt"])
def test_joint_anchors_take_a_prior_without_a_kernel(codes: str) -> None:
    posterior = fit(targets(6, 1), anchor="joint", noise_std=0.1, prior=WITHOUT_KERNEL, codes=codes)
    assert posterior.config.anchor == "joint"
    assert posterior.fit_report.jitter > 0
    assert posterior.sample(rows(3, 1), 2, rng=0).isfinite().all()


def test_a_covariance_of_draws_gives_the_posterior_of_the_kernel() -> None:
    """The prior's kernel in closed form, or estimated from 2,048 draws: the same posterior."""

    class WithoutKernel(gpn.MLPPrior):
        @property
        def has_kernel(self) -> bool:
            return False

    grid = torch.linspace(-2, 2, 41)[:, None]
    x = torch.tensor([[-1.5], [-0.5], [0.2], [1.1]])
    task = gpn.Task(x, torch.sin(3 * x), pool=gpn.box([-2.0], [2.0]))
    config = gpn.GPNConfig(
        anchor="joint",
        noise_std=0.3,
        reference_rows=200,
        train=gpn.TrainConfig(steps=500, pool_batch=48, learning_rate=5e-3),
    )
    exact = gpn.methods.get("gp", noise_std=0.3).fit(task)
    for prior in (gpn.MLPPrior(), WithoutKernel()):
        fitted = gpn.GPN(config.replace(prior=prior)).fit(task, rng=0)
        w2 = marginal_w2(
            fitted.mean(grid).double(), fitted.std(grid).double(), exact.mean(grid), exact.std(grid)
        )
        assert w2 < (0.05 if prior.has_kernel else 0.15), prior


def test_few_axes_of_a_conditioned_posterior_warn_too() -> None:
    task = gpn.Task(rows(70, 2), rows(70, 2)[:, 0], pool=rows(200, 2))
    with pytest.warns(UserWarning, match=r"the code axes .*posterior's variance.*raise n_axes"):
        fit(task, noise_std=0.1, anchor="conditioned", n_axes=1)


@pytest.mark.parametrize("anchor", ["joint", "independent", "conditioned"])
def test_labels_outside_the_pool_have_prior_features(anchor: str) -> None:
    """Σ_j ψ_j(x)² = K(x, x) at every label, wherever the pool lies."""
    task = gpn.Task([[-9.0], [9.0]], [0.0, 1.0], pool=gpn.box([-1.0], [1.0]))
    one = context(task, anchor=anchor, noise_std=0.1, reference_rows=1024)
    axes, _ = axes_of(one, stored_pool(one), 200, 0.99999)
    prior_variance = one.config.prior.kernel(task.x_obs, task.x_obs).diagonal()
    torch.testing.assert_close(axes(task.x_obs).square().sum(1), prior_variance, rtol=0.02, atol=0)


@pytest.mark.parametrize("settings", [{"codes": "learnt"}, {"generator": "concat"}])
def test_impossible_target_noise_on_classes_is_refused(
    settings: dict[str, Any],
) -> None:
    assert resolve(gpn.GPNConfig(**settings), classes(12, 1)).target_noise is False
    with pytest.raises(ValueError, match=r"target noise on classes needs .*target_noise=False"):
        resolve(gpn.GPNConfig(**settings, target_noise=True), classes(12, 1))


def test_target_noise_of_very_few_labels_is_learnt() -> None:
    posterior = fit(targets(6, 2), anchor="independent", target_noise=True)
    assert posterior.noise_std is not None
    assert posterior.noise_std > 0


def test_ctrl_c_in_the_search_for_beta_ends_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unfinished trial is of no use: there is no posterior."""

    def interrupted(*args: Any, **named: Any) -> Tensor:
        raise KeyboardInterrupt

    monkeypatch.setattr("gpn.methods.gpn.model.objectives.squared_error", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit(targets(30, 2), anchor="independent", pool_weights="equal")


def test_only_detection_is_regularised() -> None:
    task = targets(70, 20)
    for settings, regularised in (
        ({"anchor": "independent"}, True),
        ({"anchor": "joint"}, False),
        ({"anchor": "conditioned"}, False),
    ):
        resolved = resolve(gpn.GPNConfig(**settings), task)
        assert (resolved.trunk.dropout > 0, resolved.train.weight_decay > 0) == (
            regularised,
            regularised and resolved.anchor == "independent",
        )
    paper = resolve(gpn.GPNConfig.paper(), task)
    assert (paper.trunk.dropout, paper.train.weight_decay) == (0.0, 0.0)


def test_the_ratio_network_depends_on_the_seed_and_not_on_the_global_state() -> None:
    trunk = gpn.ConvTrunk(channels=(2,), widths=(8,), dropout=0.5)
    weights = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        before = torch.random.get_rng_state()
        fit(images(20), trunk=trunk, beta=0.1)
        one = context(images(20), trunk=trunk, beta=0.1)
        found = pool_weights(one, prior_basis(one).pool)
        assert found is not None
        assert torch.equal(torch.random.get_rng_state(), before)
        weights.append(found.weights)
    assert torch.equal(*weights)


def test_the_explained_variance_is_measured_at_rows_that_are_no_landmarks() -> None:
    """In 30 dimensions the axes explain few landmarks better than other rows."""
    task = gpn.Task(rows(20, 30), rows(20, 1), pool=rows(400, 30, seed=1))
    posterior = fit(task, beta=0.1, n_axes=30)
    x = task.pool.rows
    prior = posterior.config.prior
    axes = spectral_axes(prior, x[:32], 1, 30, 1.0, torch.Generator())
    at_landmarks, elsewhere = (
        float(axes(some).square().sum() / axes.variance(some).sum()) for some in (x[:32], x[32:])
    )
    assert posterior.fit_report.explained_variance == pytest.approx(elsewhere, abs=0.1)
    assert at_landmarks > elsewhere + 0.2
