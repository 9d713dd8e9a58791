"""A program: enter a user namespace and become the command that follows in its arguments.

It imports nothing of grns, because it is run by its path, without packages. A function between fork and exec
(`preexec_fn`) would do the same, but in a process with threads it can fail, and its error is lost.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

_CLONE_NEWUSER = 0x10000000


def wrapped(command: list[str], *, uid: tuple[int, int], gid: tuple[int, int]) -> list[str]:
    """Return the command line that runs `command` in a user namespace.

    `uid` and `gid` are numbers (inside, outside) of it.
    """
    return [sys.executable, "-I", "-S", __file__, _mapping(uid), _mapping(gid), *command]


def enter(uid_map: str, gid_map: str) -> None:
    """Move this process, which must have one thread, into a user namespace of its own.

    Raises:
        OSError: the system allows none.
    """
    unshare = getattr(ctypes.CDLL(None, use_errno=True), "unshare", None)
    if unshare is None:
        raise OSError("this system has no unshare()")
    if unshare(_CLONE_NEWUSER) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"unshare: {os.strerror(number)}")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(uid_map)
    Path("/proc/self/gid_map").write_text(gid_map)


def _mapping(numbers: tuple[int, int]) -> str:
    return f"{numbers[0]} {numbers[1]} 1"


if __name__ == "__main__":
    try:
        enter(*sys.argv[1:3])
    except OSError as error:
        sys.exit(f"cannot enter a user namespace: {error}")
    os.execv(sys.argv[3], sys.argv[3:])  # noqa: S606 (no shell is wanted)
