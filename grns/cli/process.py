"""A service as a process: event loop, signals, log, metrics, exit."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import ExitStack
from typing import NoReturn

import click
import structlog

from grns.bootstrap.app import App
from grns.cli import failure
from grns.errors import GrnsError
from grns.runtime.service import Service
from grns.settings import Settings, misspelt
from grns.telemetry import log
from grns.telemetry.log import LogListener
from grns.telemetry.metrics_listener import MetricsListener, serve

_log = structlog.get_logger()

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_INTERRUPTED = _STOPPED_AGAIN = 130
# An init system signals each process of a group, and the parent passes its signal on: this is one request.
_SAME_REQUEST_SECONDS = 0.5
_COLLECTOR_THRESHOLDS = (20_000, 20, 50)


def make_app(settings: Settings, service: str, resources: ExitStack) -> App:
    """Return an app that logs to stderr and, if a port is set, serves metrics."""
    log.configure(level=settings.log_level, format=settings.log_format, service=service)
    metrics = MetricsListener()
    if settings.metrics_port is not None:
        resources.callback(serve(metrics, settings.metrics_host, settings.metrics_port))
    app = App(settings, (LogListener(level=settings.log_level), metrics))
    app.trace(service)
    resources.callback(app.spans.close)
    for sentence in misspelt():
        _log.warning("setting_unknown", detail=sentence)
    return app


def run(settings: Settings, work: Callable[[], Awaitable[None]]) -> None:
    """Run `work` on the event loop of the settings.

    If the log is JSON, an error that ends it is a log line too.
    """
    try:
        _loop(settings)(_main(work))
    except GrnsError as error:
        if not log.is_json():
            raise
        raise click.exceptions.Exit(fail(error)) from error


def _loop(settings: Settings) -> Callable[[Coroutine[None, None, None]], None]:
    if settings.loop == "auto":
        try:
            import uvloop
        except ImportError:
            pass
        else:
            return uvloop.run
    return asyncio.run


async def _main(work: Callable[[], Awaitable[None]]) -> None:
    await work()


async def end_after(work: Awaitable[None]) -> NoReturn:
    """Do the work and exit the process from within its event loop.

    The end of a loop waits for its threads and for tasks that ignore their cancellation: user code that did
    not end with its attempt must not delay the exit.
    """
    code = 1
    current = asyncio.current_task()
    try:
        await work
        code = 0
    except GrnsError as error:
        code = fail(error)
    except BaseException as error:
        # Before the services handle signals, the loop does: it cancels this task.
        if isinstance(error, asyncio.CancelledError) and current is not None and current.cancelling():
            code = _INTERRUPTED
        else:
            traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


async def run_services(services: Sequence[Service]) -> None:
    """Run services until SIGTERM or SIGINT; a second signal ends the process at once.

    If one service fails by a bug, the others are stopped and the bug is raised.
    """

    def stop() -> None:
        for service in services:
            service.stop()

    _tune_collector()
    _handle_signals(stop)
    runs = [asyncio.create_task(service.run()) for service in services]
    done, pending = await asyncio.wait(runs, return_when=asyncio.FIRST_COMPLETED)
    if pending:
        stop()
        await asyncio.wait(pending)
    for task in runs:
        task.result()
    del done


def _handle_signals(stop: Callable[[], None]) -> None:
    """Stop at the first signal, exit at the second one; their own time counts, not that of the loop."""
    loop = asyncio.get_running_loop()
    stopped_at: float | None = None

    def handle(_number: int, _frame: object) -> None:
        nonlocal stopped_at
        if stopped_at is None:
            stopped_at = time.monotonic()
            loop.call_soon_threadsafe(stop)
        elif time.monotonic() - stopped_at > _SAME_REQUEST_SECONDS:
            # Safe at any moment: other workers repeat what is not written when the lease expires.
            os._exit(_STOPPED_AGAIN)

    for number in _SIGNALS:
        signal.signal(number, handle)


def _tune_collector() -> None:
    """Collect garbage less often: a message makes dozens of objects, and hardly any cycle."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTOR_THRESHOLDS)


def fail(error: GrnsError) -> int:
    """Write an error and the command that helps, and return the exit code."""
    if log.is_json():
        _log.error("service_failed", error=str(error), advice=failure.hint_of(error) or "")
    else:
        failure.print_error(str(error), failure.hint_of(error))
    return error.exit_code
