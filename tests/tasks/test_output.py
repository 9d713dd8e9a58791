"""What tasks stream, over a real broker: readers have what the last attempt says, or know what they miss."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import grns
from grns.bootstrap.app import App
from grns.dev.servers.nats import LocalNats
from grns.errors import InvalidInputError, NotFoundError
from grns.maintenance.scheduler import promote
from grns.model import output
from grns.model.output import Chunk
from grns.model.output_view import OutputEvent
from grns.nats import JetStream
from grns.postgres.database import Database
from grns.tasks.output import OutputHub
from grns.telemetry.task_signals import OutputDropped
from grns.worker.output import OutputPublisher
from tests.support.attempts import Attempts, attempts_of
from tests.support.harness import LIMIT_SECONDS, eventually, manage, settings_for, submit
from tests.support.store import fall_due, fetch, row_of

POOL = grns.Pool("worker", backoff=grns.Backoff(base_seconds=0.001, max_seconds=0.001))
TURN: list[Callable[[grns.Context], Awaitable[None]]] = []


@POOL.task("noop", max_attempts=5)
async def talk(ctx: grns.Context) -> None:
    await TURN.pop(0)(ctx)


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""

    async def ask() -> bool:
        return is_so()

    await eventually(ask)


class Stage:
    """A worker's publisher and a hub of readers, each with a connection of its own."""

    def __init__(self, database: Database, attempts: Attempts, worker: JetStream, hub: OutputHub) -> None:
        self.database, self.attempts, self.worker, self.hub = database, attempts, worker, hub

    async def run(self, task_id: str, *turns: Callable[[grns.Context], Awaitable[None]]) -> str:
        """Run one attempt for each turn; return the status of the task."""
        status = ""
        for turn in turns:
            TURN.append(turn)
            if (await row_of(self.database, task_id))["status"] != "queued":
                await fall_due(self.database, task_id)
                await promote(self.database, 10, None)
            status = await self.attempts.run(task_id)
        return status

    async def read(self, task_id: str, after: str | None = None) -> list[OutputEvent]:
        """Return all events of a task up to its end."""
        async with asyncio.timeout(LIMIT_SECONDS):
            return [one async for one in self.hub.events(task_id, workspace="default", after=after)]

    @asynccontextmanager
    async def reading(self, task_id: str) -> AsyncIterator[list[OutputEvent]]:
        """Read in the background, from before the block; wait for the end behind it."""
        found: list[OutputEvent] = []

        async def follow() -> None:
            async for one in self.hub.events(task_id, workspace="default"):
                found.append(one)  # noqa: PERF401  # the test reads it meanwhile

        reading = asyncio.create_task(follow())
        await until(lambda: bool(found))
        yield found
        async with asyncio.timeout(LIMIT_SECONDS):
            await reading


@asynccontextmanager
async def connected(url: str, broker: LocalNats, **more: Any) -> AsyncIterator[JetStream]:
    transport = App(settings_for(url, broker.url, **more)).transport("test")
    await transport.connect()
    try:
        yield transport
    finally:
        await transport.close()


@pytest.fixture
async def stage(shared: Database, broker: LocalNats) -> AsyncIterator[Stage]:
    TURN.clear()
    with attempts_of(POOL, shared) as attempts:
        async with connected(shared.url, broker) as worker, connected(shared.url, broker) as reader:
            publisher = OutputPublisher(worker, workspace="default", emit=attempts.emitted.append)
            sending = asyncio.create_task(publisher.run())
            attempts.output, hub = publisher, OutputHub(shared, reader)
            yield Stage(shared, attempts, worker, hub)
            await hub.close()
            sending.cancel()


def said(
    *words: Any, fails: bool = False, kind: str | None = None
) -> Callable[[grns.Context], Awaitable[None]]:
    async def turn(ctx: grns.Context) -> None:
        for word in words:
            ctx.stream(word, kind=kind)
        if fails:
            raise ConnectionError

    return turn


def text_of(events: list[OutputEvent]) -> str:
    """Return what somebody has in the end who does as the events say."""
    text = ""
    for one in events:
        text = "" if one.event == "reset" else text + (one.data if one.kind == "text" else "")
    return text


