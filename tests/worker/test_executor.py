"""The walk and the front door: what becomes of each delivery, and never before its effect is durable."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from grns.dead_letters.queue import DeadLetterQueue
from grns.errors import UnavailableError
from grns.maintenance.reaper import reap
from grns.model import subjects
from grns.model.outcome import Claim
from grns.model.seal import Keyring, MasterKey
from grns.model.vault import Vault
from grns.nats.delivery import Delivery
from grns.postgres.database import Database
from grns.settings import load
from grns.tasks import pauses as pause
from grns.telemetry.signal import Signal
from grns.telemetry.task_signals import NoHandler, PayloadClosed, TaskNotClaimed
from grns.worker.claims import Claimant, Claims
from grns.worker.context import Context
from grns.worker.executor import UNKNOWN_TASK_DELAYS, Executor
from grns.worker.finishes import Finishes
from grns.worker.handler_runner import HandlerRunner
from grns.worker.leases import Lease, LeaseManager, SharedLeaseTable
from grns.worker.payloads import Payloads
from grns.worker.pool import Pool
from grns.worker.router import CommandRouter
from grns.worker.slots import Slots
from tests.support.bad_input import command, encoded
from tests.support.harness import eventually, submit
from tests.support.store import fetch, kinds_of, lapse, log_of, place, row_of

WHO = Claimant("worker-me", "default", "worker", {"noop": 3}, 15.0)


class Copy(Delivery):
    """A delivery that notes how it ended, and what the database said of the task at that moment."""

    stream, stream_seq, token = "GRNS_CMD", 7, ""
    subject, body, delivery_count, headers = "", b"", 1, dict[str, str]()

    def __init__(self, database: Database, body: bytes, *, count: int = 1) -> None:
        self._database = database
        self.body = body
        self.delivery_count = count
        self.subject = subjects.shared_execute()
        self.headers = {}
        self.end: tuple[str, Any] | None = None
        self.statuses: list[str] = []

    async def _note(self, how: str, what: Any = None) -> None:
        assert self.end is None, "a delivery ends once"
        self.end = (how, what)
        self.statuses = [
            row["status"] for row in await fetch(self._database, "select status from grns.tasks")
        ]

    async def ack(self) -> None:
        await self._note("ack")

    async def nak(self, delay_seconds: float = 0.0) -> None:
        await self._note("nak", delay_seconds)

    async def in_progress(self) -> None: ...

    async def term(self, reason: str) -> None:
        await self._note("term", reason)


class Stage:
    """A worker without its connections to the broker."""

    def __init__(self, database: Database, table: SharedLeaseTable) -> None:
        self.database = database
        self.emitted: list[Signal] = []
        self.started: list[Claim] = []
        self.slots = Slots(1)
        settings, emit = load(), self.emitted.append
        pool = Pool("worker")
        pool.task("noop")(_noop)
        self.executor = Executor(
            claims=Claims(database, WHO, batch_limit=10),
            finishes=Finishes(database, batch_limit=10),
            leases=LeaseManager(table, lease_seconds=15.0, emit=emit),
            handlers=HandlerRunner(
                pool, make_context=self._context, threads=1, result_limits=settings.result_limits, emit=emit
            ),
            payloads=Payloads(database, "default"),
            slots=self.slots,
            dead_letters=DeadLetterQueue(database, emit=emit),
            envelope_limits=settings.envelope_limits,
            emit=emit,
        )
        self.door = CommandRouter(
            claimer=self.executor,
            database=database,
            claimant=WHO,
            slots=self.slots,
            start=self.started.append,
            emit=emit,
        )

    async def receive(self, delivery: Copy, source: str) -> None:
        """Handle a command from its priority subject, or from the shared one."""
        if source == "priority":
            await self.handle(delivery)
        else:
            await self.door.receive(delivery)

    async def handle(self, *deliveries: Copy) -> None:
        """Claim the tasks of commands, and run them to their ends."""
        claims: list[Claim] = []
        await self.executor.claim_all(deliveries, "priority", claims.append)
        for claim in claims:
            await self.executor.run(claim)

    def _context(self, claim: Claim, lease: Lease) -> Context:
        return Context(
            claim, lease, agent_id="worker-me", workspace="default", database=self.database,
            result_limits=load().result_limits,
        )  # fmt: skip


async def _noop(task: Context) -> int:
    return task.attempt


@pytest.fixture
async def stage(shared: Database) -> AsyncIterator[Stage]:
    """A worker of one slot."""
    table, descriptor = SharedLeaseTable.create(4)
    yield Stage(shared, table)
    table.close()
    os.close(descriptor)


ONE = MasterKey.new("one")


def asking_for(database: Database, task_id: str, *, agent_type: str = "worker", count: int = 1) -> Copy:
    """Return the delivery of a command."""
    return Copy(database, encoded(command(task_id=task_id, target_agent_type=agent_type)), count=count)


async def test_a_command_is_acked_when_its_claim_has_committed(stage: Stage, shared: Database) -> None:
    task_id = (await submit(shared)).id
    delivery = asking_for(shared, task_id)
    await stage.handle(delivery)
    assert delivery.end == ("ack", None)
    assert delivery.statuses == ["running"]
    assert (await row_of(shared, task_id))["result"] == "1"


async def command_of(database: Database, task_id: str) -> Copy:
    """Return the delivery of the command that was written last for a task."""
    latest = [row for row in await log_of(database, task_id) if row["kind"] == "cmd.task.execute"][-1]
    return Copy(database, encoded(command(task_id=task_id) | {"message_id": str(latest["message_id"])}))


async def test_command_of_a_hinted_task_is_acked_without_a_claim(stage: Stage, shared: Database) -> None:
    task_id = (await submit(shared)).id
    await stage.executor.claim_hinted([task_id], stage.started.append)
    assert [claim.id for claim in stage.started] == [task_id]
    first, again = [await command_of(shared, task_id) for _ in range(2)]
    refused = [signal for signal in stage.emitted if isinstance(signal, TaskNotClaimed)]
    await stage.handle(first)
    assert (first.end, refused) == (("ack", None), [])
    await stage.executor.run(stage.started[0])
    await stage.handle(again)  # it is asked about: the worker knows a command once
    assert again.end == ("ack", None)
    assert [type(signal) for signal in stage.emitted].count(TaskNotClaimed) == 1
    assert (await kinds_of(shared, task_id)).count("evt.task.claimed") == 1


async def test_command_of_a_later_attempt_of_a_hinted_task_is_claimed(stage: Stage, shared: Database) -> None:
    task_id = (await submit(shared)).id
    await stage.executor.claim_hinted([task_id], stage.started.append)
    await lapse(shared, task_id)
    await reap(shared, 10, None)
    later = await command_of(shared, task_id)
    await stage.handle(later)
    assert later.end == ("ack", None)
    row = await row_of(shared, task_id)
    assert (row["status"], row["attempt"]) == ("succeeded", 2)


async def test_hint_of_a_task_that_cannot_be_claimed_does_nothing(stage: Stage, shared: Database) -> None:
    ended = (await place(shared, "succeeded")).id
    other = (await submit(shared, agent_type="scout")).id
    await stage.executor.claim_hinted([ended, other, "gr-nothing", ended], stage.started.append)
    assert stage.started == []
    assert stage.emitted == []
    assert (await row_of(shared, other))["status"] == "queued"


async def test_commands_of_a_batch_are_settled_each_by_its_reason(stage: Stage, shared: Database) -> None:
    first, second, ended = [(await place(shared, road)).id for road in ("queued", "queued", "succeeded")]
    deliveries = [
        Copy(shared, b"no json"),
        asking_for(shared, first),
        asking_for(shared, ended),
        asking_for(shared, "gr-nothing"),
        asking_for(shared, second),
        asking_for(shared, first),
    ]
    await stage.handle(*deliveries)
    assert [delivery.end for delivery in deliveries] == [
        ("term", "bad_json"),
        ("ack", None),
        ("ack", None),
        ("nak", UNKNOWN_TASK_DELAYS[0]),
        ("ack", None),
        ("ack", None),
    ]
    for task_id in (first, second):
        assert (await kinds_of(shared, task_id)).count("evt.task.claimed") == 1
        assert (await row_of(shared, task_id))["status"] == "succeeded"
    assert (len(stage.emitted) > 0, stage.executor.leases.free_slots) == (True, 4)


async def test_claims_start_before_anything_else_can_fail(stage: Stage, shared: Database) -> None:
    """A lease is kept from the claim on: without its run it would be kept for ever."""
    one, other = (await submit(shared)).id, (await submit(shared)).id
    deliveries = [asking_for(shared, one), asking_for(shared, other)]

    async def be_gone() -> None:
        raise ZeroDivisionError

    deliveries[0].ack = be_gone  # type: ignore[method-assign]
    claims: list[Claim] = []
    with pytest.raises(ZeroDivisionError):
        await stage.executor.claim_all(deliveries, "priority", claims.append)
    assert [claim.id for claim in claims] == [one, other]


async def test_a_claim_that_is_released_before_it_begins_counts_no_attempt(
    stage: Stage, shared: Database
) -> None:
    task_id = (await submit(shared)).id
    await stage.executor.claim_hinted([task_id], stage.started.append)
    await stage.executor.release(stage.started[0], "no_slot")
    row = await row_of(shared, task_id)
    assert (row["status"], row["attempt"], row["uncounted_attempts"]) == ("queued", 1, 1)
    rows = await fetch(
        shared, "select payload ->> 'reason' as reason from grns.events where kind = 'evt.task.released'"
    )
    assert [row["reason"] for row in rows] == ["no_slot"]
    assert stage.executor.leases.free_slots == 4


@pytest.mark.parametrize("is_ours", [True, False])
async def test_a_secret_that_cannot_be_opened_never_begins(
    stage: Stage, shared: Database, is_ours: bool
) -> None:
    """One of another key is given back, unspent; one that was changed, or is of another workspace, fails."""
    other = Vault(Keyring([MasterKey.new("other"), ONE]))
    shared.vault.keys = Keyring([ONE])
    hidden = other.hide(
        {"a": "hunter22"}, [("a",)], "default" if is_ours else "rival", by=None if is_ours else "one"
    )
    task_id = (await submit(shared)).id
    await fetch(
        shared, "update grns.tasks set payload = $2::text::jsonb where id = $1", task_id, json.dumps(hidden)
    )
    await stage.handle(asking_for(shared, task_id))
    row = await row_of(shared, task_id)
    assert (row["status"], row["attempt"], row["uncounted_attempts"]) == (
        ("queued", 1, 1) if is_ours else ("failed", 1, 0)
    )
    told = [one for one in stage.emitted if isinstance(one, PayloadClosed)]
    assert [one.code for one in told] == ["no_key" if is_ours else "not_ours"]


async def test_no_handler_begins_in_a_lease_that_is_over(stage: Stage, shared: Database) -> None:
    """The process was frozen between the claim and the handler: another attempt may run by now."""
    task_id = (await submit(shared)).id
    await stage.executor.claim_hinted([task_id], stage.started.append)
    await stage.executor.run(replace(stage.started[0], expires_at=time.monotonic()))
    row = await row_of(shared, task_id)
    assert (row["status"], row["attempt"], row["uncounted_attempts"]) == ("queued", 1, 1)
    rows = await fetch(
        shared, "select payload ->> 'reason' as why from grns.events where kind = 'evt.task.released'"
    )
    assert [row["why"] for row in rows] == ["deadline"]


async def test_claims_that_never_begin_are_released_as_often_as_it_takes(
    stage: Stage, shared: Database
) -> None:
    task_id = (await submit(shared, max_attempts=1)).id
    for number in range(1, 6):
        await stage.executor.claim_hinted([task_id], stage.started.append)
        await stage.executor.release(stage.started[-1], "no_slot")
        row = await row_of(shared, task_id)
        assert (row["status"], row["uncounted_attempts"], row["released"]) == ("queued", number, 0)
    await stage.handle(await command_of(shared, task_id))
    assert (await row_of(shared, task_id))["status"] == "succeeded"


async def test_claims_that_have_begun_are_forgiven_as_often_as_the_task_may_be_attempted(
    stage: Stage, shared: Database
) -> None:
    task_id = (await submit(shared, max_attempts=2)).id
    seen: list[tuple[str, int]] = []
    for _ in range(4):
        await stage.executor.claim_hinted([task_id], stage.started.append)
        await stage.executor.finishes.release([stage.started[-1]], "shutdown")
        row = await row_of(shared, task_id)
        seen.append((row["status"], row["uncounted_attempts"]))
    assert seen == [("queued", 1), ("queued", 2), ("queued", 2), ("dead", 2)]


async def test_while_an_end_is_written_its_slot_is_somebody_elses(stage: Stage, shared: Database) -> None:
    """No handler runs in it any more: the next one need not wait until Postgres has answered."""
    task_id = (await submit(shared)).id
    delivery = asking_for(shared, task_id)
    wanted = await stage.executor.read(delivery)
    assert wanted is not None
    claim = await stage.executor.claim(wanted, delivery, "priority")
    assert claim is not None
    stage.slots.take()
    async with shared.connection() as connection, connection.transaction():
        await connection.fetch("select from grns.tasks where id = $1 for update", task_id)
        running = asyncio.create_task(stage.executor.run(claim))

        async def is_lent() -> bool:
            return stage.slots.free == 1

        await eventually(is_lent)
        assert (await row_of(shared, task_id))["status"] == "running"
        assert stage.slots.try_take()
        assert not stage.slots.try_take(), "two tasks, one handler"
    await running
    assert (await row_of(shared, task_id))["status"] == "succeeded"
    assert stage.slots.free == -1


async def test_the_front_door_is_acked_when_the_claim_has_committed(stage: Stage, shared: Database) -> None:
    task_id = (await submit(shared)).id
    delivery = asking_for(shared, task_id)
    await stage.door.receive(delivery)
    assert (delivery.end, delivery.statuses) == (("ack", None), ["running"])
    assert [claim.id for claim in stage.started] == [task_id]
    assert stage.slots.free == 0


@pytest.mark.parametrize("way", ["priority", "door"])
@pytest.mark.parametrize(
    "road", ["succeeded", "failed", "dead", "cancelled", "running", "retry_wait", "waiting"]
)
async def test_what_nobody_may_claim_now_is_acked_and_changes_nothing(
    stage: Stage, shared: Database, way: str, road: str
) -> None:
    task_id = (await place(shared, road)).id
    before = await row_of(shared, task_id), await log_of(shared, task_id)
    delivery = asking_for(shared, task_id)
    await stage.receive(delivery, way)
    assert delivery.end == ("ack", None)
    assert (await row_of(shared, task_id), await log_of(shared, task_id)) == before
    assert (stage.slots.free, stage.started) == (1, [])


async def test_what_has_no_handler_here_waits_for_another(stage: Stage, shared: Database) -> None:
    earlier = asking_for(shared, (await submit(shared, "other")).id)
    await stage.handle(earlier)
    assert [signal for signal in stage.emitted if signal.event == "no_handler"] == [
        NoHandler("other", stage.emitted[0].task_id, "noop")  # type: ignore[attr-defined]
    ]
    stage.emitted.clear()
    task_id = (await submit(shared, "other")).id
    delivery = asking_for(shared, task_id)
    await stage.handle(delivery)
    assert delivery.end == ("ack", None)
    row = await row_of(shared, task_id)
    assert (row["status"], row["attempt"]) == ("queued", 0)
    assert [(signal.event, getattr(signal, "reason", "")) for signal in stage.emitted] == [
        ("task_not_claimed", "no_handler")
    ], "each type is told of once"


@pytest.mark.parametrize("way", ["priority", "door"])
async def test_what_is_paused_is_acked_and_told_to_whoever_looks_for_pauses(
    stage: Stage, shared: Database, way: str
) -> None:
    told: list[str] = []
    stage.executor.on_paused.append(told.append)
    task_id = (await submit(shared)).id
    before = await row_of(shared, task_id), await log_of(shared, task_id)
    await pause.begin(
        shared, workspace="default", agent_type="worker", task_type=None, actor="cli:me@here", reason=None,
        until=None,
    )  # fmt: skip
    delivery = asking_for(shared, task_id)
    await stage.receive(delivery, way)
    assert (delivery.end, told) == (("ack", None), ["noop"])
    assert (await row_of(shared, task_id), await log_of(shared, task_id)) == before
    assert (stage.slots.free, stage.started) == (1, [])


@pytest.mark.parametrize("why", ["said", "is", "no_slot"])
async def test_what_is_not_for_us_now_is_sent_on(stage: Stage, shared: Database, why: str) -> None:
    """The command names another agent type, the task is another's, or there is no free slot here."""
    agent_type = "worker" if why == "no_slot" else "scout"
    task_id = (await submit(shared, agent_type=agent_type, priority=1)).id
    if why == "no_slot":
        assert stage.slots.try_take()
    delivery = asking_for(shared, task_id, agent_type="scout" if why == "said" else "worker")
    await stage.door.receive(delivery)
    assert delivery.end == ("ack", None)
    first, news = [row for row in await log_of(shared, task_id) if row["kind"] == "cmd.task.execute"]
    assert news["route"] == f"{agent_type}.p1"
    assert news["message_id"] != first["message_id"]
    assert news["causation_id"] == _message_id(delivery) != news["message_id"]
    assert (await row_of(shared, task_id))["version"] == 1, "it is no transition"
    assert stage.slots.free == (0 if why == "no_slot" else 1)


