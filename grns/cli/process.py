"""How a service runs as a process: its loop, its signals, its log, its metrics, its end."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack

from grns.app import App
from grns.daemon import Service
from grns.errors import GrnsError
from grns.settings import Settings, misspelt
from grns.telemetry import log
from grns.telemetry.facts.process import SettingMisspelt
from grns.telemetry.log import LogLeaf
from grns.telemetry.metrics import MetricsLeaf, serve

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_STOPPED_AGAIN = 130
# An init system signals each process of a group, and who started this one passes its signal on: one request.
_SAME_REQUEST_SECONDS = 0.5
_COLLECTOR_THRESHOLDS = (20_000, 20, 50)


def make_app(settings: Settings, service: str, resources: ExitStack) -> App:
    """Return an app that logs to stderr and serves its metrics where a port is set."""
    log.configure(level=settings.log_level, format=settings.log_format)
    metrics = MetricsLeaf()
    if settings.metrics_port is not None:
        resources.callback(serve(metrics, settings.metrics_host, settings.metrics_port))
    app = App(settings, (LogLeaf(level=settings.log_level, service=service), metrics))
    if service != "keeper":  # its worker has told already
        for sentence in misspelt():
            app.telemetry.emit(SettingMisspelt(sentence))
    return app


def run(settings: Settings, work: Callable[[], Awaitable[None]]) -> None:
    """Run `work` on the loop that the settings ask for."""
    if settings.loop == "auto":
        try:
            import uvloop
        except ImportError:
            asyncio.run(_main(work))
        else:
            uvloop.run(_main(work))
    else:
        asyncio.run(_main(work))


async def _main(work: Callable[[], Awaitable[None]]) -> None:
    await work()


async def run_services(services: Sequence[Service]) -> None:
    """Run services until SIGTERM or SIGINT; a second signal ends the process at once.

    Where one service ends by a bug, the others are stopped and the bug is raised.
    """
    loop = asyncio.get_running_loop()
    stopped_at: float | None = None

    def stop() -> None:
        nonlocal stopped_at
        if stopped_at is not None:
            if loop.time() - stopped_at > _SAME_REQUEST_SECONDS:
                # Safe at any moment: what is not written yet is redone by others once the lease is over.
                os._exit(_STOPPED_AGAIN)
            return
        stopped_at = loop.time()
        for service in services:
            service.stop()

    _calm_collector()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop)
    runs = [asyncio.create_task(service.run()) for service in services]
    done, pending = await asyncio.wait(runs, return_when=asyncio.FIRST_COMPLETED)
    if pending:
        for service in services:
            service.stop()
        await asyncio.wait(pending)
    for task in runs:
        task.result()
    del done


def _calm_collector() -> None:
    """Look for cycles less often: a message makes dozens of objects, and hardly any cycle."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTOR_THRESHOLDS)


def fail(error: GrnsError) -> int:
    """Say what went wrong, in one sentence, and return the exit code."""
    sys.stderr.write(f"grns: {error}\n")
    return error.exit_code
