"""Parts of rows: nothing is lost or done twice, also where memory runs out on the way."""

import pytest
import torch
from torch import Tensor, nn

import gpn
from gpn.core import chunks
from gpn.core.chunks import chunk_size, join_chunks, map_chunks

ROWS = torch.arange(23.0)[:, None]


class Small:
    """A device with room for `most` rows at a time."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.sizes: list[int] = []

    def __call__(self, rows: Tensor) -> Tensor:
        if len(rows) > self.most:
            raise torch.OutOfMemoryError("too many rows")
        self.sizes.append(len(rows))
        return 2 * rows


@pytest.mark.parametrize("most", [1, 2, 5, 22, 23, 100])
@pytest.mark.parametrize("size", [1, 4, 23, 10**9])
def test_all_rows_in_order_whatever_fits(most: int, size: int) -> None:
    device = Small(most)
    assert torch.equal(join_chunks(map_chunks(device, ROWS, size)), 2 * ROWS)
    assert sum(device.sizes) == len(ROWS)
    if most < min(size, 23):
        assert max(device.sizes) > most / 3, "no smaller than needed"


def test_memory_that_runs_out_on_the_way_loses_nothing() -> None:
    """Two parts are done when a third is refused: it is halved, and they are not done again."""
    sizes: list[int] = []

    def compute(rows: Tensor) -> Tensor:
        if len(sizes) >= 2 and len(rows) > 2:
            raise torch.OutOfMemoryError("others have taken it")
        sizes.append(len(rows))
        return 2 * rows

    assert torch.equal(join_chunks(map_chunks(compute, ROWS, 6)), 2 * ROWS)
    assert sizes[:2] == [6, 6]
    assert sum(sizes) == 23


def test_one_row_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(torch.OutOfMemoryError, match="too many"):
        map_chunks(Small(0), ROWS, 8)


def test_no_rows_are_one_part() -> None:
    assert join_chunks(map_chunks(Small(5), ROWS[:0], 4)).shape == (0, 1)


def test_a_single_part_is_not_copied() -> None:
    assert join_chunks([ROWS]) is ROWS


def test_a_gpu_takes_what_it_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    monkeypatch.setattr(chunks, "free_bytes", lambda device: 32 * 64_000)
    assert chunk_size(640, gpu, 10**6) == 100
    monkeypatch.setattr(chunks, "free_bytes", lambda device: 10**12)
    assert chunk_size(640, gpu, 10**6) == 2**27 // 640
    assert chunk_size(640, gpu, 2**27 // 640) == 2**27 // 640, "small, and not asked about"
    assert chunk_size(640, cpu, 10**6) == 6250
    assert chunk_size(10**9, cpu, 10**6) == 1


def test_what_the_layers_of_an_image_hold_counts_too() -> None:
    sizes: list[int] = []
    trunk = gpn.ModuleTrunk(module=nn.Flatten(), widths=(4,))
    config = gpn.GPNConfig(trunk=trunk, beta=0.1, train=gpn.TrainConfig(steps=2, device="cpu"))
    x = torch.rand(24, 1, 100, 50)
    posterior = gpn.GPN(config).fit(gpn.Task(x, torch.arange(24) % 2, pool=x), rng=0)
    posterior.generator.features.register_forward_hook(lambda _, x, y: sizes.append(len(y)))
    assert posterior.sample(x, 1, rng=0).shape == (1, 24, 2)
    assert sizes == [12, 12], "4,000,000 numbers, 64 at each of 5,000 pixels"


def test_a_processor_without_memory_does_half_as_well() -> None:
    def compute(rows: Tensor) -> Tensor:
        return 2 * rows if len(rows) < 6 else torch.empty(2**58)

    assert torch.equal(join_chunks(map_chunks(compute, ROWS, 23)), 2 * ROWS)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        map_chunks(lambda rows: rows @ rows, ROWS, 23)


@pytest.mark.parametrize("generator", ["affine", "concat"])
def test_draws_go_on_where_memory_runs_out(
    generator: str, quick: gpn.GPNConfig, line: gpn.Task
) -> None:
    """The same functions at the same rows, a few rows at a time."""
    config = quick.replace(generator=generator, train=quick.train.replace(steps=3))
    posterior = gpn.GPN(config).fit(line, rng=0)
    x = torch.linspace(-2, 2, 50)[:, None].to(posterior.dtype)
    whole, moments = posterior.sample(x, 7, rng=1), posterior.moments(x, 50)
    seen: list[int] = []

    def short_of_memory(module: torch.nn.Module, inputs: tuple[Tensor, ...]) -> None:
        seen.append(len(inputs[0]))
        if seen[-1] > 8:
            raise torch.OutOfMemoryError("no room")

    posterior.generator.features.register_forward_pre_hook(short_of_memory)
    torch.testing.assert_close(posterior.sample(x, 7, rng=1), whole)
    torch.testing.assert_close(posterior.moments(x, 50), moments)
    assert {50, 25, 12, 6} <= set(seen)