async def test_who_watches_and_who_comes_later_see_the_same(stage: Stage) -> None:
    await stage.worker.provision_outputs()
    task = await submit(stage.database)

    async def slowly(ctx: grns.Context) -> None:
        for word in ("one ", "two ", {"tool": "search"}, "three"):
            ctx.stream(word)
            await asyncio.sleep(0.15)

    async with stage.reading(task.id) as live:
        assert await stage.run(task.id, slowly) == "succeeded"
    assert [one.event for one in live if one.event != "state"] == ["chunk"] * 4 + ["end"]
    assert text_of(live) == "one two three"
    assert live[-1] == OutputEvent("end", 1, status="succeeded")
    later = await stage.read(task.id)
    assert [one for one in later if one.event == "chunk"] == [one for one in live if one.event == "chunk"]
    places = [one.place for one in later if one.place]
    assert places == ["1.1", "1.2", "1.3", "1.4"]
    assert text_of(await stage.read(task.id, after="1.3")) == "three"


async def test_words_share_messages(stage: Stage) -> None:
    await stage.worker.provision_outputs()
    task = await submit(stage.database)
    await stage.run(task.id, said(*["word "] * 1000))
    events = [one for one in await stage.read(task.id) if one.event == "chunk"]
    assert "".join(one.data for one in events) == "word " * 1000
    assert len(events) <= 2


async def test_a_handler_in_a_thread_streams_too(stage: Stage) -> None:
    await stage.worker.provision_outputs()
    task = await submit(stage.database)

    async def in_thread(ctx: grns.Context) -> None:
        def run() -> None:
            for number in range(100):
                ctx.stream(f"{number} ")

        await asyncio.to_thread(run)

    await stage.run(task.id, in_thread)
    assert text_of(await stage.read(task.id)) == "".join(f"{number} " for number in range(100))


async def test_a_failed_attempt_is_forgotten(stage: Stage) -> None:
    await stage.worker.provision_outputs()
    task = await submit(stage.database)
    async with stage.reading(task.id) as live:
        await stage.run(task.id, said("wrong", fails=True))
        await until(lambda: text_of(live) == "wrong")
        await stage.run(task.id, said("right"))
    assert text_of(live) == "right" == text_of(await stage.read(task.id))
    assert [one.event for one in live].count("reset") == 1
    assert text_of(await stage.read(task.id, after="1.1")) == "right"


async def test_after_a_wait_output_goes_on(stage: Stage) -> None:
    await stage.worker.provision_outputs()
    task = await submit(stage.database)

    async def plan(ctx: grns.Context) -> None:
        await ctx.step("plan", said("plan, "), ctx)
        await ctx.sleep(1000)
        ctx.stream("report")

    async with stage.reading(task.id) as live:
        assert await stage.run(task.id, plan) == "waiting"
        await fetch(stage.database, "update grns.steps set value = '{\"until\": 0}' where kind = 'sleep'")
        assert await stage.run(task.id, plan) == "succeeded"
    assert text_of(live) == "plan, report" == text_of(await stage.read(task.id))
    assert "reset" not in [one.event for one in live]


async def test_a_worker_that_has_lost_its_task_is_not_heard(stage: Stage) -> None:
    await stage.worker.provision_outputs()
    task = await submit(stage.database)
    subject = output.subject_of(task.id, "default")
    async with stage.reading(task.id) as live:
        await stage.run(task.id, said("wrong ", fails=True))

        async def beside_a_zombie(ctx: grns.Context) -> None:
            ctx.stream("right ")
            await until(lambda: "right " in text_of(live))
            stage.worker.send(subject, output.encode(Chunk(1, 2, "text", "late ")))
            stage.worker.send(subject, b"\xff no chunk")
            ctx.stream("too")

        await stage.run(task.id, beside_a_zombie)
    assert text_of(live) == "right too" == text_of(await stage.read(task.id))
    assert "late " not in [one.data for one in live]


