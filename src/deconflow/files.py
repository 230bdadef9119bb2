"""Files and folders that are written in a place of their own, and moved when they are complete.

The place is a hidden folder beside the output, locked as long as its process lives. So the next
run into the same output can tell what a killed one has left, and clears it away.
"""

import ctypes
import errno
import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ModuleNotFoundError:  # Windows: nothing is locked there, and nothing cleared away
    fcntl = None  # type: ignore[assignment]

PathLike = str | os.PathLike[str]
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: How a system exchanges two names in one step: ``AT_FDCWD``, the function and its flag.
EXCHANGE = {"linux": (-100, "renameat2", 2), "darwin": (-2, "renameatx_np", 2)}


class NoRoomError(OSError):
    """The disk is full, or what may be written on it."""


def as_path(path: PathLike, name: str = "path") -> Path:
    """Take an argument as a path, or say why it can be none."""
    if not isinstance(path, str | os.PathLike) or not path:
        raise TypeError(f"Expected {name} as a file's or folder's name; got {path!r}.")
    try:
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            os.stat(path)  # these errors come when it is read or written
    except (OSError, ValueError) as error:
        raise ValueError(
            f"Expected {name} as the system takes it; got {path!r}: "
            f"{getattr(error, 'strerror', None) or error}."
        ) from error
    return Path(path)


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Give a file to write, and move it to ``path`` if the block succeeds.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder) / "out.txt") as part:
    ...         _ = part.write_text("complete")
    ...     (Path(folder) / "out.txt").read_text()
    'complete'
    """
    given, path = Path(path), Path(os.path.realpath(path))  # a link stays a link
    if path.is_dir():
        raise IsADirectoryError(f"Expected a file to write; got the folder {given}.")
    with clear_write_errors(given), _place_beside(path) as place:
        part = place / path.name
        part.touch()
        yield part
        _flush(part)
        os.replace(part, path)
        _flush(path.parent)


@contextmanager
def replacing_folder(path: str | Path) -> Iterator[Path]:
    """Give an empty folder, and put it in the place of ``path`` if the block succeeds."""
    given, path = Path(path), Path(os.path.realpath(path))
    with clear_write_errors(given), _place_beside(path) as place:
        new = place / path.name
        new.mkdir()
        yield new
        for each in (*new.iterdir(), new):
            _flush(each)
        while failure := _exchange(new, path):  # at every moment path is the old or the new one
            if failure != errno.ENOENT:  # the disk cannot exchange: in two moves
                old = place / f"{path.name}.old"
                shutil.rmtree(old, ignore_errors=True)
                with suppress(FileNotFoundError):
                    os.replace(path, old)
            try:
                os.rename(new, path)
                break
            except OSError as error:  # its name may have been taken at this very moment
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
        _flush(path.parent)


@contextmanager
def locked_folder(path: Path) -> Iterator[bool]:
    """Make a folder, or take one that is there, and say whether no other process has it."""
    while True:
        path.mkdir(parents=True, exist_ok=True)
        with _locked(path) as state:
            if state != "gone":  # else whoever had it has just removed it
                yield state != "taken"
                return


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
        if error.errno in NO_ROOM:
            raise NoRoomError(
                f"Expected room on the disk for {path}; got none left. Nothing was written there."
            ) from error
        if error.errno is None:
            raise
        raise OSError(f"Expected to write {path}; got: {error.strerror}.") from error


@contextmanager
def _place_beside(path: Path) -> Iterator[Path]:
    """Make a locked folder for all that is not complete, and remove it in any case.

    First the places of runs that were killed are removed; those of living ones are locked.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    left = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.part")
    with suppress(PermissionError):
        for place in [each for each in path.parent.iterdir() if left.fullmatch(each.name)]:
            with _locked(place) as state:
                if state == "ours":
                    _remove(place, path)
    while True:
        place = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        with locked_folder(place) as ours:
            if ours:  # else another run has found it before it was locked, and clears it away
                try:
                    yield place
                finally:
                    _remove(place, path)
                return


def _remove(place: Path, path: Path) -> None:
    """Remove a place; what was moved aside there goes back if nothing has taken its name."""
    old = place / f"{path.name}.old"
    if old.exists() and not path.exists():
        os.replace(old, path)
    shutil.rmtree(place, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[str]:
    """Lock a folder during the block; the lock ends with its process, however that ends.

    Its state is ``"ours"``, ``"taken"``, ``"gone"``, or ``"unknown"`` where the system or the disk
    has no locks.
    """
    with ExitStack() as until_the_end:
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            until_the_end.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            same = os.path.samestat(os.stat(folder), os.fstat(descriptor))
            state = "ours" if same else "gone"
        except FileNotFoundError:
            state = "gone"
        except BlockingIOError:
            state = "taken"
        except (OSError, AttributeError):  # Windows opens no folders
            state = "unknown"
        yield state


def _exchange(one: Path, other: Path) -> int:
    """Exchange two names in one step; return 0, or the number of the error."""
    here, function, flag = EXCHANGE.get(sys.platform, (0, "", 0))
    library = ctypes.CDLL(None, use_errno=True) if function else None
    if not hasattr(library, function):
        return errno.ENOSYS
    names = (os.fsencode(one), os.fsencode(other))
    if getattr(library, function)(here, names[0], here, names[1], flag) == 0:
        return 0
    return ctypes.get_errno()


def _flush(path: Path) -> None:
    """Bring a file or a folder to the disk, so that its new name survives a power cut."""
    if path.is_dir() and sys.platform == "win32":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        if not path.is_dir():  # some disks do not flush folders
            raise
    finally:
        os.close(descriptor)
