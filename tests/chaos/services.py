"""What a storm has beside the spine: the HTTP API, workers over HTTP, bulk operations, and webhooks.

`Services` puts them on the stage; `check_services` holds what they did against the log.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg

from grns.dev.servers.port import free_port
from tests.chaos.proxy import HOST
from tests.support.webhooks import FINE, Receiver, Request, answering, status

if TYPE_CHECKING:
    from tests.chaos.checker import Report

# Not what is rejected: that is most of all, and sending it takes longer than the storm.
KINDS = ("evt.task.dead", "evt.task.failed", "evt.task.cancelled", "dlq.task.*")
_HTTP_SHARE = 0.05
_WEBHOOK_SECONDS = 2.0
_FAILING = 0.2
_EXPECTED = """
    select message_id::text as id from grns.events e, grns.webhooks w
    where e.seq >= w.since_seq and e.kind ~ w.pattern
"""
_OPERATIONS = """
    select o.id, o.state, o.moved, o.action = 'cancel' and o.filter like '%workflow:%' as may_ask,
        coalesce(l.logged, 0) as logged, coalesce(l.tasks, 0) as tasks
    from grns.operations o
    left join (  -- the log is read once, not once for each operation
        select e.payload ->> 'operation_id' as id, count(*) as logged, count(distinct e.task_id) as tasks
        from grns.events e
        where e.kind in ('evt.task.queued', 'evt.task.waiting', 'evt.task.cancelled')
        group by 1
    ) as l on l.id = o.id::text
"""


class Services:
    """The API's address and keys, and a server that webhooks are sent to: it fails now and then."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._resources = AsyncExitStack()
        self._secret = ""
        self._is_well = False
        self.receiver = Receiver(self._answer)
        self._port = free_port()  # none that a connection may have while the API is being started again

    @property
    def url(self) -> str:
        """The API's URL."""
        return f"http://{HOST}:{self._port}"

    @property
    def settings(self) -> dict[str, str]:
        """Settings of all processes, for webhooks may not be sent to this machine otherwise."""
        return {
            "GRNS_WEBHOOK_ALLOW_HTTP": "1",
            "GRNS_WEBHOOK_ALLOW_NETWORKS": f"{HOST}/32",
            "GRNS_WEBHOOK_TIMEOUT_SECONDS": str(_WEBHOOK_SECONDS),
            "GRNS_WEBHOOK_MAX_PENDING": "1000000",  # a storm is no reason to disable it
            "GRNS_CHAOS_URL": self.url,
        }

    def cast(self, rate: float) -> list[tuple[str, list[str], dict[str, str]]]:
        """Return the seats: name, module with arguments, environment."""
        loops = max(12, round(rate / 5))  # more than its agent may have tasks
        cast: list[tuple[str, list[str], dict[str, str]]] = [
            ("api-1", ["grns", "daemon", "api", "--host", HOST, "--port", str(self._port)], {}),
            ("operations-1", ["grns", "daemon", "operations"], {}),
            ("webhooks-1", ["grns", "daemon", "webhooks"], {}),
            ("http-worker-1", ["tests.chaos.http_worker", self.url, str(loops)], {}),
        ]
        if rate:
            cast.append(("operator-1", ["tests.chaos.operator", self.url], {}))
            cast.append(("submitter-9", ["tests.chaos.submitter", "http", str(rate * _HTTP_SHARE)], {}))
        return cast

    async def start(self, database_url: str) -> dict[str, str]:
        """Make a key and a webhook, and listen; returns the variables that name the key."""
        await self._resources.enter_async_context(self.receiver.listening())
        scopes = [part for scope in ("read", "submit", "operate", "work") for part in ("--scope", scope)]
        key = await asyncio.to_thread(self._grns, database_url, "admin", "key", "create", "storm", *scopes)
        kinds = [part for kind in KINDS for part in ("--kind", kind)]
        webhook = await asyncio.to_thread(
            self._grns, database_url, "webhook", "create", self.receiver.url, *kinds
        )
        self._secret = webhook["secret"]
        return {"GRNS_CHAOS_KEY": key["key"]}

    async def stop(self) -> None:
        """Listen no longer."""
        await self._resources.aclose()

    def heal(self) -> None:
        """Answer every request of the webhook well from now on."""
        self._is_well = True

    def forged(self) -> list[str]:
        """Return the ids of requests whose signature is not the webhook's."""
        return [one.id for one in self.receiver.requests if not one.is_signed_with(self._secret)]

    def received(self) -> set[str]:
        """Return the ids of all messages that came."""
        return {one.id for one in self.receiver.requests}

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        manner = answering(FINE)
        if self._is_well:
            pass
        elif random.random() < _FAILING:
            manner = random.choice((status(500), status(503, "Retry-After: 1"), status(302), _hang_up))
        elif random.random() < _FAILING / 20:
            manner = _hang
        await manner(request, writer)

    def _grns(self, database_url: str, *arguments: str) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-m", "grns", *arguments, "-o", "json"],
            env={**os.environ, **self.settings, "GRNS_DATABASE_URL": database_url},
            cwd=self._directory,
            capture_output=True,
            check=True,
            text=True,
        )
        said: dict[str, Any] = json.loads(done.stdout)
        return said


async def _hang(_request: Request, _writer: asyncio.StreamWriter) -> None:
    """Answer nothing for longer than a sender waits."""
    await asyncio.sleep(2 * _WEBHOOK_SECONDS)


async def _hang_up(_request: Request, _writer: asyncio.StreamWriter) -> None:
    """Close the connection without an answer."""


async def check_services(url: str, services: Services, report: Report) -> None:
    """Hold operations and deliveries against the log, and note what does not fit."""
    connection = await asyncpg.connect(url)
    expected = {row["id"] for row in await connection.fetch(_EXPECTED)}
    operations = await connection.fetch(_OPERATIONS)
    await connection.close()
    received = services.received()
    for message_id in expected - received:
        report.found("undelivered", f"{message_id} was never sent to the webhook")
    for message_id in received - expected:
        report.found("undelivered", f"{message_id} was sent, and the log has no such message for it")
    for message_id in services.forged():
        report.found("undelivered", f"{message_id} was sent with a wrong signature")
    for row in operations:
        if row["state"] not in ("done", "cancelled", "paused"):
            report.found("operation", f"{row['id']} is {row['state']}")
        # Of a running task that was asked to end, the log says so when it has.
        moved = row["logged"] if row["may_ask"] and row["moved"] > row["logged"] else row["moved"]
        if not moved == row["logged"] == row["tasks"]:
            detail = (
                f"{row['id']} says {row['moved']}, and the log has {row['logged']} of {row['tasks']} tasks"
            )
            report.found("operation", detail)
    report.operations = Counter(row["state"] for row in operations)
    report.deliveries = len(received)
