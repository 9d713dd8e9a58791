"""Leases: what worker and heartbeat write into one memory, and how an attempt learns that it must end."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from random import Random
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grns.model.outcome import Claim
from grns.telemetry.signal import Signal
from grns.telemetry.task_signals import LeaseLost, RenewalsUnanswered
from grns.worker.leases import (
    MAX_TOKEN_BYTES,
    Lease,
    LeaseAnswer,
    LeaseManager,
    SharedLeaseTable,
    SlotRecord,
    SlotState,
)
from tests.support.store import forged

LEASE_SECONDS = 15.0
SLOTS = 4


@pytest.fixture
def pair() -> Iterator[tuple[SharedLeaseTable, SharedLeaseTable]]:
    """A table as its worker and as its heartbeat process have it."""
    ours, descriptor = SharedLeaseTable.create(SLOTS)
    theirs = SharedLeaseTable.attach(descriptor, SLOTS)
    yield ours, theirs
    ours.close()
    theirs.close()
    os.close(descriptor)


@pytest.fixture
def emitted() -> list[Signal]:
    """What is told."""
    return []


@pytest.fixture
def leases(pair: tuple[SharedLeaseTable, SharedLeaseTable], emitted: list[Signal]) -> LeaseManager:
    """The worker's side."""
    return LeaseManager(pair[0], lease_seconds=LEASE_SECONDS, emit=emitted.append)


def owned(task_id: str = "gr-0", *, seconds: float = LEASE_SECONDS) -> Claim:
    """Return a claim that lasts for some seconds more."""
    claim = forged(task_id, attempt=3, lease_id=uuid4())
    claim.expires_at = time.monotonic() + seconds
    return claim


def answer(
    heartbeat: SharedLeaseTable, record: SlotRecord, verdict: LeaseAnswer, seconds: float = LEASE_SECONDS
) -> None:
    """Answer for one lease, as a heartbeat process does."""
    heartbeat.answer(record, verdict, time.monotonic() + seconds)
    heartbeat.announce()


# ---------------------------------------------------------------- the table


@given(
    st.text("abcdefghijkl0-_", min_size=1, max_size=64), st.integers(0, 2**31 - 1), st.integers(1, 2**32 - 1)
)
def test_what_is_written_is_read(task_id: str, attempt: int, generation: int) -> None:
    table, descriptor = SharedLeaseTable.create(SLOTS)
    try:
        claim = forged(task_id, attempt=attempt, lease_id=uuid4())
        table.write(2, generation, SlotState.LEASE, claim=claim, token="$JS.ACK.é")
        table.write(1, 7, SlotState.DELIVERY, token="x" * MAX_TOKEN_BYTES)
        first, second = table.records()
        assert (first.slot, first.state, first.token) == (1, SlotState.DELIVERY, "x" * MAX_TOKEN_BYTES)
        assert second == SlotRecord(
            2, generation, SlotState.LEASE, attempt, claim.lease_id, task_id, "$JS.ACK.é"
        )
        table.write(2, generation, SlotState.FREE)
        assert [record.slot for record in table.records()] == [1]
    finally:
        table.close()
        os.close(descriptor)


def test_a_slot_that_is_half_written_is_not_believed(pair: tuple[SharedLeaseTable, SharedLeaseTable]) -> None:
    """Whatever byte of it is not there yet."""
    worker, heartbeat = pair
    memory = worker._memory
    worker.write(0, 1, SlotState.LEASE, claim=owned("gr-one"))
    before = bytes(memory)
    worker.write(0, 2, SlotState.LEASE, claim=owned("gr-two"))
    after = bytes(memory)
    different = [place for place in range(len(before)) if before[place] != after[place]]
    chance = Random(1)
    for _ in range(200):
        cut = chance.randrange(1, len(different))
        for place, byte in enumerate(before):
            memory[place] = byte
        for place in different[:cut]:
            memory[place] = after[place]
        assert list(heartbeat.records()) == []


