"""Handlers for measuring."""

from __future__ import annotations

import time

import grns

pool = grns.Pool("worker")


@pool.task("noop")
async def noop(task: grns.Context) -> None:
    """Do nothing."""


@pool.task("clock")
async def clock(task: grns.Context) -> float:
    """Return when this handler was started, in seconds of this machine's clock."""
    return time.time()
