"""No orphans: what ends a server when the process that started it is killed without a word."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from grns.dev.servers.identity import Identity

NEEDS_WATCHDOG = sys.platform != "linux"

_PR_SET_PDEATHSIG = 1
_CLONE_NEWUSER = 0x10000000


def entry(identity: Identity, *, bound: bool) -> Callable[[], None] | None:
    """Return what a new child does between fork and exec, or None when there is nothing to do.

    With `bound` the kernel kills the child when the *thread* that forked it ends (Linux).
    """
    if identity.seen_as is None and not bound:
        return None
    # Looked up here: loading a library after the fork could wait for a lock that nobody holds any more.
    libc = ctypes.CDLL(None, use_errno=True)
    prctl, unshare = libc.prctl, getattr(libc, "unshare", None)
    parent = os.getpid()

    def enter() -> None:
        if identity.seen_as is not None:
            if unshare is None or unshare(_CLONE_NEWUSER) != 0:
                raise OSError(ctypes.get_errno(), "no user namespace")
            inner_uid, inner_gid = identity.seen_as
            _write("/proc/self/setgroups", "deny")
            _write("/proc/self/uid_map", f"{inner_uid} {identity.uid} 1")
            _write("/proc/self/gid_map", f"{inner_gid} {identity.gid} 1")
        if bound:
            if prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
                raise OSError(ctypes.get_errno(), "prctl")
            if os.getppid() != parent:  # it died before the kernel knew whom to tell
                os._exit(1)

    return enter


class OrphanGuard:
    """Kill process `pid` when this process ends: the way for systems without a parent-death signal.

    A small process holds the reading end of a pipe whose writing end only we have. End of file
    means that we are gone; a byte means that the server has ended and there is nothing to guard.
    """

    def __init__(self, pid: int) -> None:
        script = Path(__file__).with_name("watchdog.py")
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(script), str(pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )

    def dismiss(self) -> None:
        """Send the watchdog home; the guarded process has ended."""
        with contextlib.suppress(OSError):
            self._process.communicate(b".")


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
