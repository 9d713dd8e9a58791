"""A pool whose handlers do everything wrong that the corpus of bad input knows."""

from __future__ import annotations

from typing import Any

import grns
from tests.support.bad_input import ERRORS, RESULTS

pool = grns.Pool("hostile")
CASES = {case.name: case for case in RESULTS + ERRORS}


@pool.task("coroutine")
async def coroutine(task: grns.Context, payload: dict[str, str]) -> Any:
    """Return or raise what the payload names."""
    return thread(task, payload)


@pool.task("thread")
def thread(task: grns.Context, payload: dict[str, str]) -> Any:
    """Do it in a thread."""
    value = CASES[payload["case"]].value
    if isinstance(value, BaseException):
        raise value
    return value


@pool.task("echo")
async def echo(task: grns.Context, payload: dict[str, Any]) -> Any:
    """Return what came."""
    return payload["said"]


@pool.task("noop")
async def noop(task: grns.Context) -> None:
    """Do nothing wrong."""
