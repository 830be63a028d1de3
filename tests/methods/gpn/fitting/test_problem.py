"""A training problem in a group of processes: its generator gathers rows while it trains."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

import gpn
from gpn.methods.gpn.fitting.problem import rows_gathered
from gpn.methods.gpn.model.generator import AffineGenerator, all_rows
from gpn.training.distributed import ProcessGroup


class FakeGroup(ProcessGroup):
    """A group whose main process has all buffers at 3."""

    def __init__(self) -> None:
        super().__init__(SimpleNamespace(global_rank=1, world_size=2, device=torch.device("cpu")))

    def broadcast(self, value: Tensor) -> Tensor:  # type: ignore[override]
        return torch.full_like(value, 3)


def generator_with_batch_norm() -> AffineGenerator:
    module = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.BatchNorm1d(4))
    trunk = gpn.ModuleTrunk(module=module, widths=(8,))
    return AffineGenerator(trunk, (2,), 1, 3, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("error", [None, KeyError, KeyboardInterrupt])
def test_rows_are_gathered_during_training_only(error: type[BaseException] | None) -> None:
    generator, group = generator_with_batch_norm(), FakeGroup()
    try:
        with rows_gathered(generator, group):
            assert generator.row_gather == group.gather_rows
            if error is not None:
                raise error
    except (KeyError, KeyboardInterrupt):
        pass
    assert generator.row_gather is all_rows
    assert "row_gather" not in vars(generator)
    trained = [float(buffer.float().mean()) == 3.0 for buffer in generator.buffers()]
    assert trained == [error is None] * 3, "running means of batch norm are the main process's"


def test_a_process_alone_computes_all_rows() -> None:
    generator = generator_with_batch_norm()
    before = [buffer.clone() for buffer in generator.buffers()]
    with rows_gathered(generator, None):
        assert generator.row_gather is all_rows
    assert all(map(torch.equal, generator.buffers(), before))
