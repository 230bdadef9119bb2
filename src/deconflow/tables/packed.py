"""The bytes of a table: in a file or a pipe, packed or not."""

from __future__ import annotations

import io
import re
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

STANDARD = Path("-")
"""What stands for the standard input or output."""
PACKINGS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
MAGIC = {"gzip": rb"\x1f\x8b\x08", "bz2": rb"BZh[1-9]1AY&SY", "zstd": rb"\x28\xb5\x2f\xfd"}
"""How packed bytes begin. That counts, not the name: browsers unpack, and keep the name."""


class TableError(ValueError):
    """What is wrong with a table, in a sentence of our own."""


@dataclass(frozen=True)
class Content:
    """Where the bytes of a table are.

    Attributes
    ----------
    source : Path or bytes
        The file that holds them, or the bytes themselves.
    name : str
        What messages call it.
    """

    source: Path | bytes
    name: str

    @classmethod
    def of_standard_input(cls) -> Content:
        """Read a pipe once, to the end: tables are gone through twice."""
        if sys.stdin is None or sys.stdin.isatty():
            raise TableError("Expected a table on the standard input; got none. Pipe one to it.")
        return cls(sys.stdin.buffer.read(), "standard input")

    @cached_property
    def packing(self) -> str | None:
        """How the bytes are packed."""
        with opened(self.source) as file:
            beginning = file.read(16)
        return next((name for name, magic in MAGIC.items() if re.match(magic, beginning)), None)

    def stream(self) -> pa.NativeFile:
        """Open the bytes, unpacked, for the threads of pyarrow.

        These may outlive the interpreter by a moment: what they read must not need it.
        """
        import pyarrow as pa

        inside = isinstance(self.source, bytes)
        source = pa.py_buffer(self.source) if inside else str(self.source)
        return pa.input_stream(source, compression=self.packing)

    def beginning(self, count: int = 4096) -> bytes:
        """Return the first bytes, unpacked."""
        with self.stream() as file:
            return file.read(count)

    @cached_property
    def unpacked(self) -> Path | bytes:
        """The file, if it is not packed; else all that it holds."""
        if self.packing is None:
            return self.source
        with self.stream() as file:
            return file.read()


def opened(source: Path | bytes) -> IO[bytes]:
    """Open a file, or bytes as one."""
    return io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")


def size_of(source: Path | bytes) -> int:
    """Count the bytes."""
    return len(source) if isinstance(source, bytes) else source.stat().st_size


def standard_output() -> IO[bytes]:
    """Return the standard output, for bytes."""
    if sys.stdout is None:
        raise TableError("Expected an open standard output; got a closed one. Name a file.")
    return sys.stdout.buffer
