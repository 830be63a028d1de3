"""Shapes are checked at run time in every test, and a few small problems that tests share."""

import dataclasses
from collections.abc import Iterator

import jaxtyping
from jaxtyping import install_import_hook

install_import_hook(["gpn.core", "gpn.training", "gpn.methods", "gpn.metrics"], "tests.checked")

import numpy as np  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

import gpn  # noqa: E402
from gpn.data import image_set  # noqa: E402

torch.set_num_threads(1)  # tests are many and tiny: two processes beat two threads


@pytest.fixture(autouse=True)
def same_in_every_order() -> None:
    """Tests run in any order, and two things come from global states, as users of those expect:

    weights of a user's own module, and estimators without `random_state`.
    """
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002


@pytest.fixture
def as_users_have_it() -> Iterator[None]:
    """Without the run-time checker: what a function itself says of wrong shapes and types."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The official image sets with any content: small files cannot have official checksums."""
    for name, (source, reader) in image_set.OFFICIAL.items():
        free = dataclasses.replace(source, files=dict.fromkeys(source.files, ()))
        monkeypatch.setitem(image_set.OFFICIAL, name, (free, reader))


@pytest.fixture
def quick() -> gpn.GPNConfig:
    """A paper-style GPN that trains in a second."""
    return gpn.GPNConfig.paper(
        n_anchors=20,
        code_dim=3,
        beta_ramp=0.0,
        label_smoothing=0.0,
        calibration_share=0.0,
        prior=gpn.MLPPrior(widths=(64,)),
        trunk=gpn.MLPTrunk(widths=(32, 32)),
        train=gpn.TrainConfig(steps=60, pool_batch=16),
    )


@pytest.fixture
def line() -> gpn.Task:
    """Four labels of a line, pool U[-2, 2]."""
    x = torch.tensor([[-1.0], [-0.3], [0.4], [1.0]])
    return gpn.Task(x, 0.5 * x, pool=gpn.box([-2.0], [2.0]))


@pytest.fixture
def classes() -> gpn.Task:
    """Three classes in the plane, pool on a box around them."""
    rng = torch.Generator().manual_seed(0)
    labels = torch.arange(30) % 3
    centres = torch.tensor([[1.0, 0.0], [-0.5, 0.9], [-0.5, -0.9]])
    x = centres[labels] + 0.2 * torch.randn(30, 2, generator=rng)
    return gpn.Task(x, labels, pool=gpn.box([-2.0, -2.0], [2.0, 2.0]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many damaged inputs were read, by whichever process."""
    reports = [r for group in terminalreporter.stats.values() for r in group]
    found = [getattr(r, "user_properties", []) for r in reports if getattr(r, "when", "") == "call"]
    counts = [sum(v for name, v in each if name == "fuzzed") for each in found]
    if sum(counts):
        terminalreporter.write_line(f"fuzz: {sum(counts):,} damaged inputs, all read or refused")