def test_an_answer_that_is_half_written_is_not_believed(
    pair: tuple[SharedLeaseTable, SharedLeaseTable],
) -> None:
    worker, heartbeat = pair
    worker.write(0, 1, SlotState.LEASE, claim=owned())
    (record,) = heartbeat.records()
    assert worker.answer_for(0, 1) is None, "there is none yet"
    heartbeat.answer(record, LeaseAnswer.RENEWED, 100.0)
    assert worker.answer_for(0, 1) == (LeaseAnswer.RENEWED, 100.0)
    before = bytes(worker._memory)
    heartbeat.answer(record, LeaseAnswer.LOST, 200.0)
    different = [place for place, byte in enumerate(worker._memory[:]) if byte != before[place]]
    worker._memory[different[-1]] = before[different[-1]]
    assert worker.answer_for(0, 1) is None


def test_an_answer_counts_for_its_generation_only(pair: tuple[SharedLeaseTable, SharedLeaseTable]) -> None:
    worker, heartbeat = pair
    worker.write(0, 1, SlotState.LEASE, claim=owned("gr-one"))
    (record,) = heartbeat.records()
    worker.write(0, 2, SlotState.LEASE, claim=owned("gr-two"))
    heartbeat.answer(record, LeaseAnswer.LOST, 0.0)
    assert worker.answer_for(0, 2) is None
    assert worker.answer_for(0, 1) == (LeaseAnswer.LOST, 0.0)


