"""The bytes of a table: in a file or a pipe, packed or not."""

from __future__ import annotations

import errno
import io
import re
import shutil
import sys
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

STANDARD = Path("-")
"""What stands for the standard input or output."""
PACKINGS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
MAGIC = {"gzip": rb"\x1f\x8b\x08", "bz2": rb"BZh[1-9]1AY&SY", "zstd": rb"\x28\xb5\x2f\xfd"}
"""How packed bytes begin. That counts, not the name: browsers unpack, and keep the name."""
MOST_TIMES, ALWAYS = 100, 2**28
"""Tables pack to a third or a tenth; a hundredth is a bomb, unless it is small all the same."""


class TableError(ValueError):
    """What is wrong with a table, in a sentence of our own."""


@dataclass(frozen=True)
class Content:
    """Where the bytes of a table are.

    Attributes
    ----------
    path : Path
        The file that holds them.
    name : str
        What messages call it.
    packing : str or None
        How it is packed.
    scratch : TemporaryFile or None
        What ``path`` is of, if it is temporary; it lives as long as this.
    """

    path: Path
    name: str
    packing: str | None = None
    scratch: TemporaryFile | None = None

    @classmethod
    def of_file(cls, path: Path) -> Content:
        """Take a file as it is."""
        return cls(path, path.name)._found_packing()

    @classmethod
    def of_standard_input(cls) -> Content:
        """Read a pipe once, to the end, into a temporary file: tables are gone through twice."""
        if sys.stdin is None or sys.stdin.isatty():
            raise TableError("Expected a table on the standard input; got none. Pipe one to it.")
        return cls._temporary(sys.stdin.buffer, "standard input")._found_packing()

    @classmethod
    def _temporary(cls, stream: Any, name: str) -> Content:
        scratch = TemporaryFile()
        try:
            shutil.copyfileobj(stream, scratch.file, 2**20)
            scratch.file.flush()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            raise TableError(
                f"Expected room in {tempfile.gettempdir()} for what {name} holds; got none left. "
                "Unpack it yourself, or set TMPDIR to a larger folder."
            ) from error
        return cls(scratch.path, name, scratch=scratch)

    def _found_packing(self) -> Content:
        beginning = self.beginning(16)
        found = (name for name, magic in MAGIC.items() if re.match(magic, beginning))
        return replace(self, packing=next(found, None))

    def open(self) -> IO[bytes]:
        """Open the bytes, unpacked."""
        if self.packing is None:
            return self.path.open("rb")
        return io.BufferedReader(_Unpacking(self), 2**20)

    def stream(self) -> pa.NativeFile:
        """Open the bytes, unpacked, for the threads of pyarrow.

        These may outlive the interpreter by a moment: what they read must not need it.
        """
        import pyarrow as pa

        return pa.input_stream(str(self.path), compression=self.packing)

    def beginning(self, count: int = 4096) -> bytes:
        """Return the first bytes, unpacked."""
        with self.open() as file:
            return file.read(count)

    def unpacked(self) -> Content:
        """Return the same bytes in a file that is not packed."""
        if self.packing is None:
            return self
        with self.open() as file:
            content = self._temporary(file, self.name)._found_packing()
        if content.packing is not None:
            raise TableError(f"Expected {self.name} to be packed once; got twice. Unpack it.")
        return content


class _Unpacking(io.RawIOBase):
    """What a packed file holds, as far as an honest table goes."""

    def __init__(self, content: Content) -> None:
        import pyarrow as pa

        self._stream = pa.input_stream(str(content.path), compression=content.packing)
        self._left = max(ALWAYS, MOST_TIMES * content.path.stat().st_size)
        self._name = content.name

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        part = self._stream.read(len(view))
        self._left -= len(part)
        if self._left < 0:
            raise TableError(
                f"Expected a table of at most {MOST_TIMES} times the size of {self._name}; got "
                "more. If you trust it, unpack it yourself."
            )
        view[: len(part)] = part
        return len(part)

    def close(self) -> None:
        self._stream.close()
        super().close()


class TemporaryFile:
    """A file that goes with this object, and its path for those who open it once more.

    Where the system allows it, it has no name: nothing is left, however the program ends.
    """

    def __init__(self, folder: Path | None = None) -> None:
        handles = Path("/proc/self/fd")
        self.file: Any
        if handles.is_dir():
            self.file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
            self.path = handles / str(self.file.fileno())
        else:
            self.file = tempfile.NamedTemporaryFile(dir=folder)  # noqa: SIM115
            self.path = Path(self.file.name)
        weakref.finalize(self, _close, self.file)


def _close(file: Any) -> None:
    with suppress(OSError):  # a full disk has been told of before, and the file goes anyhow
        file.close()


@contextmanager
def packed_output(path: Path, packing: str | None) -> Iterator[IO[bytes]]:
    """Open a file for writing, and pack what is written."""
    import pyarrow as pa

    with pa.output_stream(str(path), compression=packing) as file:
        yield file


def standard_output() -> IO[bytes]:
    """Return the standard output, for bytes."""
    if sys.stdout is None:
        raise TableError("Expected an open standard output; got a closed one. Name a file.")
    return sys.stdout.buffer
