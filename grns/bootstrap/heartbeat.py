"""The heartbeat process: `python -m grns.bootstrap.heartbeat`, which each worker starts.

While it starts nothing renews the worker's leases, so it imports as little as it can.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

if __name__ == "__main__":
    gc.disable()  # until all is imported
    sys.modules["rich"] = None  # type: ignore[assignment]  # structlog would import it for its own tracebacks

import structlog

from grns.bootstrap.app import App
from grns.errors import GrnsError
from grns.nats import JetStream
from grns.postgres.database import Database
from grns.settings import Settings, load, reveal
from grns.telemetry import log
from grns.worker.heartbeat import Heartbeat, is_running
from grns.worker.leases import SharedLeaseTable
from grns.worker.usage import ProcessUsage

_log = structlog.get_logger()

_LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class HeartbeatConfig:
    """The configuration that a worker passes to its heartbeat process."""

    table_descriptor: int
    slots: int
    agent_id: str
    worker_pid: int
    settings: Settings

    def dump(self) -> bytes:
        """Return the configuration as one line."""
        fields = {"slots": self.slots, "agent_id": self.agent_id, "worker_pid": self.worker_pid}
        return json.dumps(fields | {"settings": reveal(self.settings)}).encode()

    @classmethod
    def read(cls, line: bytes, table_descriptor: int) -> HeartbeatConfig:
        """Return the configuration that `dump` wrote."""
        fields = json.loads(line)
        return cls(table_descriptor, **fields | {"settings": load(**fields["settings"])})


def make(
    app: App,
    config: HeartbeatConfig,
    database: Database,
    transport: JetStream,
    on_ready: Callable[[], None],
) -> Heartbeat:
    """Return the heartbeat of the worker that started this process."""
    return Heartbeat(
        database=database,
        transport=transport,
        table=SharedLeaseTable.attach(config.table_descriptor, config.slots),
        agent_id=config.agent_id,
        workspace=app.settings.workspace,
        lease_seconds=app.settings.lease_seconds,
        ack_wait_seconds=app.settings.ack_wait_seconds,
        is_worker_running=partial(is_running, config.worker_pid),
        usage=ProcessUsage(config.worker_pid),
        emit=app.telemetry.emit,
        on_ready=on_ready,
    )


def main(table_descriptor: int, ready_descriptor: int) -> int:
    """Renew the leases of the worker that started this process; return the exit code."""
    # A terminal's Ctrl-C is for the worker: it ends this process after its last task.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if not (line := sys.stdin.buffer.readline()):
        return 0  # the worker died before it wrote the configuration
    try:
        config = HeartbeatConfig.read(line, table_descriptor)
        level = config.settings.log_level
        log.configure(level=level, format=config.settings.log_format, service="heartbeat")
        app = App(config.settings, (log.LogListener(level=level),))
        gc.freeze()
        gc.enable()
        asyncio.run(_renew(app, config, ready_descriptor))
    except GrnsError as error:
        _log.error("heartbeat_failed", error=str(error))
        return 1
    return 0


async def _renew(app: App, config: HeartbeatConfig, ready_descriptor: int) -> None:
    def end_with_worker() -> None:
        if not os.read(sys.stdin.fileno(), 1024):
            os._exit(0)

    async def end_without_worker() -> None:
        """Exit after the worker, even if a process that it forked holds our input open."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if os.getppid() != config.worker_pid:
                os._exit(0)

    def tell_worker() -> None:
        os.write(ready_descriptor, b".")
        os.close(ready_descriptor)

    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), end_with_worker)
    watching = loop.create_task(end_without_worker())
    async with app.connections("heartbeat", size=2, is_service=True) as (database, transport):
        await make(app, config, database, transport, tell_worker).run()
    watching.cancel()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
