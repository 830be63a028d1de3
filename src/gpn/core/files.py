"""Atomic writes: a file appears complete or not at all."""

import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SUFFIX = ".gpn"
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
    """The name of a temporary file, which becomes `path` unless something goes wrong."""
    name = temporary_file(path)
    try:
        yield name
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
    _sync_folder(path.parent)


def temporary_file(path: Path) -> str:
    """A new, empty file in the folder of `path`, with the permissions of an ordinary one."""
    name = path.parent / f".{path.name}.{secrets.token_hex(4)}{SUFFIX}"
    os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    return str(name)


def remove_temporary_files(path: Path) -> None:
    """Remove the temporary files that killed writers of `path` have left."""
    pattern = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}{re.escape(SUFFIX)}")
    with suppress(OSError):  # the folder may not allow a listing
        for file in path.parent.iterdir():
            if pattern.fullmatch(file.name):
                file.unlink(missing_ok=True)


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