def test_the_heartbeat_reads_for_how_long_the_worker_has_been_idle(
    pair: tuple[SharedLeaseTable, SharedLeaseTable], leases: LeaseManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, heartbeat = pair
    now = time.monotonic() + 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert 100.0 <= heartbeat.idle_seconds < 110.0, "it has done nothing since it began"
    with leases.hold(owned()):
        assert heartbeat.idle_seconds == 0.0
        now += 40.0
        assert heartbeat.idle_seconds == 40.0
        leases.note_full()
        assert heartbeat.idle_seconds == 0.0
        now += 50.0
    assert heartbeat.idle_seconds == 0.0, "it has just ended one"
    now += 60.0
    before = bytes(worker._memory)
    worker.note_work()
    now += 60.0
    (*_, last) = [place for place, byte in enumerate(worker._memory[:]) if byte != before[place]]
    worker._memory[last] = before[last]
    assert heartbeat.idle_seconds == 0.0, "a half-written time is not believed"


def test_the_heartbeats_numbers_are_counted_apart(pair: tuple[SharedLeaseTable, SharedLeaseTable]) -> None:
    worker, heartbeat = pair
    for _ in range(3):
        heartbeat.beat()
    heartbeat.note_failure()
    heartbeat.note_failure()
    heartbeat.announce()
    assert (worker.announced, worker.failures, worker.beats) == (1, 2, 3)


# ---------------------------------------------------------------- the worker's side


def test_slots_come_and_go(pair: tuple[SharedLeaseTable, SharedLeaseTable], leases: LeaseManager) -> None:
    _, heartbeat = pair
    with leases.hold(owned("gr-1")) as lease, leases.delivery("token-2"):
        assert leases.free_slots == SLOTS - 2
        held = {record.state: record for record in heartbeat.records()}
        assert (held[SlotState.LEASE].task_id, held[SlotState.LEASE].token) == ("gr-1", "")
        assert held[SlotState.LEASE].lease_id == lease.claim.lease_id
        assert held[SlotState.DELIVERY].token == "token-2"
    assert leases.free_slots == SLOTS
    assert list(heartbeat.records()) == []


def test_what_is_claimed_is_kept_before_it_begins(
    pair: tuple[SharedLeaseTable, SharedLeaseTable], leases: LeaseManager
) -> None:
    _, heartbeat = pair
    soon, never = owned("gr-1"), owned("gr-2")
    leases.expect(soon)
    leases.expect(never)
    assert {(record.state, record.task_id, record.token) for record in heartbeat.records()} == {
        (SlotState.LEASE, "gr-1", ""), (SlotState.LEASE, "gr-2", ""),
    }  # fmt: skip
    (early,) = [record for record in heartbeat.records() if record.task_id == "gr-1"]
    heartbeat.answer(early, LeaseAnswer.RENEWED, soon.expires_at + 10.0)
    heartbeat.announce()
    leases.forget(never.lease_id)
    with leases.hold(soon) as lease:
        assert lease.expires_at == soon.expires_at + 10.0, "what was answered before it began"
        (record,) = heartbeat.records()
        assert (record.task_id, record.slot) == ("gr-1", early.slot)
        leases.forget(soon.lease_id)
        assert list(heartbeat.records()) == [record], "it has begun"
    assert leases.free_slots == SLOTS
    leases.expect(soon)
    leases.end_all("shutdown")
    assert leases.hold(soon).ended == "shutdown"


def test_what_was_claimed_before_the_loop_was_blocked_begins_as_the_heartbeat_says(
    pair: tuple[SharedLeaseTable, SharedLeaseTable], leases: LeaseManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing has looked at the answers since, and the first lease is over."""
    _, heartbeat = pair
    claims = {name: owned(name) for name in ("gr-kept", "gr-lost", "gr-cancelled", "gr-unknown")}
    for claim in claims.values():
        leases.expect(claim)
    now = time.monotonic() + 2 * LEASE_SECONDS
    monkeypatch.setattr(time, "monotonic", lambda: now)
    verdicts = {
        "gr-kept": LeaseAnswer.RENEWED,
        "gr-lost": LeaseAnswer.LOST,
        "gr-cancelled": LeaseAnswer.CANCEL_REQUESTED,
    }
    for record in list(heartbeat.records()):
        if record.task_id in verdicts:
            answer(heartbeat, record, verdicts[record.task_id])
    held = {name: leases.hold(claim) for name, claim in claims.items()}
    assert {name: (lease.is_over, lease.ended) for name, lease in held.items()} == {
        "gr-kept": (False, None),
        "gr-lost": (True, "lost"),
        "gr-cancelled": (True, "cancelled"),
        "gr-unknown": (True, None),
    }


def test_a_slot_is_given_back_after_an_error(leases: LeaseManager) -> None:
    for _ in range(3 * SLOTS):
        with pytest.raises(ZeroDivisionError), leases.hold(owned()):
            _ = 1 / 0
    assert leases.free_slots == SLOTS


def test_a_renewal_makes_it_last_longer(
    pair: tuple[SharedLeaseTable, SharedLeaseTable], leases: LeaseManager
) -> None:
    with leases.hold(owned(seconds=5.0)) as lease:
        (record,) = pair[1].records()
        answer(pair[1], record, LeaseAnswer.RENEWED, 12.0)
        leases.check()
        assert lease.expires_at == pytest.approx(time.monotonic() + 12.0, abs=1.0)
        answer(pair[1], record, LeaseAnswer.RENEWED, 8.0)
        leases.check()
        assert lease.expires_at == pytest.approx(time.monotonic() + 12.0, abs=1.0), "never shorter"
        assert lease.ended is None


@pytest.mark.parametrize(
    ("verdict", "ended", "told"),
    [(LeaseAnswer.LOST, "lost", 1), (LeaseAnswer.CANCEL_REQUESTED, "cancelled", 0)],
)
def test_what_the_heartbeat_says_ends_the_attempt(
    pair: tuple[SharedLeaseTable, SharedLeaseTable],
    leases: LeaseManager,
    emitted: list[Signal],
    verdict: LeaseAnswer,
    ended: str,
    told: int,
) -> None:
    with leases.hold(owned("gr-1")) as lease, leases.hold(owned("gr-2")) as other:
        record = next(record for record in pair[1].records() if record.task_id == "gr-1")
        answer(pair[1], record, verdict)
        leases.check()
        leases.check()
        assert (lease.ended, other.ended) == (ended, None)
        assert lease.is_lost == (ended == "lost")
        assert len([signal for signal in emitted if isinstance(signal, LeaseLost)]) == told


def test_what_is_said_of_the_slots_last_holder_is_not_heard(
    pair: tuple[SharedLeaseTable, SharedLeaseTable], leases: LeaseManager
) -> None:
    with leases.hold(owned("gr-old")):
        (record,) = pair[1].records()
    with leases.hold(owned("gr-new")) as lease:
        assert lease.slot == record.slot
        answer(pair[1], record, LeaseAnswer.LOST)
        leases.check()
        assert lease.ended is None


@pytest.mark.parametrize(
    ("seconds", "ended"), [(3.5, None), (2.9, "deadline"), (0.0, "deadline"), (-60.0, "deadline")]
)
def test_without_an_answer_it_ends_before_it_can_be_anothers(
    leases: LeaseManager, emitted: list[Signal], seconds: float, ended: str | None
) -> None:
    """A fifth of the lease before."""
    with leases.hold(owned(seconds=seconds)) as lease:
        leases.check()
        leases.check()
        assert lease.ended == ended
        assert not lease.is_lost, "only the database takes it away"
    assert [signal.reason for signal in emitted if isinstance(signal, LeaseLost)] == (
        [ended] if ended else []
    )


def test_an_answer_in_the_last_moment_keeps_it(
    pair: tuple[SharedLeaseTable, SharedLeaseTable], leases: LeaseManager
) -> None:
    with leases.hold(owned(seconds=1.0)) as lease:
        (record,) = pair[1].records()
        answer(pair[1], record, LeaseAnswer.RENEWED)
        leases.check()
        assert lease.ended is None


@pytest.mark.parametrize(("lease_seconds", "margin"), [(1.0, 1 / 3), (3.0, 1.0), (15.0, 3.0), (60.0, 12.0)])
def test_the_margin_fits_the_lease(
    pair: tuple[SharedLeaseTable, SharedLeaseTable], lease_seconds: float, margin: float
) -> None:
    leases = LeaseManager(pair[0], lease_seconds=lease_seconds, emit=lambda signal: None)
    for seconds, is_ended in ((margin + 0.2, False), (margin - 0.2, True)):
        with leases.hold(owned(seconds=seconds)) as lease:
            leases.check()
            assert (lease.ended is not None) == is_ended


def test_the_first_word_stands(leases: LeaseManager) -> None:
    with leases.hold(owned()) as lease:
        leases.end_all("shutdown")
        lease.end("lost")
        assert (lease.ended, lease.is_lost) == ("shutdown", False)


# ---------------------------------------------------------------- the attempt


async def _attempt(lease: Lease, began: asyncio.Event) -> None:
    with lease.bounded(None):
        began.set()
        await asyncio.Event().wait()


async def test_the_end_cuts_the_scope_short() -> None:
    lease, began = Lease(owned(), 0, 1), asyncio.Event()
    running = asyncio.create_task(_attempt(lease, began))
    await began.wait()
    lease.end("cancelled")
    with pytest.raises(TimeoutError):
        await running
    lease.end("lost")  # behind the scope: nothing is left to be cut


async def test_what_has_ended_before_does_not_begin() -> None:
    lease = Lease(owned(), 0, 1)
    lease.end("shutdown")
    with pytest.raises(TimeoutError):
        await _attempt(lease, asyncio.Event())


def test_what_the_heartbeat_could_not_renew_is_counted_by_the_worker(
    pair: tuple[SharedLeaseTable, SharedLeaseTable], leases: LeaseManager, emitted: list[Signal]
) -> None:
    pair[1].note_failure()
    pair[1].note_failure()
    pair[1].announce()
    leases.check()
    leases.check()
    assert emitted == [RenewalsUnanswered(2)]


def test_a_claim_that_is_answered_after_the_end_is_told_to_end(leases: LeaseManager) -> None:
    with leases.hold(owned("gr-1")) as before:
        leases.end_all("shutdown")
        with leases.hold(owned("gr-2")) as after:
            assert (before.ended, after.ended) == ("shutdown", "shutdown")
