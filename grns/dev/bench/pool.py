"""The handlers that are measured."""

from __future__ import annotations

import time

import grns

AGENT_TYPE = "bench"
NOOP, CLOCK = "noop", "clock"

pool = grns.Pool(AGENT_TYPE)


@pool.task(NOOP)
async def noop(task: grns.Context) -> None:
    """Do nothing."""


@pool.task(CLOCK)
async def clock(task: grns.Context) -> float:
    """Return when it was started, in seconds of the clock that all processes of this machine share."""
    return time.monotonic()
