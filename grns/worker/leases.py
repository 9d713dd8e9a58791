"""Leases: how they are kept alive, and how an attempt learns that it has lost one.

A worker writes its leases into a table in memory that it shares with its heartbeat process, which renews them
(`renewals.py`) and sends `InProgress` for commands that wait. So a handler that blocks the event loop, burns
the CPU or never releases the interpreter keeps its lease. The heartbeat process answers in the same table.

Worker and heartbeat process write different fields, each with a checksum, so that no half-written field is
believed. An answer counts only for the generation of the slot it names.
"""

from __future__ import annotations

import asyncio
import math
import mmap
import os
import struct
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from uuid import UUID

from grns.model.outcome import Claim
from grns.runtime.cancel_scope import CancelScope
from grns.telemetry.signal import Emit
from grns.telemetry.task_signals import LeaseLost, RenewalsUnanswered

MAX_TOKEN_BYTES = 400

# How often the heartbeat has answered, how often it got no answer itself, how often it has shown life, and
# whether its last round was answered.
_HEADER = struct.Struct("<QQQQ")
_RECORD = struct.Struct(f"<IBi16sB64sH{MAX_TOKEN_BYTES}s")
_STATE_AT = 4  # one byte, and so never half-written
_ANSWER = struct.Struct("<IBd")
_WORKED = struct.Struct("<d")  # until when the worker was full, or began and ended tasks
_WORKED_STEP_SECONDS = 0.02  # this is written for each task, and read about once a second
_CHECKSUM = struct.Struct("<I")
_WORKED_SIZE = _WORKED.size + _CHECKSUM.size
_HEAD_SIZE = _HEADER.size + _WORKED_SIZE
_RECORD_SIZE = _RECORD.size + _CHECKSUM.size
_ANSWER_SIZE = _ANSWER.size + _CHECKSUM.size
_SLOT_SIZE = _RECORD_SIZE + _ANSWER_SIZE
_NO_LEASE = bytes(16)


class SlotState(IntEnum):
    """What a slot of the table holds."""

    FREE = 0
    DELIVERY = 1
    LEASE = 2


class LeaseAnswer(IntEnum):
    """What the heartbeat process says of a lease."""

    RENEWED = 1
    LOST = 2
    CANCEL_REQUESTED = 3


@dataclass(frozen=True, slots=True)
class SlotRecord:
    """What a worker holds in one slot."""

    slot: int
    generation: int
    state: SlotState
    attempt: int
    lease_id: UUID
    task_id: str
    token: str


