"""Atomic writes: a file appears complete or not at all.

A writer holds a lock on its temporary file, which ends with its process: a file without one was
left by a writer that was killed, and the next writer of the same path removes it.
"""

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from torch import Tensor

try:
    import fcntl
except ImportError:  # Windows: a file that is open cannot be removed there
    fcntl = None  # type: ignore[assignment]

SUFFIX = ".gpn"
SHOWN_NAME = 40  # letters of a path's name in that of its temporary file
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a temporary file in the same folder, sync it to disk, and rename it to `path`.

    Whatever goes wrong, the file that was at `path` before stays as it was.
    """
    try:
        with replacing(path) as name, open(name, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        message = _advice(path, len(content), error)
        raise OSError(*filter(None, (error.errno, message))) from error


@contextmanager
def replacing(path: Path) -> Iterator[str]:
    """The name of a temporary file, which becomes `path` unless something goes wrong.

    A file that was there passes its permissions on, and a symbolic link stays one: the file that
    it points to is replaced.
    """
    target = replaceable(path)
    remove_temporary_files(path)
    name, handle = _locked_file(target)
    try:
        try:
            yield name
            _take_permissions(name, target)
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise
        _sync_folder(target.parent)
    finally:
        if handle is not None:
            os.close(handle)


def replaceable(path: Path) -> Path:
    """The file itself, where `path` is a symbolic link; raise where it is no file."""
    target = Path(os.path.realpath(path))
    try:
        mode = os.lstat(target).st_mode
    except FileNotFoundError:
        return target
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # a folder has an error of its own
        return target
    kinds = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFLNK: "a loop of links"}
    raise ValueError(
        f"{path} must be an ordinary file or a new one, got "
        f"{kinds.get(stat.S_IFMT(mode), 'a device')}; choose another path."
    )


def temporary_file(path: Path) -> str:
    """A new, empty file beside the one to replace, with its permissions or ordinary ones."""
    name, handle = _new_file(replaceable(path))
    os.close(handle)
    return name


def remove_temporary_files(path: Path) -> None:
    """Remove the temporary files that killed writers of `path` have left, not those in use."""
    target = replaceable(path)
    pattern = re.compile(rf"{re.escape(_prefix(target))}[0-9a-f]{{8}}{re.escape(SUFFIX)}")
    with suppress(OSError):  # the folder may not allow a listing
        for file in target.parent.iterdir():
            if pattern.fullmatch(file.name):
                _remove_unless_locked(file)


def _prefix(target: Path) -> str:
    """The name's first letters, and a hash of it all: names may be as long as a folder allows."""
    digest = hashlib.sha256(os.fsencode(target.name)).hexdigest()
    return f".{target.name[:SHOWN_NAME]}.{digest[:8]}."


def _new_file(target: Path) -> tuple[str, int]:
    name = target.parent / f"{_prefix(target)}{secrets.token_hex(4)}{SUFFIX}"
    handle = os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
    _take_permissions(str(name), target, at_least=stat.S_IRUSR | stat.S_IWUSR)
    return str(name), handle


def _take_permissions(name: str, target: Path, at_least: int = 0) -> None:
    """Those of the file to replace, if there is one."""
    with suppress(FileNotFoundError):
        os.chmod(name, stat.S_IMODE(target.stat().st_mode) | at_least)


def _locked_file(target: Path) -> tuple[str, int | None]:
    """A new temporary file, and the handle that holds its lock."""
    while True:
        name, handle = _new_file(target)
        if fcntl is None:
            os.close(handle)
            return name, None
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:  # else it was removed before it was locked
            return name, handle
        os.close(handle)


def _remove_unless_locked(file: Path) -> None:
    if fcntl is None:
        with suppress(PermissionError):
            file.unlink(missing_ok=True)
        return
    handle = os.open(file, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.unlink(missing_ok=True)
    except BlockingIOError:
        pass
    finally:
        os.close(handle)


def _sync_folder(folder: Path) -> None:
    """Bring the renaming to disk, where the system can open folders."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _advice(path: Path, size: int, error: OSError) -> str:
    failure = f"{path} must be written whole, {size:,} bytes, got: {error.strerror or error}"
    if error.errno not in DISK_FULL:
        return f"{failure}; make its folder one that exists and can be written, or choose another."
    free = shutil.disk_usage(path.parent).free
    return (
        f"{failure}; the file that was there, if any, is as it was. Make room ({free:,} bytes are "
        "free there) or raise the limit on file sizes, or choose another folder."
    )


def checksum(header: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of all entries of a header but "checksum", and of all tensors, by name."""
    digest = hashlib.sha256()
    entries = {name: value for name, value in header.items() if name != "checksum"}
    digest.update(json.dumps(entries, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
