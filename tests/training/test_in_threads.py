"""Work in threads: each computes alone, in order, and what was changed is restored."""

import threading
from typing import Any

import pytest
import torch
from threadpoolctl import threadpool_info

from gpn.training.torch_state import in_threads, one_thread


@pytest.fixture(autouse=True)
def two_threads() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def blas_threads() -> set[int]:
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


def test_results_keep_their_order_and_each_has_one_thread() -> None:
    before = blas_threads()

    def square(number: int) -> tuple[int, int, bool]:
        alone = blas_threads() == {1}
        return number**2, torch.get_num_threads(), alone

    assert in_threads(square, range(20)) == [(i**2, 1, True) for i in range(20)]
    assert torch.get_num_threads() == 2
    assert blas_threads() == before


def test_an_error_is_raised_and_threads_are_restored() -> None:
    before = blas_threads()

    def refuse(number: int) -> None:
        raise ValueError(f"no {number}")

    with pytest.raises(ValueError, match="no 0"):
        in_threads(refuse, range(3))
    assert torch.get_num_threads() == 2
    assert blas_threads() == before


def test_two_computations_at_a_time_restore_what_the_first_found() -> None:
    before, inside, go_on = blas_threads(), threading.Event(), threading.Event()

    def wait(number: int) -> None:
        inside.set()
        go_on.wait(10)

    other = threading.Thread(target=lambda: in_threads(wait, range(2)))
    other.start()
    assert inside.wait(10)
    assert in_threads(abs, range(-3, 1)) == [3, 2, 1, 0]
    go_on.set()
    other.join()
    assert blas_threads() == before


def test_one_thread_or_one_chunk_needs_no_other_thread() -> None:
    def name(_: int) -> str:
        return threading.current_thread().name

    own = threading.current_thread().name
    assert in_threads(name, [1]) == [own]
    with one_thread():
        assert in_threads(name, [1, 2, 3]) == [own] * 3
