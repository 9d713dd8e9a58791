"""Children that the kernel kills when their parent's thread ends (Linux)."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> Callable[[], None]:
    """Return the function to call between fork and exec."""
    prctl, parent = ctypes.CDLL(None, use_errno=True).prctl, os.getpid()

    def enter() -> None:
        if prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")
        if os.getppid() != parent:  # it ended before the kernel knew
            os._exit(1)

    return enter
