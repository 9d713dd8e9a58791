"""What the tests of operations share: dead tasks by the dozen, runners, and what the log says of it all."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from grns.bootstrap import services as daemons
from grns.bootstrap.app import App
from grns.model.events import PAYLOADS
from grns.model.json import Limits
from grns.model.outcome import Verb
from grns.operations.batches import Moved, Taken, move, next_batch, take
from grns.operations.model import State, request
from grns.operations.service import Operation, create_operation, read_operation
from grns.postgres.database import Database
from grns.telemetry.signal import Signal
from grns.worker.claims import Claims
from grns.worker.finishes import Finishes
from tests.support.harness import LIMIT_SECONDS, eventually, rows_of, settings_for, submit_many
from tests.support.store import ACTOR, WORKER, ending, fetch

LIMITS = Limits()


class SignalRecorder:
    """A listener that keeps the signals."""

    def __init__(self) -> None:
        self.seen: list[Signal] = []

    def receive(self, signal: Signal) -> None:
        """Keep one signal."""
        self.seen.append(signal)

    def of(self, kind: type[Signal]) -> list[Any]:
        """Return those of one kind."""
        return [signal for signal in self.seen if isinstance(signal, kind)]


async def run_queued(database: Database, verb: Verb, count: int = 500) -> list[str]:
    """Claim what is queued and end it; returns the ids."""
    claims = await Claims(database, WORKER, batch_limit=500).claim_next(count, older_than_seconds=0.0)
    finishes = Finishes(database, batch_limit=500)
    await asyncio.gather(*(finishes.finish(ending(claim, verb)) for claim in claims))
    return [claim.id for claim in claims]


async def dead_tasks(database: Database, count: int, **fields: Any) -> list[str]:
    """Let there be dead tasks; returns their ids."""
    fields.setdefault("max_attempts", 1)
    ids = await submit_many(database, count, **fields)
    assert set(await run_queued(database, Verb.RETRY, count)) == set(ids)
    return ids


async def asked(database: Database, action: str = "redrive", **fields: Any) -> Operation:
    """Ask for an operation."""
    return await create_operation(
        database, request(**({"action": action, "filter": ""} | fields)), workspace="default", actor=ACTOR
    )


async def seen(database: Database, operation: Operation) -> Operation:
    """Return an operation as it is now."""
    return await read_operation(database, operation.id, workspace="default")


async def taken(database: Database, owner: str = "one") -> Taken:
    """Take the operation that is due."""
    found = await take(database, owner, lease_seconds=15.0, pause_seconds=0.0)
    assert found is not None
    return found


async def lapse_of(database: Database, operation: Operation) -> None:
    """Let whoever has taken an operation have been away for long."""
    await fetch(
        database,
        "update grns.operations set lease_until = '-infinity',"
        " due_at = case when due_at is not null then now() end where id = $1",
        operation.id,
    )


async def step(database: Database, limit: int = 200, owner: str = "one") -> Moved | None:
    """Move one batch, as a runner does."""
    found = await taken(database, owner)
    return await move(database, found, await next_batch(database, found, limit, LIMITS))


async def statuses(database: Database, ids: Sequence[str]) -> dict[str, int]:
    """Return how many of some tasks there are in each status."""
    return dict(Counter(row["status"] for row in (await rows_of(database, ids)).values()))


def payload_of(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an event says, if it fits its model."""
    PAYLOADS[event["kind"]].model_validate_json(event["payload"])
    told: dict[str, Any] = json.loads(event["payload"])
    return told


async def in_state(
    database: Database, operation: Operation, *states: State, within_seconds: float = LIMIT_SECONDS
) -> Operation:
    """Wait until an operation is in one of some states, and return it."""

    async def look() -> Operation | None:
        found = await seen(database, operation)
        return found if found.state in states else None

    found = await eventually(look, within_seconds=within_seconds)
    assert found is not None
    return found


@asynccontextmanager
async def running(database: Database) -> AsyncIterator[SignalRecorder]:
    """Run a runner, on a bus that nobody is on; yields what it tells."""
    emitted = SignalRecorder()
    app = App(settings_for(database.url), (emitted,))
    runner = daemons.operation_runner(app, database, app.transport("test"))
    runner.tick_seconds = 0.02
    turning = asyncio.create_task(runner.run())
    try:
        yield emitted
    finally:
        runner.stop()
        await turning


async def redrives(database: Database) -> dict[str, int]:
    """Return how often each task was redriven, as the log has it."""
    rows = await fetch(
        database,
        "select task_id, count(*) as times from grns.events"
        " where kind = 'evt.task.queued' and payload ->> 'reason' = 'redriven' group by task_id",
    )
    return {row["task_id"]: row["times"] for row in rows}


async def said(database: Database, kind: str) -> list[dict[str, Any]]:
    """Return the rows of one kind in the log, in order."""
    rows = await fetch(database, "select * from grns.events where kind = $1 order by seq", kind)
    return [dict(row) for row in rows]