async def test_a_broker_that_was_away_leaves_a_gap(stage: Stage, broker: LocalNats) -> None:
    await stage.worker.provision_outputs()
    task = await submit(stage.database)

    async def through_an_outage(ctx: grns.Context) -> None:
        ctx.stream("before ")
        await until(lambda: "before " in text_of(live))
        await asyncio.to_thread(broker.stop)
        await until(lambda: not stage.worker.is_connected)
        for number in range(3):
            ctx.stream(f"lost {number}", kind="text")
            await asyncio.sleep(0.15)
        await asyncio.to_thread(broker.start)
        await until(lambda: stage.worker.is_connected and stage.hub._transport.is_connected)
        await asyncio.sleep(0.2)
        ctx.stream("after")

    async with stage.reading(task.id) as live:
        assert await stage.run(task.id, through_an_outage) == "succeeded"
    told = [one.event for one in live if one.event != "state"]
    assert told == ["chunk", "gap", "chunk", "end"]
    assert text_of(live) == "before after"
    (dropped,) = [one for one in stage.attempts.emitted if isinstance(one, OutputDropped)]
    assert dropped.chunks == next(one.lost for one in live if one.event == "gap")


async def test_without_its_stream_who_watches_sees_it_all_the_same(
    stage: Stage, shared: Database, broker: LocalNats
) -> None:
    """As where grns may not create streams: only who comes later misses it."""
    task = await submit(stage.database)
    async with connected(shared.url, broker, nats_manage="verify") as transport:
        stage.hub = OutputHub(shared, transport)
        async with stage.reading(task.id) as live:
            await asyncio.sleep(0.3)
            await stage.run(task.id, said("heard"))
        assert text_of(live) == "heard"
        assert text_of(await stage.read(task.id)) == ""
        await stage.hub.close()


async def test_a_reader_creates_the_stream(stage: Stage, broker: LocalNats) -> None:
    task = await submit(stage.database)
    async with stage.reading(task.id):

        async def is_there() -> bool:
            return "config" in await manage(broker.url, "STREAM.INFO.GRNS_OUT")

        await eventually(is_there)
        await stage.run(task.id, said("heard"))
    assert text_of(await stage.read(task.id)) == "heard"


async def test_many_readers_share_one_subscription(stage: Stage) -> None:
    await stage.worker.provision_outputs()
    task = await submit(stage.database)
    subscriptions = stage.hub._transport._connection._subscriptions
    before = len(subscriptions)
    reading = [asyncio.create_task(stage.read(task.id)) for _ in range(500)]
    await until(lambda: len(stage.hub._watches) == 1)
    (watch,) = stage.hub._watches.values()
    await until(lambda: watch.readers == 500)
    await until(lambda: watch.waiting is None)
    assert len(subscriptions) == before + 1
    await stage.run(task.id, said("for all"))
    for events in await asyncio.gather(*reading):
        assert text_of(events) == "for all"
    assert not stage.hub._watches
    await until(lambda: len(subscriptions) == before)


async def test_a_task_that_is_over_has_its_end_at_once(stage: Stage) -> None:
    task = await submit(stage.database)
    await stage.run(task.id, said())
    assert [one.event for one in await stage.read(task.id)] == ["state", "end"]


async def test_a_task_that_is_deleted_meanwhile_ends(stage: Stage) -> None:
    task = await submit(stage.database)
    async with stage.reading(task.id) as live:
        await fetch(stage.database, "delete from grns.tasks where id = $1", task.id)
    assert live[-1].status == "deleted"


async def test_a_task_that_is_not_there(stage: Stage) -> None:
    with pytest.raises(NotFoundError):
        await stage.read("no-such-task")
    with pytest.raises(InvalidInputError, match="place"):
        await stage.read("no-such-task", after="first")


async def test_what_cannot_be_streamed_is_an_error(stage: Stage) -> None:
    task = await submit(stage.database)
    found: list[str] = []

    async def misuse(ctx: grns.Context) -> None:
        for value, kind in ((object(), None), ("x", "No Kind"), (["x" * 70_000], None)):
            with pytest.raises(InvalidInputError) as caught:
                ctx.stream(value, kind=kind)
            found.append(caught.value.code)

    assert await stage.run(task.id, misuse) == "succeeded"
    assert len(found) == 3


