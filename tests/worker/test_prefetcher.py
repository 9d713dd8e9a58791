"""The intake: the most urgent first, never more than there are slots, and nothing kept that cannot start."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import pytest

from grns.model.outcome import Claim
from grns.nats.consumer import Consumer
from grns.nats.delivery import Delivery
from grns.worker.leases import LeaseManager, SharedLeaseTable
from grns.worker.prefetcher import Prefetcher, PriorityBuffer
from grns.worker.slots import Slots
from tests.worker.test_leases import owned


class Command(Delivery):
    """A delivery that notes what becomes of it."""

    stream, stream_seq, delivery_count, body = "GRNS_CMD", 1, 1, b""
    headers: Mapping[str, str] = {}
    subject, token = "", ""

    def __init__(self, name: str) -> None:
        self.subject = name
        self.token = f"token-{name}"
        self.settled: list[str] = []

    async def ack(self) -> None:
        self.settled.append("ack")

    async def nak(self, delay_seconds: float = 0.0) -> None:
        self.settled.append("nak")

    async def in_progress(self) -> None:
        self.settled.append("in_progress")

    async def term(self, reason: str) -> None:
        self.settled.append("term")


class Source(Consumer):
    """A consumer that notes how much it may hold, and how many of its deliveries have ended."""

    is_failing = False

    def __init__(self) -> None:
        self.depth = 0
        self.ended = 0

    def set_depth(self, depth: int) -> None:
        self.depth = depth

    def done(self, count: int = 1) -> None:
        self.ended += count

    async def stop(self) -> None:
        self.depth = 0


class Stage:
    """An intake with two buffers; what it starts goes on until it is told to end."""

    def __init__(self, table: SharedLeaseTable, size: int) -> None:
        self.slots = Slots(size)
        self.leases = LeaseManager(table, lease_seconds=15.0, emit=lambda fact: None)
        self.prefetcher = Prefetcher(
            slots=self.slots,
            leases=self.leases,
            claim=self.claim,
            claim_hinted=self.claim_hinted,
            start=self.start,
            release=self.release,
            batch_limit=100,
        )
        self.released: list[tuple[str, str]] = []
        self.runs: set[asyncio.Task[None]] = set()
        self.urgent, self.idle = self.buffer(0), self.buffer(3)
        self.started: list[str] = []
        self.may_end: dict[str, asyncio.Event] = {}
        self.is_over = False

    def buffer(self, priority: int) -> tuple[PriorityBuffer, Source]:
        """Add a buffer."""
        buffer, source = self.prefetcher.buffer(priority), Source()
        buffer.consumer = source
        return buffer, source

    async def claim(self, deliveries: Sequence[Delivery], start: Callable[[Claim], None]) -> None:
        """Claim the tasks of all deliveries."""
        for delivery in deliveries:
            if not delivery.subject.startswith("refused"):
                start(owned(delivery.subject))
            await delivery.ack()

    async def claim_hinted(self, task_ids: Sequence[str], start: Callable[[Claim], None]) -> None:
        """Claim the tasks of hints."""
        for task_id in task_ids:
            if not task_id.startswith("refused"):
                start(owned(task_id))

    def release(self, claim: Claim, reason: str) -> None:
        """Give a claim back."""
        self.released.append((claim.id, reason))
        self.slots.give()

    def start(self, claim: Claim) -> None:
        """Run a claim."""
        self.slots.begin()
        run = asyncio.create_task(self.run(claim))
        self.runs.add(run)
        run.add_done_callback(self.runs.discard)

    async def run(self, claim: Claim) -> None:
        """Run until it may end."""
        self.started.append(claim.id)
        began_at = time.monotonic()
        if not self.is_over:
            await self.may_end.setdefault(claim.id, asyncio.Event()).wait()
        self.prefetcher.note_run(time.monotonic() - began_at)
        self.slots.end()

    def receive(self, buffer: tuple[PriorityBuffer, Source], *names: str) -> list[Command]:
        """Let deliveries arrive."""
        commands = [Command(name) for name in names]
        for command in commands:
            self.prefetcher.receive(buffer[0], command)
        return commands

    async def settle(self) -> None:
        """Let what can start do so."""
        for _ in range(5):
            await asyncio.sleep(0)

    async def end(self, *names: str) -> None:
        """Let runs end, and what they make room for start."""
        for name in names:
            self.may_end.setdefault(name, asyncio.Event()).set()
        await self.settle()

    async def be_quick(self) -> None:
        """Let so many short tasks run that commands are fetched ahead."""
        for number in range(20):
            name = f"quick-{number}"
            self.may_end[name] = asyncio.Event()
            self.may_end[name].set()
            self.receive(self.urgent, name)
            await self.settle()
        self.started.clear()
        self.prefetcher._mean_seconds = 0.1  # short, and not so short that tasks are claimed ahead
        self.slots.ahead = 0

    async def be_very_quick(self) -> None:
        """Let so many very short tasks run that tasks are claimed ahead."""
        await self.be_quick()
        self.prefetcher._mean_seconds = 0.0
        self.prefetcher.note_run(0.0)

    async def clear(self) -> None:
        """Let everything end."""
        self.is_over = True
        for _ in range(100):
            for may_end in self.may_end.values():
                may_end.set()
            await self.settle()
        assert not self.runs
        assert not self.prefetcher.running


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """Two slots."""
    table, descriptor = SharedLeaseTable.create(18)
    stage = Stage(table, 2)
    yield stage
    await stage.clear()
    table.close()
    os.close(descriptor)


async def test_no_more_start_than_there_are_slots(stage: Stage) -> None:
    await stage.be_quick()
    commands = stage.receive(stage.urgent, "a", "b", "c", "d")
    await stage.settle()
    assert stage.started == ["a", "b"]
    assert stage.slots.free == 0
    await stage.end("a")
    assert stage.started == ["a", "b", "c"]
    await stage.end("b", "c")
    await stage.end("d")
    assert [command.settled for command in commands] == [["ack"]] * 4
    assert stage.slots.free == 2
    assert stage.urgent[1].ended == 20 + 4


async def test_the_most_urgent_starts_first_and_equals_in_their_order(stage: Stage) -> None:
    await stage.be_quick()
    stage.receive(stage.idle, "idle-1", "idle-2", "idle-3", "idle-4")
    await stage.settle()
    stage.receive(stage.urgent, "urgent-1", "urgent-2")
    for name in ("idle-1", "idle-2", "urgent-1", "urgent-2"):
        await stage.end(name)
    assert stage.started == ["idle-1", "idle-2", "urgent-1", "urgent-2", "idle-3", "idle-4"]


async def test_while_tasks_are_long_what_cannot_start_is_given_back(stage: Stage) -> None:
    """Another worker may have a slot for it. Nothing is known of these tasks yet: they may be long."""
    commands = stage.receive(stage.urgent, "a", "b", "c")
    await stage.settle()
    assert stage.started == ["a", "b"]
    assert commands[2].settled == ["nak"]
    assert (stage.urgent[0].held, stage.urgent[1].depth) == (0, 0), "no more than can start"


async def test_what_stands_behind_refused_commands_starts_in_their_place(stage: Stage) -> None:
    """Given back sooner, a message that begins with refused commands would come again for ever."""
    commands = stage.receive(stage.urgent, *[f"refused-{number}" for number in range(5)], "a", "b", "c")
    await stage.settle()
    assert stage.started == ["a", "b"]
    assert [command.settled for command in commands] == [["ack"]] * 7 + [["nak"]]


async def test_where_tasks_have_become_long_the_least_urgent_is_given_back(stage: Stage) -> None:
    await stage.be_quick()
    idle = stage.receive(stage.idle, "a", "b", "c", "d")
    await stage.settle()
    stage.prefetcher._mean_seconds = 60.0
    urgent = stage.receive(stage.urgent, "e")
    await stage.settle()
    assert [one.settled for one in (*idle, *urgent)] == [["ack"], ["ack"], [], ["nak"], []]
    assert [waiting.delivery.subject for waiting in stage.prefetcher.waiting] == ["e", "c"]


async def test_buffers_may_be_added_in_any_order(stage: Stage) -> None:
    await stage.be_quick()
    late = stage.buffer(1)
    stage.receive(stage.idle, "a", "b", "c")
    await stage.settle()
    stage.receive(late, "d")
    for name in ("a", "b"):
        await stage.end(name)
    assert stage.started == ["a", "b", "d", "c"]


async def test_a_free_slot_is_fetched_for_in_each_buffer(stage: Stage) -> None:
    stage.receive(stage.idle, "a")
    await stage.settle()
    assert (stage.urgent[1].depth, stage.idle[1].depth) == (1, 1)


async def test_while_tasks_are_short_buffers_fetch_ahead(stage: Stage) -> None:
    await stage.be_quick()
    assert (stage.urgent[1].depth, stage.idle[1].depth) == (8, 8)


async def test_a_slot_that_somebody_else_gives_back_is_used(stage: Stage) -> None:
    """The front door and the floor share the slots."""
    await stage.be_quick()
    stage.slots.try_take()
    stage.slots.try_take()
    stage.receive(stage.urgent, "a")
    await stage.settle()
    assert stage.started == []
    stage.slots.give()
    await stage.settle()
    assert stage.started == ["a"]


async def test_what_waits_for_long_is_kept_from_being_delivered_again(stage: Stage) -> None:
    await stage.be_quick()
    stage.receive(stage.urgent, "a", "b", "c")
    await stage.settle()
    free = stage.leases.free_slots
    stage.prefetcher.keep_waiting()
    assert stage.leases.free_slots == free, "not yet"
    for waiting in stage.prefetcher.waiting:
        waiting.since -= 10.0
    stage.prefetcher.keep_waiting()
    stage.prefetcher.keep_waiting()
    assert stage.leases.free_slots == free - 1
    await stage.end("a")
    assert stage.leases.free_slots == free, "it has started: from now on its lease keeps it"


async def test_slots_of_the_book_are_left_for_what_runs(stage: Stage) -> None:
    await stage.be_quick()
    stage.receive(stage.urgent, *[f"a{number}" for number in range(30)])
    for waiting in stage.prefetcher.waiting:
        waiting.since -= 10.0
    stage.prefetcher.keep_waiting()
    assert stage.leases.free_slots == 3 * stage.slots.size


async def test_at_the_end_what_waits_is_given_back_and_nothing_starts(stage: Stage) -> None:
    await stage.be_quick()
    commands = stage.receive(stage.urgent, "a", "b", "c", "d")
    await stage.settle()
    for waiting in stage.prefetcher.waiting:
        waiting.since -= 10.0
    free = stage.leases.free_slots
    stage.prefetcher.keep_waiting()
    stage.prefetcher.close()
    (late,) = stage.receive(stage.urgent, "late")
    await stage.end("a", "b")
    assert stage.started == ["a", "b"]
    assert [command.settled for command in [*commands, late]] == [["ack"], ["ack"], ["nak"], ["nak"], ["nak"]]
    assert stage.leases.free_slots == free
    assert stage.urgent[0].held == 0
    assert not stage.prefetcher.running


@pytest.mark.parametrize("is_quick", [True, False])
async def test_while_slots_are_held_back_nothing_starts_and_nothing_more_is_fetched(
    stage: Stage, is_quick: bool
) -> None:
    """As while leases cannot be renewed. What runs goes on, what waits starts afterwards."""
    if is_quick:
        await stage.be_quick()
    (running,) = stage.receive(stage.urgent, "a")
    await stage.settle()
    for why in ("heartbeat", "heartbeat", "pause"):
        stage.slots.hold(why)
    assert (stage.slots.taken, stage.slots.free > 0, stage.slots.try_take()) == (1, False, False)
    assert stage.idle[1].depth <= 0
    (late,) = stage.receive(stage.idle, "b")
    await stage.end("a")
    assert (running.settled, stage.started) == (["ack"], ["a"])
    assert stage.idle[1].depth <= 0 or stage.idle[0].held == stage.idle[1].depth
    assert late.settled == ([] if is_quick else ["nak"]), "where tasks are long another worker has it"
    stage.slots.resume("heartbeat")
    await stage.settle()
    assert (stage.slots.is_held, stage.started) == (True, ["a"]), "there is another reason"
    for _ in range(2):
        stage.slots.resume("pause")
    await stage.settle()
    assert stage.started == (["a", "b"] if is_quick else ["a"])
    assert stage.slots.taken == (1 if is_quick else 0)
    assert stage.idle[0].held == 0
    assert stage.idle[1].depth > 0


async def test_hint_with_a_free_slot_starts_its_task(stage: Stage) -> None:
    stage.prefetcher.hint("first")
    stage.prefetcher.hint("refused")
    await stage.settle()
    stage.prefetcher.hint("second")
    await stage.settle()
    assert stage.started == ["first", "second"]
    assert stage.slots.free == 0
    await stage.clear()
    assert stage.slots.taken == 0


async def test_hint_without_a_free_slot_is_forgotten(stage: Stage) -> None:
    for name in ("first", "second", "third"):
        stage.prefetcher.hint(name)
    await stage.settle()
    stage.prefetcher.hint("fourth")
    await stage.end("first", "second")
    await stage.settle()
    assert stage.started == ["first", "second"], "their commands come"


async def test_hint_while_commands_wait_is_forgotten(stage: Stage) -> None:
    await stage.be_quick()
    stage.receive(stage.urgent, "first", "second", "third")
    await stage.settle()
    assert stage.started == ["first", "second"]
    stage.prefetcher.hint("hinted")
    await stage.end("first", "second", "third")
    assert "hinted" not in stage.started


async def test_hint_of_a_closed_prefetcher_starts_nothing(stage: Stage) -> None:
    stage.prefetcher.close()
    stage.prefetcher.hint("first")
    await stage.settle()
    assert stage.started == []


async def test_while_tasks_are_very_short_as_many_as_slots_are_claimed_ahead_and_wait(stage: Stage) -> None:
    await stage.be_very_quick()
    commands = stage.receive(stage.urgent, "a", "b", "c", "d", "e", "f")
    await stage.settle()
    assert (stage.started, stage.slots.running) == (["a", "b"], 2), "no more handlers than slots"
    assert [command.settled for command in commands] == [["ack"]] * 4 + [[]] * 2
    await stage.end("a")
    assert (stage.started, stage.slots.running) == (["a", "b", "c"], 2)
    assert commands[4].settled == ["ack"]


async def test_tasks_that_are_claimed_ahead_and_wait_for_long_are_released(stage: Stage) -> None:
    """A handler takes longer than those before it: another worker may have a slot."""
    await stage.be_very_quick()
    stage.receive(stage.urgent, "a", "b", "c", "d")
    await stage.settle()
    stage.prefetcher.keep_waiting()
    assert stage.released == []
    stage.prefetcher._claimed = deque((claim, since - 1.1) for claim, since in stage.prefetcher._claimed)
    stage.prefetcher.keep_waiting()
    assert stage.released == [("c", "no_slot"), ("d", "no_slot")]
    assert stage.slots.taken == 2
    (late,) = stage.receive(stage.urgent, "late")
    await stage.settle()
    assert late.settled == ["nak"], "nothing more waits for these"
    await stage.end("a", "b")
    assert stage.started == ["a", "b"]
    await stage.be_very_quick()
    assert stage.slots.ahead == 0, "not for a while"


async def test_when_claimed_tasks_are_released_what_waits_is_given_back(stage: Stage) -> None:
    await stage.be_very_quick()
    commands = stage.receive(stage.urgent, *"abcdef")
    await stage.settle()
    stage.prefetcher._claimed = deque((claim, since - 1.1) for claim, since in stage.prefetcher._claimed)
    stage.prefetcher.keep_waiting()
    await stage.settle()
    assert [command.settled for command in commands] == [["ack"]] * 4 + [["nak"]] * 2
    assert stage.urgent[0].held == 0


async def test_claims_of_others_wait_for_a_slot_while_handlers_run_in_all(stage: Stage) -> None:
    """The poller had taken its slots before the prefetcher claimed ahead."""
    await stage.be_very_quick()
    stage.slots.take(2)
    stage.receive(stage.urgent, "a", "b")
    await stage.settle()
    assert stage.slots.running == 2
    for name in ("polled-1", "polled-2"):
        stage.prefetcher.start(owned(name))
    assert (stage.started, stage.slots.running) == (["a", "b"], 2)
    await stage.end("a", "b")
    assert (stage.started, stage.slots.running) == (["a", "b", "polled-1", "polled-2"], 2)


async def test_tasks_that_are_claimed_ahead_are_released_at_the_end(stage: Stage) -> None:
    await stage.be_very_quick()
    stage.receive(stage.urgent, "a", "b", "c")
    await stage.settle()
    stage.prefetcher.hold()
    assert stage.released == [("c", "shutdown")]
    await stage.end("a", "b")
    assert (stage.started, stage.slots.taken) == (["a", "b"], 0)


async def test_where_tasks_have_become_longer_nothing_is_claimed_ahead(stage: Stage) -> None:
    await stage.be_very_quick()
    stage.prefetcher.note_run(10.0)
    commands = stage.receive(stage.urgent, "a", "b", "c")
    await stage.settle()
    assert (stage.started, commands[2].settled) == (["a", "b"], ["nak"])


async def test_a_large_claim_goes_beside_another_one(stage: Stage) -> None:
    """Handlers start while Postgres claims the next tasks."""
    await stage.be_very_quick()
    under_way: list[int] = []
    go = asyncio.Event()

    async def claim(deliveries: Sequence[Delivery], start: Callable[[Claim], None]) -> None:
        under_way.append(len(deliveries))
        await go.wait()
        await stage.claim(deliveries, start)

    stage.prefetcher._claim = claim
    stage.receive(stage.urgent, "a", "b")
    await stage.settle()
    stage.receive(stage.urgent, "c", "d", "e", "f")
    await stage.settle()
    assert under_way == [2, 2], "as many as may be claimed, by two claims"
    go.set()
    await stage.settle()
    assert stage.slots.running == 2
