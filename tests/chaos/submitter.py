"""A submitter, by the client, plain SQL, requests or HTTP, that writes down what became of each try.

`python -m tests.chaos.submitter client|sql|request|http PER_SECOND`, until SIGTERM. A try is `ok`, `refused`
(nothing may have come of it) or `unknown` (something may: it is tried again under the same key, as a user
would). Some are tried again although they are known to be there.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
import nats

import grns
from grns.client.arguments import WIRE
from grns.errors import GrnsError, OutcomeUnknownError, UnavailableError
from grns.model.question import question_id
from grns.tasks.questions import Questions
from tests.chaos import strangers
from tests.chaos.agents import draw_route, route_of
from tests.chaos.content import SECRETS, password_of
from tests.chaos.http_worker import POOL
from tests.chaos.journal import Journal
from tests.chaos.limits import LIMITED, tenant_of
from tests.chaos.steps import SIGNAL, STEPWISE

_KINDS = ("steady", "steady", "steady", "steady", "thread", "ledger", "doomed", LIMITED, STEPWISE)
_AGENT_TYPES = ("worker", "worker", "scout") * 4 + (POOL,) * ("GRNS_CHAOS_URL" in os.environ)
_PATIENCE_SECONDS = 10.0
_ANSWER_SECONDS = 5.0
_MOST_UNDER_WAY = 100
_MOST_TRIES = 4
_AGAIN = 0.02
_CHANCE = random.Random()
# Process ids come again in the course of an hour.
_LIFE = f"{os.getpid()}.{time.time_ns():x}"
_CANCELLED = float(os.environ.get("GRNS_CHAOS_CANCELLED", "0.01"))


def draw(number: int) -> dict[str, Any]:
    """Return what one task is to be: mostly quick, sometimes slow, late, failing or urgent."""
    payload: dict[str, Any] = {"number": number, "seconds": random.choice((0.0, 0.0, 0.05, 0.5, 3.0))}
    payload["tenant"] = tenant_of(number)
    if random.random() < 0.1:
        payload["failing"] = 0.5
    agent_type = random.choice(_AGENT_TYPES)
    task_type = "steady" if agent_type == POOL else random.choice(_KINDS)
    if task_type == "steady" and number % SECRETS == 0 and sys.argv[1:2] != ["sql"]:  # it cannot seal
        payload["password"] = password_of(number)
    return {
        "task_type": task_type,
        "payload": payload,
        "agent_type": agent_type,
        "priority": random.randrange(4),
        "delay_seconds": random.choice((0.0,) * 9 + (2.0,)),
        "idempotency_key": f"{_LIFE}-{number}",
        **draw_route(agent_type, _CHANCE),
    }


class Submitter:
    """Hands tasks in at a steady rate, many at a time where the answers are late."""

    def __init__(self, per_second: float, submit: Callable[[dict[str, Any]], Awaitable[str]]) -> None:
        self._per_second = per_second
        self._submit = submit
        self._journal = Journal(Path(os.environ["GRNS_CHAOS_DIRECTORY"]) / f"submits-{os.getpid()}.jsonl")
        self._stopping = asyncio.Event()
        self._under_way: set[asyncio.Task[None]] = set()
        self.cancel: Callable[[str], Awaitable[str]] | None = None
        self.signal: Callable[[str, str, int], Awaitable[str]] | None = None
        self.questions: Questions | None = None

    async def run(self) -> None:
        """Submit until SIGTERM."""
        for name in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(name, self._stopping.set)
        number = 0
        while not self._stopping.is_set():
            await asyncio.sleep(random.expovariate(self._per_second))
            if len(self._under_way) < _MOST_UNDER_WAY:
                number += 1
                task = asyncio.create_task(self._try(draw(number)))
                self._under_way.add(task)
                task.add_done_callback(self._under_way.discard)
        await asyncio.gather(*self._under_way)

    async def _try(self, wanted: dict[str, Any]) -> None:
        tries = 1
        while (task_id := await self._hand_in(wanted)) is None and tries < _MOST_TRIES:
            tries += 1
            await asyncio.sleep(random.random())
        if not task_id:
            return
        if random.random() < _AGAIN:
            await self._hand_in(wanted)
        number = wanted["payload"]["number"]
        if self.signal is not None and wanted["task_type"] == STEPWISE and number % 5 == 0:
            await asyncio.sleep(random.random() * 4)
            with suppress(GrnsError):  # it has timed out, has ended, or Postgres is away
                await self.signal(task_id, SIGNAL, number)
        if self.questions is not None and wanted["task_type"] == STEPWISE and number % 7 == 0:
            await self._approve(task_id)
        if self.cancel is not None and random.random() < _CANCELLED:
            await self._cancel(task_id)

    async def _approve(self, task_id: str) -> None:
        """Approve what a task asks, twice, unless its time is over first."""
        if self.questions is None or random.random() < 0.3:
            return
        asked = question_id(task_id, "ask pay")
        for _ in range(40):
            await asyncio.sleep(random.random() / 2)
            with suppress(GrnsError):  # it is not asked yet, was asked too long ago, or Postgres is away
                found = await self.questions.get(asked)
                if found.state != "open":
                    return
                await self.questions.answer(asked, {"approved": True}, digest=found.digest)

    async def _hand_in(self, wanted: dict[str, Any]) -> str | None:
        """Try once; returns the task's id, "" where it was refused, None where nobody knows."""
        key = wanted["idempotency_key"]
        self._journal.note(
            "try",
            key=key,
            type=wanted["task_type"],
            number=wanted["payload"]["number"],
            route=route_of(wanted),
        )
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                task_id = await self._submit(wanted)
        except (OutcomeUnknownError, TimeoutError) as error:
            self._journal.note("unknown", key=key, error=repr(error)[:200])
            return None
        except GrnsError as error:
            self._journal.note("refused", key=key, error=repr(error)[:200])
            return ""
        except Exception as error:
            self._journal.note("crash", key=key, error=repr(error)[:500])
            return ""
        self._journal.note("ok", key=key, task=task_id)
        return task_id

    async def _cancel(self, task_id: str) -> None:
        await asyncio.sleep(random.random() * 3)
        self._journal.note("cancel", task=task_id)
        try:
            if self.cancel is not None:
                self._journal.note("answered", task=task_id, answer=await self.cancel(task_id))
        except (OutcomeUnknownError, UnavailableError) as error:
            self._journal.note("cancel_unanswered", task=task_id, error=repr(error)[:200])
        except Exception as error:
            self._journal.note("crash", task=task_id, error=repr(error)[:500])


