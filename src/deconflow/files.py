"""Files and folders that are written under another name, and moved when they are complete."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Give a temporary name beside ``path``, and move it there if the block succeeds.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder) / "out.txt") as part:
    ...         _ = part.write_text("complete")
    ...     (Path(folder) / "out.txt").read_text()
    'complete'
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"Expected a file to write; got the folder {path}.")
    with clear_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = _beside(path)
        part.touch(exist_ok=False)  # made here, so that the umask says its permissions
        try:
            yield part
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)


@contextmanager
def replacing_folder(path: str | Path) -> Iterator[Path]:
    """Give an empty folder beside ``path``, and move it there if the block succeeds."""
    path = Path(path)
    with clear_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        new, old = _beside(path), _beside(path)
        new.mkdir()
        try:
            yield new
            if path.exists():
                os.replace(path, old)
            os.replace(new, path)
        except BaseException:
            if old.exists() and not path.exists():  # moved aside, and the new one did not come
                os.replace(old, path)
            raise
        finally:
            shutil.rmtree(new, ignore_errors=True)
            if path.exists():  # else the old one is all there is
                shutil.rmtree(old, ignore_errors=True)


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


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
