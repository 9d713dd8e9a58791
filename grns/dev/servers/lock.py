"""A lock file that the system releases when its holder dies."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


class FileLock:
    """Hold a file exclusively; the kernel lets go of it when this process ends, however it ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Tell whether we hold the file."""
        return self._descriptor is not None

    def acquire(self) -> bool:
        """Take the file at once and write our process id into it, or return False: somebody has it."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Let go of the file; does nothing when we do not hold it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def holder(self) -> str:
        """Return the process id that the latest holder wrote, or "unknown"."""
        try:
            return self._path.read_text().strip() or "unknown"
        except OSError:
            return "unknown"


@contextlib.contextmanager
def queued(path: Path) -> Iterator[None]:
    """Wait for our turn at the file and hold it inside the block."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
