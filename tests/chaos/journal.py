"""What happened outside of grns, in files of one JSON document a line, written by those it happened to."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Journal:
    """A file that its process alone writes to; each note is one write, so a kill leaves whole lines."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, what: str, **fields: Any) -> None:
        """Write one line: what, when (seconds since the epoch), and what belongs to it."""
        line = json.dumps({"what": what, "at": time.time(), **fields}, separators=(",", ":"))
        os.write(self._file, line.encode() + b"\n")


def read(directory: Path, pattern: str) -> Iterator[dict[str, Any]]:
    """Return the notes of all journals that match, each journal in its order."""
    for path in sorted(directory.glob(pattern)):
        with path.open() as lines:
            for line in lines:
                yield json.loads(line)