async def test_more_than_can_be_sent_is_lost_and_counted(stage: Stage) -> None:
    await stage.worker.provision_outputs()
    task = await submit(stage.database)

    async def flood(ctx: grns.Context) -> None:
        for _ in range(3):
            ctx.stream("x" * 700_000)

    await stage.run(task.id, flood)
    events = await stage.read(task.id)
    assert text_of(events) == "x" * 700_000
    (dropped,) = [one for one in stage.attempts.emitted if isinstance(one, OutputDropped)]
    assert dropped.chunks == 2
    assert sum(one.lost or 0 for one in events) == 2
    assert max(len(one.data) for one in events if one.event == "chunk") == output.LONGEST_TEXT


async def test_a_lost_lease_says_no_more(stage: Stage) -> None:
    task = await submit(stage.database)

    async def lost(ctx: grns.Context) -> None:
        ctx._lease.end("lost")
        ctx.stream("nobody hears this")

    TURN.append(lost)
    heard: list[bytes] = []
    async with stage.hub._transport.watching("out.>", heard.append):
        assert await stage.attempts.run(task.id) == "running"
        await asyncio.sleep(0.3)
    assert not heard


async def test_text_that_json_cannot_carry_does_no_harm(stage: Stage) -> None:
    await stage.worker.provision_outputs()
    task = await submit(stage.database)
    assert await stage.run(task.id, said("half \ud83d", "\x00")) == "succeeded"
    assert text_of(await stage.read(task.id)) == "half \ufffd\ufffd"


async def test_what_follows_a_long_text_is_sent_soon(stage: Stage) -> None:
    await stage.worker.provision_outputs()
    task = await submit(stage.database)

    async def long_first(ctx: grns.Context) -> None:
        ctx.stream("x" * 5000)
        ctx.stream("soon")
        await until(lambda: text_of(live).endswith("soon"))
        ctx.stream("y" * 5000)
        await asyncio.sleep(0.3)
        assert stage.attempts.output is not None
        assert not stage.attempts.output._unsent

    async with stage.reading(task.id) as live:
        assert await stage.run(task.id, long_first) == "succeeded"


async def test_what_a_transaction_completes_has_its_last_words(stage: Stage) -> None:
    await stage.worker.provision_outputs()
    task = await submit(stage.database)

    async def in_transaction(ctx: grns.Context) -> None:
        async with ctx.transaction() as tx:
            ctx.stream("paid")
            tx.complete(None)
        await asyncio.sleep(1.5)  # readers see that it has ended, and wait for no more

    async with stage.reading(task.id) as live:
        assert await stage.run(task.id, in_transaction) == "succeeded"
    assert text_of(live) == "paid"


async def test_readers_end_with_the_hub(stage: Stage) -> None:
    task = await submit(stage.database)
    async with stage.reading(task.id):
        await stage.hub.close()


async def test_a_value_that_is_missed_and_stored_is_read(stage: Stage) -> None:
    """A subscription may miss messages, as while its connection is renewed: the broker has them."""
    await stage.worker.provision_outputs()
    task = await submit(stage.database)
    subject = output.subject_of(task.id, "default")

    async def missed(ctx: grns.Context) -> None:
        ctx.stream("one ")
        await until(lambda: text_of(live) == "one ")
        (watch,) = stage.hub._watches.values()
        receive, watch.view.add = watch.view.add, lambda *_, **__: False  # type: ignore[method-assign]
        stage.worker.send(subject, output.encode(Chunk(1, 2, "text", "two ")))
        await asyncio.sleep(1.2)
        watch.view.add = receive  # type: ignore[method-assign]
        stage.worker.send(subject, output.encode(Chunk(1, 3, "text", "three")))
        await until(lambda: text_of(live) == "one two three")

    async with stage.reading(task.id) as live:
        await stage.run(task.id, missed)
    assert "gap" not in [one.event for one in live[:-2]]
