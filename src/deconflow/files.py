"""Files and folders that are written under another name, and moved when they are whole."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Give a temporary name beside ``path``, and move it there if the block succeeds.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder) / "out.txt") as part:
    ...         _ = part.write_text("whole")
    ...     (Path(folder) / "out.txt").read_text()
    'whole'
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"Expected a file to write; got the folder {path}.")
    with clear_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        os.close(handle)
        part = Path(name)
        try:
            yield part
            part.chmod(0o666 & ~_umask())
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)


@contextmanager
def clear_write_errors(path: Path) -> Iterator[None]:
    """Say what a failed write means, and what to do."""
    try:
        yield
    except PermissionError as error:
        raise PermissionError(
            f"Expected permission to write {path}; got none. Choose another output."
        ) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise OSError(
                f"Expected room on the disk for {path}; got none left. Nothing was written there."
            ) from error
        if error.errno is None:
            raise
        raise OSError(f"Expected to write {path}; got: {error.strerror}.") from error


def swap_folder(new: Path, path: Path) -> None:
    """Move a new folder into place, with an old one aside until that has worked."""
    if not path.exists():
        os.replace(new, path)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{path.name}.old.", dir=path.parent)) / "model"
    os.replace(path, old)
    try:
        os.replace(new, path)
    except OSError:
        os.replace(old, path)
        raise
    finally:
        shutil.rmtree(old.parent, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