class SharedLeaseTable:
    """The memory that a worker shares with its heartbeat process."""

    def __init__(self, memory: mmap.mmap, slots: int) -> None:
        self._memory = memory
        self._worked_at = -math.inf
        self.slots = slots

    @classmethod
    def create(cls, slots: int) -> tuple[SharedLeaseTable, int]:
        """Make a table; returns it with the file descriptor that the heartbeat process needs."""
        size = _HEAD_SIZE + slots * _SLOT_SIZE
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("grns-leases")
        else:
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        os.ftruncate(descriptor, size)
        table = cls(mmap.mmap(descriptor, size), slots)
        table.note_work()
        return table, descriptor

    @classmethod
    def attach(cls, descriptor: int, slots: int) -> SharedLeaseTable:
        """Open a table that another process made."""
        return cls(mmap.mmap(descriptor, _HEAD_SIZE + slots * _SLOT_SIZE), slots)

    def close(self) -> None:
        """Let the memory go."""
        self._memory.close()

    def write(
        self, slot: int, generation: int, state: SlotState, *, claim: Claim | None = None, token: str = ""
    ) -> None:
        """Say what is held in a slot (the worker's side)."""
        task_id = claim.id.encode() if claim else b""
        lease_id = claim.lease_id.bytes if claim else _NO_LEASE
        attempt = claim.attempt if claim else 0
        kept = token.encode()
        body = _RECORD.pack(generation, state, attempt, lease_id, len(task_id), task_id, len(kept), kept)
        start = _HEAD_SIZE + slot * _SLOT_SIZE
        self._memory[start : start + _RECORD_SIZE] = body + _CHECKSUM.pack(zlib.crc32(body))

    def free(self, slot: int) -> None:
        """Say that a slot holds nothing (the worker's side)."""
        self._memory[_HEAD_SIZE + slot * _SLOT_SIZE + _STATE_AT] = SlotState.FREE

    def records(self) -> Iterator[SlotRecord]:
        """Read what is held (the heartbeat's side), without slots that are being written."""
        for slot in range(self.slots):
            start = _HEAD_SIZE + slot * _SLOT_SIZE
            if self._memory[start + _STATE_AT] == SlotState.FREE:
                continue
            raw = self._memory[start : start + _RECORD_SIZE]
            body = raw[: _RECORD.size]
            if _CHECKSUM.unpack(raw[_RECORD.size :])[0] != zlib.crc32(body):
                continue
            generation, state, attempt, lease_id, id_length, task_id, token_length, token = _RECORD.unpack(
                body
            )
            yield SlotRecord(
                slot, generation, SlotState(state), attempt, UUID(bytes=lease_id),
                task_id[:id_length].decode(), token[:token_length].decode(),
            )  # fmt: skip

    def answer(self, record: SlotRecord, verdict: LeaseAnswer, expires_at: float) -> None:
        """Say what became of a lease (the heartbeat process's side)."""
        body = _ANSWER.pack(record.generation, verdict, expires_at)
        start = _HEAD_SIZE + record.slot * _SLOT_SIZE + _RECORD_SIZE
        self._memory[start : start + _ANSWER_SIZE] = body + _CHECKSUM.pack(zlib.crc32(body))

    def announce(self) -> None:
        """Say that Postgres has answered, perhaps with new answers (the heartbeat process's side)."""
        self._count(announced=1, is_answered=True)

    def note_failure(self) -> None:
        """Say that a renewal got no answer (the heartbeat process's side)."""
        self._count(failures=1, is_answered=False)

    def note_start(self) -> None:
        """Say that a heartbeat process begins: Postgres has not answered it yet (its own side)."""
        self._count(is_answered=False)

    def beat(self) -> None:
        """Say that the heartbeat process lives (its own side)."""
        self._count(beats=1)

    def note_work(self) -> None:
        """Say that the worker is full, or begins or ends a task (its own side)."""
        now = time.monotonic()
        if now - self._worked_at < _WORKED_STEP_SECONDS:
            return
        self._worked_at = now
        body = _WORKED.pack(now)
        self._memory[_HEADER.size : _HEAD_SIZE] = body + _CHECKSUM.pack(zlib.crc32(body))

    @property
    def idle_seconds(self) -> float:
        """For how long the worker has had room and taken nothing (the heartbeat process's side)."""
        raw = self._memory[_HEADER.size : _HEAD_SIZE]
        body = raw[: _WORKED.size]
        if _CHECKSUM.unpack(raw[_WORKED.size :])[0] != zlib.crc32(body):
            return 0.0  # it is being written now
        return max(0.0, time.monotonic() - float(_WORKED.unpack(body)[0]))

    @property
    def announced(self) -> int:
        """A number that changes with each round of answers."""
        return int(_HEADER.unpack(self._memory[: _HEADER.size])[0])

    @property
    def failures(self) -> int:
        """How many renewals got no answer."""
        return int(_HEADER.unpack(self._memory[: _HEADER.size])[1])

    @property
    def beats(self) -> int:
        """A number that changes for as long as the heartbeat process lives and is not stuck."""
        return int(_HEADER.unpack(self._memory[: _HEADER.size])[2])

    @property
    def is_answered(self) -> bool:
        """Whether Postgres answered the heartbeat process's last round (the worker's side)."""
        return bool(_HEADER.unpack(self._memory[: _HEADER.size])[3])

    def _count(
        self, *, announced: int = 0, failures: int = 0, beats: int = 0, is_answered: bool | None = None
    ) -> None:
        counts = (self.announced + announced, self.failures + failures, self.beats + beats)
        said = self.is_answered if is_answered is None else is_answered
        self._memory[: _HEADER.size] = _HEADER.pack(*(count % 2**64 for count in counts), said)

    def answer_for(self, slot: int, generation: int) -> tuple[LeaseAnswer, float] | None:
        """Read the answer for a slot's present holder (the worker's side)."""
        start = _HEAD_SIZE + slot * _SLOT_SIZE + _RECORD_SIZE
        raw = self._memory[start : start + _ANSWER_SIZE]
        body = raw[: _ANSWER.size]
        if _CHECKSUM.unpack(raw[_ANSWER.size :])[0] != zlib.crc32(body):
            return None
        said, verdict, expires_at = _ANSWER.unpack(body)
        return (LeaseAnswer(verdict), expires_at) if said == generation else None


class Lease:
    """What one attempt holds, and the word that it must end.

    `ended` says why: `lost` (the database refused the renewal), `deadline` (no renewal was
    answered in time), `cancelled` (on request), `timeout` or `shutdown`.
    `still_running` is a thread's future that outlived the attempt.
    """

    def __init__(
        self, claim: Claim, slot: int, generation: int, let_go: Callable[[Lease], None] | None = None
    ) -> None:
        self._let_go = let_go
        self.claim = claim
        self.slot = slot
        self.generation = generation
        self.expires_at = claim.expires_at
        self.ended: str | None = None
        self.still_running: asyncio.Future[object] | None = None
        self._cancel_scope: CancelScope | None = None

    @property
    def is_lost(self) -> bool:
        """Say whether the database has refused it: what it writes now is refused too."""
        return self.ended == "lost"

    @property
    def is_over(self) -> bool:
        """Whether nothing may begin in it any more, by the clock, too: the process may have been frozen."""
        return self.ended is not None or time.monotonic() >= self.expires_at

    def end(self, reason: str) -> None:
        """Tell the attempt to end; an async handler is cancelled, a thread can only look."""
        if self.ended is None:
            self.ended = reason
            if self._cancel_scope is not None:
                self._cancel_scope.cancel()

    def bounded(self, seconds: float | None) -> CancelScope:
        """Return what the handler runs in: `end` cuts it short, and so does its own time."""
        self._cancel_scope = CancelScope(seconds)
        if self.ended is not None:
            self._cancel_scope.cancel()
        return self._cancel_scope

    def __enter__(self) -> Lease:
        """Keep it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let it go."""
        if self._let_go is not None:
            self._let_go(self)


