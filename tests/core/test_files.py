"""Files whole or not at all: when the disk is full, when a limit is hit, when a folder is gone."""

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import gpn
from gpn.core.files import (
    remove_temporary_files,
    replaceable,
    replacing,
    temporary_file,
    write_atomically,
)

SMALL = 1_000_000


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", str(folder)]
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root on Linux")
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_leaves_the_old_file_and_nothing_else(full_disk: Path) -> None:
    path = full_disk / "model.gpn"
    write_atomically(path, b"old")
    with pytest.raises(OSError, match=r"model.gpn must be .*whole, 2,000,000 bytes") as caught:
        write_atomically(path, bytes(2 * SMALL))
    assert caught.value.errno == errno.ENOSPC
    assert "Make room" in str(caught.value)
    assert path.read_bytes() == b"old"
    assert list(full_disk.iterdir()) == [path]


def test_a_fit_on_a_full_disk_ends_with_its_last_checkpoint_whole(
    full_disk: Path, line: gpn.Task
) -> None:
    """The disk fills up while a fit runs; with room again, it goes on from where it was."""
    path, filler = full_disk / "fit.ckpt", full_disk / "filler"
    method = gpn.methods.get(
        "dropout",
        trunk=gpn.MLPTrunk(widths=(64,)),
        train=gpn.TrainConfig(steps=60, device="cpu"),
    )
    keep = gpn.Checkpoint(path, every=0.0)
    expected = method.fit(line, rng=0).tensors()

    def fill(step: int, steps: int, values: dict[str, float]) -> None:
        if step == 30:
            filler.write_bytes(bytes(SMALL - 2 * path.stat().st_size // 3 - path.stat().st_size))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpn.training.checkpoint.MAX_WRITING_SHARE", 1e9)
        patch.setattr("gpn.methods.network_method.progress_bar", _reporting(fill))
        with pytest.raises(OSError, match=r"fit\.ckpt must be written whole"):
            method.fit(line, rng=0, checkpoint=keep)
    filler.unlink()
    assert list(full_disk.iterdir()) == [path]
    resumed = method.fit(line, rng=0, checkpoint=keep).tensors()
    assert all(torch.equal(expected[name], resumed[name]) for name in expected)


def _reporting(report: object) -> object:
    from contextlib import nullcontext

    return lambda *args, **kwargs: nullcontext(report)


LIMITED = """
import resource, sys
import gpn, torch
path = sys.argv[1]
task = gpn.Task(torch.ones(3, 1), torch.ones(3, 1))
fit = gpn.methods.get("dropout", train=gpn.TrainConfig(steps=2, device="cpu")).fit(task, rng=0)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    gpn.save(fit, path)
except OSError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits on file sizes are POSIX")
def test_a_model_beyond_the_limit_on_file_sizes_leaves_the_old_one(tmp_path: Path) -> None:
    """In a process of its own, whose files may not be larger than ten thousand bytes."""
    path = tmp_path / "model.gpn"
    path.write_bytes(b"old")
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=True
    )
    assert f"{path} must be written whole" in done.stdout
    assert "File too large" in done.stdout
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="make its folder one that exists"):
        write_atomically(tmp_path / "absent" / "model.gpn", b"new")


def test_what_killed_writers_left_is_swept_and_nothing_else(tmp_path: Path) -> None:
    """Neither an editor's own file, nor that of a fit whose name begins with the same letters."""
    names = ["fit[1]", ".fit[1].swp", ".fit[1].local", ".other.0a.gpn"]
    others = [tmp_path / name for name in names]
    others.append(Path(temporary_file(tmp_path / "fit[1].2")))
    temporary_file(tmp_path / "fit[1]")
    for path in others:
        path.write_bytes(b"1")
    remove_temporary_files(tmp_path / "fit[1]")
    assert sorted(tmp_path.iterdir()) == sorted(others)


def test_a_file_in_use_is_not_swept(tmp_path: Path) -> None:
    """A second fit on a checkpoint's path leaves alone what the first one is writing."""
    path = tmp_path / "fit.ckpt"
    with replacing(path) as name:
        Path(name).write_bytes(b"first")
        remove_temporary_files(path)
        write_atomically(path, b"second")
        assert Path(name).read_bytes() == b"first"
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


KILLED = """
import os, signal, sys
from pathlib import Path
from gpn.core.files import (
    remove_temporary_files,
    replaceable,
    replacing,
    temporary_file,
    write_atomically,
)
with replacing(Path(sys.argv[1])) as name:
    Path(name).write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
def test_the_next_writer_sweeps_what_a_killed_one_left(tmp_path: Path) -> None:
    path = tmp_path / "scored.csv"
    subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    write_atomically(path, b"whole")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(sys.platform == "win32", reason="permissions are POSIX")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_a_file_keeps_its_permissions(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "model.gpn"
    path.write_bytes(b"old")
    path.chmod(mode)
    with replacing(path) as name:
        assert stat.S_IMODE(os.stat(name).st_mode) == mode | 0o600
        Path(name).write_bytes(b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights on Windows")
def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    """Also one to a file that is not there yet, and one to another folder."""
    (tmp_path / "store").mkdir()
    for name in ("model.gpn", "link.gpn"):
        target, link = tmp_path / "store" / name, tmp_path / f"to-{name}"
        link.symlink_to(target)
        write_atomically(link, b"new")
        write_atomically(link, b"newer")
        assert link.is_symlink()
        assert target.read_bytes() == b"newer"
    assert len(list((tmp_path / "store").iterdir())) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="FIFOs are POSIX")
def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    fifo, loop = tmp_path / "fifo", tmp_path / "loop"
    os.mkfifo(fifo)
    loop.symlink_to(loop)
    for path, kind in ((fifo, "a FIFO"), (loop, "a loop of links")):
        with pytest.raises(ValueError, match=rf"{path} must be an ordinary file .*, got {kind}"):
            write_atomically(path, b"new")
    with pytest.raises(ValueError, match=r"null must be an ordinary file .*, got a device"):
        replaceable(Path("/dev/null"))
    assert sorted(tmp_path.iterdir()) == [fifo, loop]


@pytest.mark.parametrize("letter", ["n", "ñ"])
def test_names_may_be_as_long_as_the_folder_allows(tmp_path: Path, letter: str) -> None:
    path = tmp_path / (letter * (251 // len(letter.encode())) + ".gpn")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    temporary_file(path)
    remove_temporary_files(path)
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(OSError, match="File name too long"):
        write_atomically(tmp_path / ("n" * 300), b"new")