def _message_id(delivery: Copy) -> UUID:
    return UUID(delivery.body.split(b'"message_id": "')[1][:36].decode())


@pytest.mark.parametrize("way", ["priority", "door", "door_of_others"])
async def test_a_task_that_may_not_be_committed_yet_is_waited_for(
    stage: Stage, shared: Database, way: str
) -> None:
    for count in range(1, 6):
        agent_type = "scout" if way == "door_of_others" else "worker"
        delivery = asking_for(shared, "gr-nothing", agent_type=agent_type, count=count)
        await stage.receive(delivery, way)
        letters = await fetch(shared, "select reason, body from grns.dead_letters")
        if count <= len(UNKNOWN_TASK_DELAYS):
            assert (delivery.end, letters) == (("nak", UNKNOWN_TASK_DELAYS[count - 1]), [])
        else:
            assert delivery.end == ("term", "unknown_task")
            assert [(row["reason"], row["body"]) for row in letters] == [("unknown_task", delivery.body)]
        assert stage.slots.free == 1
    assert sum(UNKNOWN_TASK_DELAYS) == 15


async def test_without_postgres_everything_is_given_back(shared: Database) -> None:
    """Bad bytes too: they may only end when they are kept."""
    away = Database(shared.url, name="away")
    table, descriptor = SharedLeaseTable.create(4)
    stage = Stage(away, table)
    for body in (encoded(command()), b"no json"):
        for deliver in (stage.door.receive, stage.handle):
            delivery = Copy(shared, body)
            await deliver(delivery)
            assert delivery.end is not None
            how, delay = delivery.end
            assert how == "nak"
            assert 1.0 <= delay <= 5.0
            assert stage.slots.free == 1
    table.close()
    os.close(descriptor)


