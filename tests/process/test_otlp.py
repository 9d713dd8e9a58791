"""Spans of real processes at a collector: all of them, also of a worker that ends; none waits for it."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from grns.dev.servers import LocalNats
from grns.postgres.database import Database
from tests.support.harness import ROOT, Fleet, all_in, eventually, ready, submit_many

pytestmark = pytest.mark.timeout(180)

_LOOK = (
    "import sys, grns.cli.process, grns.cli.worker, grns.worker.worker, grns.outbox.relay;"
    "from grns.bootstrap.app import App; from grns.settings import load;"
    "App(load(database_url='postgresql://h/d')).trace('worker');"
    "print([name for name in sys.modules if name.startswith('opentelemetry')])"
)


class Collector:
    """Takes spans in, as any OTLP collector does, and keeps their names by service."""

    def __init__(self) -> None:
        self.names: dict[str, list[str]] = {}
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == "/v1/traces":
                    collector.take(body)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def take(self, body: bytes) -> None:
        """Keep what was sent."""
        for part in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = {one.key: one.value.string_value for one in part.resource.attributes}["service.name"]
            for scope in part.scope_spans:
                self.names.setdefault(service, []).extend(span.name for span in scope.spans)

    def close(self) -> None:
        """Take nothing more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A collector on this machine."""
    collector = Collector()
    yield collector
    collector.close()


async def test_processes_send_their_spans_and_lose_none_at_their_end(
    fleet: Fleet, database: Database, broker: LocalNats, collector: Collector
) -> None:
    environment = {"GRNS_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "3600000"}
    relay = fleet.start("daemon", "relay", **environment)
    worker = fleet.start("worker", "start", "tests.support.pools:pool", **environment)
    await ready(database, worker)
    ids = await submit_many(database, 5)
    await all_in(database, ids, within_seconds=30)

    async def all_is_relayed() -> bool:
        async with database.connection() as connection:
            return bool(
                await connection.fetchval(
                    "select c.low >= s.last_value from grns.relay_cursor c, grns.events_seq s"
                )
            )

    await eventually(all_is_relayed)
    assert collector.names == {}, "they are sent in batches"
    for process in (worker, relay):
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 30) == 0, fleet.log_of(process)
    names = collector.names
    for step in ("claim noop", "run noop", "finish noop"):
        assert names["grns-worker"].count(step) == 5, names
    assert names["grns-relay"].count("publish evt.task.completed") == 5
    assert names.keys() == {"grns-worker", "grns-relay"}, "a heartbeat process has nothing to show"


async def test_a_collector_that_is_away_is_told_and_keeps_nobody(
    fleet: Fleet, database: Database, broker: LocalNats
) -> None:
    worker = fleet.start(
        "worker",
        "start",
        "tests.support.pools:pool",
        GRNS_OTLP_ENDPOINT="http://127.0.0.1:1",
        OTEL_BSP_SCHEDULE_DELAY="50",
    )
    await ready(database, worker)
    await all_in(database, await submit_many(database, 3), within_seconds=20)

    async def is_told() -> bool:
        return bool(fleet.facts_of(worker, "spans_not_sent"))

    await eventually(is_told, within_seconds=30)
    worker.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(worker.wait, 15) == 0, fleet.log_of(worker)


def test_where_nobody_asks_for_spans_nothing_of_it_is_loaded() -> None:
    seen = subprocess.run([sys.executable, "-c", _LOOK], cwd=ROOT, capture_output=True, text=True, check=True)
    assert seen.stdout.strip() == "[]"
