"""The contract of every method that `gpn.methods` lists.

A method's line in `CASES` is its quick configuration and what it does not support.
"""

import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import gpn
from gpn.core.posterior.base import Posterior
from gpn.saving.format import load, save

NAMES = gpn.methods.names()
TRUNK = gpn.MLPTrunk(widths=(32, 32))
PRIOR = gpn.MLPPrior(widths=(64,))
TRAIN = gpn.TrainConfig(steps=150, pool_batch=32, device="cpu")
LONG = TRAIN.replace(steps=600)


@dataclass(frozen=True)
class Case:
    """Quick settings, and what a method does not support."""

    settings: dict[str, Any] = field(default_factory=dict)
    classes: bool = True
    targets: bool = True
    float32: bool = True
    train: bool = True

    @property
    def kinds(self) -> list[str]:
        """The tasks that it fits."""
        classes = ["pair"] * self.classes + ["classes"] * (self.classes and self.targets)
        return [*(TARGETS if self.targets else ()), *classes]


ENSEMBLE = {"trunk": TRUNK, "n_members": 5}
CHAINS = {"n_chains": 4, "warmup": 30, "draws": 8, "thin": 1, "max_leapfrog": 8, "max_rhat": 1e9}
CASES = {
    "gpn": Case({"trunk": TRUNK, "prior": PRIOR}),
    "gpn-paper": Case({"trunk": TRUNK, "prior": PRIOR, "n_anchors": 20, "code_dim": 3}),
    "dropout": Case({"trunk": gpn.MLPTrunk(widths=(32, 32), activation="relu")}),
    "dkl": Case({"trunk": TRUNK, "grid_size": 8}),
    "sngp": Case({"trunk": TRUNK, "n_features": 64}),
    "ensemble-pr": Case(ENSEMBLE),
    "ensemble-or": Case({**ENSEMBLE, "prior": PRIOR}),
    "ensemble": Case(ENSEMBLE),
    "ensemble-plus": Case({**ENSEMBLE, "prior": PRIOR}),
    "epinet": Case({"trunk": gpn.MLPTrunk(widths=(32, 32), activation="relu")}),
    "gp": Case({"path_width": 256}, classes=False, float32=False, train=False),
    "gpc": Case({"path_width": 256}, targets=False, float32=False, train=False),
    "mcmc": Case({**CHAINS, "prior": PRIOR}, train=False),
}
TARGETS = ("one", "two", "double")
OUTPUTS = {"one": 1, "two": 2, "double": 2, "pair": 2, "classes": 3}
FITS = [(name, kind) for name, case in CASES.items() for kind in case.kinds]
CLASSIFIERS = [name for name, case in CASES.items() if case.classes]
REGRESSORS = [name for name, case in CASES.items() if case.targets]
every_method = pytest.mark.parametrize("name", NAMES)
every_regressor = pytest.mark.parametrize("name", REGRESSORS)
every_fit = pytest.mark.parametrize(("name", "kind"), FITS)


def method(name: str, train: gpn.TrainConfig = TRAIN, dtype: str = "float32") -> Any:
    case = CASES[name]
    settings = {**case.settings, **({"train": train} if case.train else {})}
    if name == "mcmc":
        settings["dtype"] = dtype
    return gpn.methods.get(name, **settings)


def regression(outputs: int = 1, dtype: torch.dtype = torch.float32) -> gpn.Task:
    """A few labels near 0, pool on [-3, 3]."""
    x = torch.linspace(-0.6, 0.6, 8, dtype=dtype)[:, None]
    y = torch.cat([(2 * x + k).sin() for k in range(outputs)], dim=1)
    return gpn.Task(x, y, pool=gpn.box([-3.0], [3.0]))


def classification(n_classes: int = 3) -> gpn.Task:
    rng = torch.Generator().manual_seed(0)
    labels = torch.arange(30) % n_classes
    centres = torch.tensor([[1.0, 0.0], [-0.5, 0.9], [-0.5, -0.9]])
    x = centres[labels] + 0.2 * torch.randn(30, 2, generator=rng)
    return gpn.Task(x, labels, pool=gpn.box([-2.0, -2.0], [2.0, 2.0]))


TASKS = {
    "one": regression,
    "two": lambda: regression(2),
    "double": lambda: regression(2, torch.float64),
    "pair": lambda: classification(2),
    "classes": classification,
}


def usual(name: str) -> str:
    """A task of two outputs."""
    return "two" if CASES[name].targets else "pair"


@functools.cache
def fitted(name: str, kind: str) -> Posterior:
    dtype = "float64" if kind == "double" else "float32"
    return method(name, dtype=dtype).fit(TASKS[kind](), rng=0, progress=False)


def rows(kind: str) -> Tensor:
    rng = torch.Generator().manual_seed(1)
    return torch.randn(5, 1 if kind in TARGETS else 2, generator=rng)


def test_every_method_has_a_case() -> None:
    assert set(CASES) >= set(NAMES)