class LeaseManager:
    """The worker's side: what is held now, by slot."""

    def __init__(self, table: SharedLeaseTable, *, lease_seconds: float, emit: Emit) -> None:
        self._table = table
        self._emit = emit
        # An async handler is stopped this long before another worker can have its lease.
        self._margin_seconds = min(max(1.0, lease_seconds / 5), lease_seconds / 3)
        self._free = list(range(table.slots - 1, -1, -1))
        self._generation = 0
        self._held: dict[int, Lease] = {}
        self._expected: dict[UUID, Lease] = {}  # those of them that nothing has begun with
        self._announced = table.announced
        self._failures = table.failures
        self._closed: str | None = None

    @property
    def free_slots(self) -> int:
        """How much more can be held."""
        return len(self._free)

    @property
    def is_renewing(self) -> bool:
        """Whether what is claimed now will be renewed: Postgres answers the heartbeat process."""
        return self._table.is_answered

    @contextmanager
    def delivery(self, token: str) -> Iterator[None]:
        """Keep the broker from delivering again while something waits to be started."""
        slot, generation = self._take()
        self._table.write(slot, generation, SlotState.DELIVERY, token=token[:MAX_TOKEN_BYTES])
        try:
            yield
        finally:
            self._give(slot)

    def hold(self, claim: Claim) -> Lease:
        """Return the lease of a claimed task: it is kept until it is let go.

        What the heartbeat process has answered meanwhile counts: other code may have blocked this
        process between the claim and now, for longer than a lease.
        """
        lease = self._expected.pop(claim.lease_id, None)
        if lease is None:
            lease = self._keep(claim)
        else:
            self._read_answer(lease)
        self._table.note_work()
        return lease

    def expect(self, claim: Claim) -> None:
        """Keep a lease from its claim's answer on: other code may run before the task starts."""
        self._expected[claim.lease_id] = self._keep(claim)

    def forget(self, lease_id: UUID) -> None:
        """Stop keeping a lease that was expected and is not held: its task will not start."""
        lease = self._expected.pop(lease_id, None)
        if lease is not None:
            self._let_go(lease)

    def note_full(self) -> None:
        """Say that there is no room for more: who waits for that is not idle."""
        self._table.note_work()

    def check(self) -> None:
        """Read the heartbeat process's answers and look at the deadlines; ends what must end."""
        failures = self._table.failures
        if failures != self._failures:
            self._emit(RenewalsUnanswered(failures - self._failures))
            self._failures = failures
        announced = self._table.announced
        if announced != self._announced:
            self._announced = announced
            for lease in self._held.values():
                self._read_answer(lease)
        latest = time.monotonic() + self._margin_seconds
        for lease in self._held.values():
            if lease.expires_at < latest and lease.ended is None:
                self._end(lease, "deadline")

    def end_all(self, reason: str) -> None:
        """Tell all attempts to end, also those whose claim is answered only now."""
        self._closed = reason
        for lease in self._held.values():
            lease.end(reason)

    def _keep(self, claim: Claim) -> Lease:
        slot, generation = self._take()
        lease = self._held[slot] = Lease(claim, slot, generation, self._let_go)
        self._table.write(slot, generation, SlotState.LEASE, claim=claim)
        if self._closed is not None:
            lease.end(self._closed)
        return lease

    def _read_answer(self, lease: Lease) -> None:
        answer = self._table.answer_for(lease.slot, lease.generation)
        if answer is None:
            return
        verdict, expires_at = answer
        if verdict is LeaseAnswer.LOST:
            self._end(lease, "lost")
            return
        lease.expires_at = max(lease.expires_at, expires_at)
        if verdict is LeaseAnswer.CANCEL_REQUESTED:
            lease.end("cancelled")

    def _end(self, lease: Lease, reason: str) -> None:
        if lease.ended is None:
            self._emit(LeaseLost(lease.claim.id, lease.claim.attempt, lease.claim.trace_id, reason))
        lease.end(reason)

    def _let_go(self, lease: Lease) -> None:
        del self._held[lease.slot]
        self._give(lease.slot)
        self._table.note_work()

    def _take(self) -> tuple[int, int]:
        self._generation = self._generation % (2**32 - 1) + 1
        return self._free.pop(), self._generation

    def _give(self, slot: int) -> None:
        self._table.free(slot)
        self._free.append(slot)
