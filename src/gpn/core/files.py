"""Files that appear whole or not at all."""

import errno
import os
import re
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

SUFFIX = ".gpn"

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_whole(path: Path, content: bytes) -> None:
    """A temporary file in the same folder, renamed once all of it is on disk.

    Whatever goes wrong, what was at `path` before stays as it was.
    """
    try:
        _write(path, content)
    except OSError as error:
        message = _what_to_do(path, len(content), error)
        raise OSError(*(given for given in (error.errno, message) if given)) from error


def _write(path: Path, content: bytes) -> None:
    name = beside(path)
    try:
        with open(name, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
    _settle(path.parent)


def beside(path: Path) -> str:
    """A new, empty file in the folder of `path`, with the permissions of an ordinary one."""
    name = path.parent / f"{_prefix(path)}{secrets.token_hex(4)}{SUFFIX}"
    os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    return str(name)


def sweep(path: Path) -> None:
    """Remove what writers of `path` that were killed have left beside it."""
    ours = re.compile(f"{re.escape(_prefix(path))}[0-9a-f]{{8}}{re.escape(SUFFIX)}")
    with suppress(OSError):  # a folder need not be one that can be listed
        for left in path.parent.iterdir():
            if ours.fullmatch(left.name):
                left.unlink(missing_ok=True)


def _prefix(path: Path) -> str:
    return f".{path.name}."


def _settle(folder: Path) -> None:
    """The renaming itself on disk, where folders can be opened."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _what_to_do(path: Path, size: int, error: OSError) -> str:
    what = f"{path} must be written whole, {size:,} bytes, got: {error.strerror or error}"
    if error.errno not in FULL:
        return f"{what}; make its folder one that exists and can be written, or choose another."
    free = shutil.disk_usage(path.parent).free
    return (
        f"{what}; the file that was there, if any, is as it was. Make room ({free:,} bytes are "
        "free there) or raise the limit on file sizes, or choose another folder."
    )