async def by_client(per_second: float) -> None:
    """Submit with the client of grns."""
    async with AsyncExitStack() as resources:
        client = await _patiently(lambda: resources.enter_async_context(grns.connect()))

        async def submit(wanted: dict[str, Any]) -> str:
            said = {WIRE.get(name, name): value for name, value in wanted.items()}
            return (await client.submit(**said)).id

        submitter = Submitter(per_second, submit)
        submitter.cancel, submitter.signal = client.cancel, client.signal
        submitter.questions = client.questions
        await submitter.run()


_DRIVERS = (OSError, asyncpg.PostgresError)
_SUBMIT = """
    select grns.submit_task($1, $2, agent_type => $3, priority => $4, delay_seconds => $5,
        idempotency_key => $6, target_agent => $7, required_capabilities => $8)
"""


async def by_sql(per_second: float) -> None:
    """Submit with one function of the database, in a connection for each task, as a script would."""

    async def submit(wanted: dict[str, Any]) -> str:
        try:
            connection = await asyncpg.connect(os.environ["GRNS_DATABASE_URL"], timeout=3)
        except (*_DRIVERS, TimeoutError) as error:
            raise grns.UnavailableError(str(error)) from error
        try:
            task_id = await connection.fetchval(
                _SUBMIT, wanted["task_type"], json.dumps(wanted["payload"]), wanted["agent_type"],
                wanted["priority"], wanted["delay_seconds"], wanted["idempotency_key"],
                wanted.get("target_agent"), wanted.get("required_capabilities"),
            )  # fmt: skip
            return str(task_id)
        except (*_DRIVERS, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
            raise OutcomeUnknownError(str(error)) from error
        finally:
            connection.terminate()

    await Submitter(per_second, submit).run()


async def by_request(per_second: float) -> None:
    """Submit by requests over the bus with a plain client, as one in any language would."""

    async def say_nothing(_error: Exception) -> None: ...

    client = await nats.connect(
        os.environ["GRNS_NATS_URL"].split(","),
        max_reconnect_attempts=-1,
        ping_interval=2,
        error_cb=say_nothing,
    )

    async def submit(wanted: dict[str, Any]) -> str:
        message_id = str(uuid.uuid5(uuid.NAMESPACE_URL, wanted["idempotency_key"]))
        message = strangers.order("cmd.task.submit", wanted, message_id=message_id)
        try:
            said = await client.request("req.task.submit.v1", message, timeout=_ANSWER_SECONDS)
        except (nats.errors.Error, OSError, TimeoutError) as error:
            raise OutcomeUnknownError(repr(error)) from error
        answer = json.loads(said.data)
        if answer.get("code") == "outcome_unknown":
            raise OutcomeUnknownError(answer["detail"])
        if "code" in answer:
            raise UnavailableError(answer["detail"])
        return str(answer["id"])

    await Submitter(per_second, submit).run()


async def by_http(per_second: float) -> None:
    """Submit over the HTTP API, as a program in any language would."""
    headers = {"Authorization": f"Bearer {os.environ['GRNS_CHAOS_KEY']}"}
    url = f"{os.environ['GRNS_CHAOS_URL']}/api/v1"
    async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=_ANSWER_SECONDS) as client:

        async def submit(wanted: dict[str, Any]) -> str:
            fields = dict(wanted)
            key = {"Idempotency-Key": fields.pop("idempotency_key")}
            try:
                answer = await client.post("/tasks", json=fields, headers=key)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                raise UnavailableError(repr(error)) from error
            except httpx2.HTTPError as error:
                raise OutcomeUnknownError(repr(error)) from error
            said = answer.json()
            if answer.is_success:
                return str(said["id"])
            if said["code"] == "outcome_unknown":
                raise OutcomeUnknownError(said["detail"])
            if answer.status_code in (429, 503):
                raise UnavailableError(said["detail"])
            raise RuntimeError(f"{answer.status_code} {said}")

        await Submitter(per_second, submit).run()


async def _patiently(work: Callable[[], Awaitable[grns.Client]]) -> grns.Client:
    while True:
        try:
            return await work()
        except GrnsError:
            await asyncio.sleep(0.2)


if __name__ == "__main__":
    ways = {"client": by_client, "sql": by_sql, "request": by_request, "http": by_http}
    asyncio.run(ways[sys.argv[1]](float(sys.argv[2])))
