"""Two processes (gloo, CPU) compute what one computes from the same batches."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import gpn
from tests.training import distributed_fits

SCRIPT = Path(distributed_fits.__file__)


@pytest.fixture(scope="module")
def by_two(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The results of two processes, started by the documented command."""
    folder = tmp_path_factory.mktemp("two")
    out = folder / "found.pt"
    start = "torchrun --standalone --nproc-per-node 2"
    assert start in (SCRIPT.parents[2] / "docs" / "tutorials" / "huge-pools.md").read_text()
    command = [sys.executable, "-m", "torch.distributed.run", *start.split()[1:]]
    command += [str(SCRIPT), str(out), "2", str(folder)]
    roots = [str(SCRIPT.parents[2]), str(Path(gpn.__file__).parent.parent)]
    paths = os.pathsep.join([*roots, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert list(folder.iterdir()) == [out], "the checkpoint is removed"
    return torch.load(out)


@pytest.fixture(scope="module")
def by_one(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return distributed_fits.outcomes(1, tmp_path_factory.mktemp("one"))


@pytest.mark.parametrize("name", distributed_fits.variants(gpn.TrainConfig()))
def test_two_processes_reach_the_weights_of_one(
    name: str, by_one: dict[str, Any], by_two: dict[str, Any]
) -> None:
    one, two = by_one[name], by_two[name]
    assert one["loss"] == pytest.approx(two["loss"], rel=1e-4)
    torch.testing.assert_close(two["weights"], one["weights"], rtol=1e-4, atol=1e-5)


def test_a_fitted_generator_gathers_no_rows(by_two: dict[str, Any]) -> None:
    """It has left the group of processes: it can be used, saved and copied in each alone."""
    names = distributed_fits.variants(gpn.TrainConfig())
    assert [name for name in names if by_two[name]["gathers_rows"]] == []


def test_all_processes_end_with_the_choices_of_the_main_one(by_two: dict[str, Any]) -> None:
    """β and the noise, and the running means of batch norm, which sees its process's rows only."""
    first, second = by_two["synchronised"]
    assert "features.1.num_batches_tracked" in first
    torch.testing.assert_close(second, first)


def test_processes_with_different_seeds_are_refused(by_two: dict[str, Any]) -> None:
    assert "another seed" in by_two["refused"]


def test_other_methods_take_one_device() -> None:
    method = gpn.methods.get("dropout", train=gpn.TrainConfig(devices=2))
    with pytest.raises(ValueError, match=r"several devices are for gpn\.GPN.*devices=1"):
        method.fit(distributed_fits.NUMBERS, rng=0)


def test_rows_with_codes_of_their_own_cannot_be_split() -> None:
    train = gpn.TrainConfig(devices=2)
    with pytest.raises(ValueError, match="pairing='every'"):
        gpn.GPNConfig.paper(pairing="one", train=train)


def test_without_fabric_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning_fabric", None)
    config = gpn.GPNConfig.paper(train=gpn.TrainConfig(devices=2))
    with pytest.raises(ImportError, match=r"gpn\[distributed\]"):
        gpn.GPN(config).fit(distributed_fits.NUMBERS, rng=0)