@every_fit
def test_draws_are_functions_by_rows_by_outputs(name: str, kind: str) -> None:
    posterior, x = fitted(name, kind), rows(kind)
    assert posterior.sample(x, 7, rng=0).shape == (7, 5, OUTPUTS[kind])
    assert posterior.mean(x, 20).shape == (5, OUTPUTS[kind])
    assert torch.isfinite(posterior.sample(x, 7, rng=0)).all()


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_class_probabilities_sum_to_one(name: str) -> None:
    probabilities = fitted(name, "pair").probabilities(rows("pair"), 20)
    assert bool((probabilities >= 0).all())
    torch.testing.assert_close(
        probabilities.sum(1), torch.ones(5).to(probabilities), atol=1e-4, rtol=0
    )


@pytest.mark.parametrize("name", sorted(set(CASES) - set(REGRESSORS)))
def test_methods_of_two_classes_refuse_targets_and_more_classes(name: str) -> None:
    with pytest.raises(TypeError, match="two classes, got a regression"):
        method(name).fit(regression(), rng=0)
    with pytest.raises(TypeError, match="two classes, got 3 classes"):
        method(name).fit(classification(), rng=0)


@pytest.mark.parametrize("name", sorted(set(CASES) - set(CLASSIFIERS)))
def test_regression_methods_refuse_classes(name: str) -> None:
    with pytest.raises(TypeError, match="regression"):
        method(name).fit(classification(), rng=0)


@every_method
def test_the_seed_determines_fit_and_draws(name: str) -> None:
    kind = usual(name)
    x, once = rows(kind), fitted(name, kind)
    again = method(name).fit(TASKS[kind](), rng=0, progress=False)
    other = method(name).fit(TASKS[kind](), rng=1, progress=False)
    assert torch.equal(once.sample(x, 4, rng=3), again.sample(x, 4, rng=3))
    assert not torch.equal(once.sample(x, 4, rng=3), once.sample(x, 4, rng=4))
    if name not in ("gp", "gpc"):  # nothing in their fits is random
        assert not torch.equal(once.sample(x, 4, rng=3), other.sample(x, 4, rng=3))


@every_method
def test_a_draw_is_a_fixed_function(name: str) -> None:
    x, function = rows(usual(name)), fitted(name, usual(name)).draw(rng=5)
    whole = function(x)
    torch.testing.assert_close(function(x), whole, rtol=0, atol=0)
    chunks = torch.cat([function(x[:2]), function(x[2:])])
    torch.testing.assert_close(chunks, whole, rtol=1e-4, atol=1e-5)


@every_method
def test_many_draws_are_fixed_functions(name: str) -> None:
    x, functions = rows(usual(name)), fitted(name, usual(name)).draw_many(4, rng=5)
    whole = functions(x)
    assert whole.shape == (4, 5, 2)
    chunks = torch.cat([functions(x[:2]), functions(x[2:])], dim=1)
    torch.testing.assert_close(chunks, whole, rtol=1e-4, atol=1e-5)


@every_regressor
def test_float64_stays_float64(name: str) -> None:
    posterior = fitted(name, "double")
    assert posterior.sample(rows("two"), 3, rng=0).dtype == torch.float64


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].float32])
def test_float32_stays_float32(name: str) -> None:
    assert fitted(name, "one").sample(rows("one"), 3, rng=0).dtype == torch.float32


@every_method
def test_the_global_random_state_does_not_change(name: str) -> None:
    before, kind = torch.get_rng_state(), usual(name)
    posterior = method(name, TRAIN.replace(steps=3)).fit(TASKS[kind](), rng=0, progress=False)
    posterior.sample(rows(kind), 3, rng=0)
    posterior.draw(rng=1)(rows(kind))
    assert torch.equal(torch.get_rng_state(), before)


@every_fit
def test_a_loaded_posterior_gives_the_same_draws(name: str, kind: str, tmp_path: Path) -> None:
    posterior, x = fitted(name, kind), rows(kind)
    save(posterior, tmp_path / "posterior.gpn")
    loaded = load(tmp_path / "posterior.gpn")
    assert loaded.signature == posterior.signature
    assert torch.equal(loaded.sample(x, 6, rng=2), posterior.sample(x, 6, rng=2))
    assert torch.equal(loaded.draw(rng=2)(x), posterior.draw(rng=2)(x))


@every_method
def test_gradients_of_a_draw_equal_central_differences(name: str) -> None:
    kind = "double" if CASES[name].targets else "pair"
    function = fitted(name, kind).draw(rng=0)
    x = rows(kind).double().requires_grad_()
    weights = torch.tensor([1.0, 2.0], dtype=torch.float64)  # the sum of two logits may be fixed
    (gradient,) = torch.autograd.grad((function(x) @ weights).sum(), x)
    steps = 1e-6 * torch.eye(x.shape[1], dtype=torch.float64)
    columns = [(function(x + step) - function(x - step)) @ weights / 2e-6 for step in steps]
    differences = torch.stack(columns, dim=1)
    torch.testing.assert_close(gradient, differences.detach(), rtol=1e-3, atol=1e-4)


@every_regressor
def test_the_standard_deviation_grows_away_from_the_labels(name: str) -> None:
    posterior = method(name, LONG).fit(regression(), rng=0, progress=False)
    near = posterior.std(torch.linspace(-0.5, 0.5, 21)[:, None], 100).mean()
    far = torch.cat([torch.linspace(-3, -2, 11), torch.linspace(2, 3, 11)])[:, None]
    assert posterior.std(far, 100).mean() > 1.5 * near
