"""A file system of its own for a server's data, whose power can be cut: what was not synced is gone.

It needs root, loop devices and ext4. FS_IOC_SHUTDOWN without a flush of the journal ends all writing at once,
as a power cut does; what the kernel had written back by then survives, also what was written later.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import time
from pathlib import Path

_SHUTDOWN = 0x8004587D
_WITHOUT_FLUSH = struct.pack("i", 2)
# Sparse: JetStream takes three quarters of it for what it may store at most.
_SIZE_BYTES = 40 * 1024**3
_UNMOUNT_SECONDS = 20.0


class Disk:
    """A loop-mounted ext4 at the directory `place`."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._image = place.with_suffix(".img")

    def begin(self) -> None:
        """Make it and mount it. Raises `SystemExit` with the reason where this machine does not allow it."""
        self.place.mkdir(parents=True)
        with self._image.open("wb") as image:
            image.truncate(_SIZE_BYTES)
        _run("mkfs.ext4", "-q", "-F", str(self._image))
        self._mount()

    def cut(self) -> None:
        """Cut the power: every later write fails."""
        descriptor = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, _WITHOUT_FLUSH)
        finally:
            os.close(descriptor)

    def restore(self) -> None:
        """Mount it again, once no process has a file of it open."""
        self._unmount()
        self._mount()

    def end(self) -> None:
        """Unmount it and remove it."""
        self._unmount()
        self._image.unlink(missing_ok=True)

    def _mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.place))

    def _unmount(self) -> None:
        deadline = time.monotonic() + _UNMOUNT_SECONDS
        while os.path.ismount(self.place):
            done = subprocess.run(["/bin/umount", str(self.place)], capture_output=True, check=False)
            if done.returncode and time.monotonic() > deadline:
                raise OSError(f"{self.place} is busy: {done.stderr.decode()}")
            time.sleep(0.05 if done.returncode else 0)


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise SystemExit(f"power cuts need {command[0]}: {error}") from error
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"power cuts need root and loop devices: {error.stderr.strip()}") from error
