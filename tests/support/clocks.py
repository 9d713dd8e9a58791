"""Clocks that are wrong: what a process is started with, so that its wall clock is not everybody's."""

from __future__ import annotations

from pathlib import Path

import libfaketime

_SHARED = Path("/dev/shm")
_LIBRARY = Path(libfaketime.__file__).parent / "vendor" / "libfaketime" / "src" / "libfaketime.so.1"


def wrong(offset: str) -> dict[str, str]:
    """Return the environment of a process whose wall clock is off by so much: `+2h`, `-1y`.

    The clock that only goes forward is left alone, as it is where somebody sets the time.
    """
    return {"LD_PRELOAD": str(_LIBRARY), "FAKETIME": offset, "DONT_FAKE_MONOTONIC": "1"}


def tidy() -> None:
    """Remove what processes that were killed have left in shared memory."""
    for name in ("faketime_shm_", "sem.faketime_sem_"):
        for left in _SHARED.glob(f"{name}*"):
            if not Path("/proc", left.name.removeprefix(name)).exists():
                left.unlink(missing_ok=True)