async def test_a_message_judged_twice_has_one_letter(stage: Stage, shared: Database) -> None:
    """Its end did not reach the broker."""
    for count in (1, 2):
        delivery = Copy(shared, b"no json", count=count)
        await stage.handle(delivery)
        assert delivery.end == ("term", "bad_json")
    assert len(await fetch(shared, "select from grns.dead_letters")) == 1
    assert len(await fetch(shared, "select from grns.events where kind = 'dlq.message.rejected'")) == 1


async def test_a_command_of_another_kind_is_not_served(stage: Stage, shared: Database) -> None:
    document = command() | {"kind": "cmd.task.cancel", "payload": {"task_id": "gr-0"}}
    delivery = Copy(shared, encoded(document))
    delivery.subject = "cmd.task.cancel.v1"
    await stage.handle(delivery)
    assert delivery.end == ("term", "unexpected_kind")


async def test_a_command_never_runs_a_task_twice(stage: Stage, shared: Database) -> None:
    task_id = (await submit(shared)).id
    for _ in range(3):
        delivery = asking_for(shared, task_id)
        await stage.handle(delivery)
        assert delivery.end == ("ack", None)
    assert (await kinds_of(shared, task_id)).count("evt.task.claimed") == 1


async def test_a_broker_that_goes_at_the_wrong_moment_costs_the_door_no_slot(
    stage: Stage, shared: Database
) -> None:
    task_id = (await submit(shared)).id
    await shared.run("cancel", [task_id], None, "default", None)
    free = stage.slots.free
    delivery = asking_for(shared, task_id)

    async def be_gone() -> None:
        raise UnavailableError("the broker is away")

    delivery.ack = be_gone  # type: ignore[method-assign]
    with pytest.raises(UnavailableError):
        await stage.door.receive(delivery)
    assert stage.slots.free == free
