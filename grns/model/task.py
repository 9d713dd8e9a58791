"""Tasks: their statuses, the allowed transitions, and their ids.

The table of transitions is the only one. A trigger of the database enforces the same transitions; a test
compares both.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID, SafeUUID

DEFAULT_MAX_ATTEMPTS = 3
DEFAULT_PRIORITY = 2


class TaskStatus(StrEnum):
    """Status of a task."""

    WAITING = "waiting"
    QUEUED = "queued"
    RUNNING = "running"
    RETRY_WAIT = "retry_wait"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DEAD = "dead"
    CANCELLED = "cancelled"


TERMINAL = frozenset({TaskStatus.SUCCEEDED, TaskStatus.FAILED, TaskStatus.DEAD, TaskStatus.CANCELLED})
REDRIVABLE = frozenset({TaskStatus.FAILED, TaskStatus.DEAD, TaskStatus.CANCELLED})


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of the table: `source` None is a new task; `command` is the reason sent along."""

    source: TaskStatus | None
    target: TaskStatus
    by: str
    event: str
    command: str | None = None
    dead_letter: str | None = None


_WAITING, _QUEUED, _RUNNING, _RETRY_WAIT, _SUCCEEDED, _FAILED, _DEAD, _CANCELLED = TaskStatus

TRANSITIONS: tuple[Transition, ...] = (
    Transition(None, _QUEUED, "submit", "evt.task.queued", command="new_task"),
    Transition(None, _WAITING, "submit", "evt.task.waiting"),
    Transition(_WAITING, _QUEUED, "promote", "evt.task.queued", command="new_task"),
    Transition(_WAITING, _QUEUED, "follow", "evt.task.queued", command="needs_met"),
    Transition(_WAITING, _WAITING, "follow", "evt.task.waiting"),  # for its time, once its needs are met
    Transition(_WAITING, _CANCELLED, "follow", "evt.task.cancelled"),
    Transition(_CANCELLED, _WAITING, "follow", "evt.task.waiting"),  # a task that it needs was redriven
    Transition(_CANCELLED, _QUEUED, "follow", "evt.task.queued", command="needs_met"),
    Transition(_RUNNING, _WAITING, "suspend", "evt.task.waiting"),  # for a time, or for tasks
    Transition(_WAITING, _QUEUED, "signal", "evt.task.queued", command="signaled"),
    Transition(_WAITING, _WAITING, "signal", "evt.task.waiting"),  # for room in its limits
    Transition(_WAITING, _WAITING, "promote", "evt.task.waiting"),  # for room in its limits, once it is due
    Transition(_RETRY_WAIT, _WAITING, "promote", "evt.task.waiting"),
    Transition(_WAITING, _QUEUED, "admit", "evt.task.queued", command="admitted"),
    Transition(_QUEUED, _RUNNING, "claim", "evt.task.claimed"),
    Transition(_RETRY_WAIT, _RUNNING, "claim", "evt.task.claimed"),
    Transition(_RUNNING, _SUCCEEDED, "finish", "evt.task.completed"),
    Transition(_RUNNING, _RETRY_WAIT, "finish", "evt.task.retry_scheduled"),
    Transition(_RUNNING, _RETRY_WAIT, "snooze", "evt.task.snoozed"),
    Transition(_RETRY_WAIT, _QUEUED, "promote", "evt.task.queued", command="retry_due"),
    Transition(_RUNNING, _FAILED, "finish", "evt.task.failed", dead_letter="dlq.task.failed"),
    Transition(_RUNNING, _DEAD, "finish", "evt.task.dead", dead_letter="dlq.task.dead"),
    Transition(_RUNNING, _DEAD, "reap", "evt.task.dead", dead_letter="dlq.task.dead"),
    Transition(_RUNNING, _DEAD, "release", "evt.task.dead", dead_letter="dlq.task.dead"),
    Transition(_RUNNING, _QUEUED, "reap", "evt.task.lease_expired", command="lease_expired"),
    Transition(_RUNNING, _QUEUED, "release", "evt.task.released", command="released"),
    Transition(_QUEUED, _CANCELLED, "cancel", "evt.task.cancelled"),
    Transition(_RETRY_WAIT, _CANCELLED, "cancel", "evt.task.cancelled"),
    Transition(_WAITING, _CANCELLED, "cancel", "evt.task.cancelled"),
    Transition(_RUNNING, _CANCELLED, "finish", "evt.task.cancelled"),
    Transition(_RUNNING, _CANCELLED, "reap", "evt.task.cancelled"),
    Transition(_RUNNING, _CANCELLED, "release", "evt.task.cancelled"),
    Transition(_DEAD, _QUEUED, "redrive", "evt.task.queued", command="redriven"),
    Transition(_FAILED, _QUEUED, "redrive", "evt.task.queued", command="redriven"),
    Transition(_CANCELLED, _QUEUED, "redrive", "evt.task.queued", command="redriven"),
    Transition(_DEAD, _WAITING, "redrive", "evt.task.waiting"),  # for room in its limits
    Transition(_FAILED, _WAITING, "redrive", "evt.task.waiting"),
    Transition(_CANCELLED, _WAITING, "redrive", "evt.task.waiting"),
    Transition(_QUEUED, _WAITING, "pause", "evt.task.waiting"),
    Transition(_RETRY_WAIT, _WAITING, "pause", "evt.task.waiting"),
    Transition(_WAITING, _WAITING, "pause", "evt.task.waiting"),
    Transition(_WAITING, _WAITING, "resume", "evt.task.waiting"),  # for its time, for tasks, for room
    Transition(_WAITING, _QUEUED, "resume", "evt.task.queued", command="resumed"),
    Transition(_DEAD, _WAITING, "operation", "evt.task.waiting"),  # a redrive of a task that needs others
    Transition(_FAILED, _WAITING, "operation", "evt.task.waiting"),
    Transition(_CANCELLED, _WAITING, "operation", "evt.task.waiting"),
)

# The letter of a status in the column `was` of the event log: the status before the event.
LETTERS = {status: status.value[0] for status in TaskStatus} | {TaskStatus.RETRY_WAIT: "t"}

# The status after each event: replaying the events of a task gives its status.
STATUS_AFTER: dict[str, TaskStatus] = {row.event: row.target for row in TRANSITIONS}

_BY_LETTER = {letter: status for status, letter in LETTERS.items()}


def statuses_of(kind: str, was: str | None) -> tuple[TaskStatus | None, TaskStatus | None]:
    """Return the statuses of a task before and after an event; None each if it is no transition.

    `was` is the letter in the log; it has none for the first event of a task.
    """
    after = STATUS_AFTER.get(kind)
    return (None if after is None else _BY_LETTER.get(was or "")), after


@dataclass(frozen=True, slots=True)
class Task:
    """One task as Postgres has it. Timestamps are aware, in UTC, of the database's clock.

    `attempt` is the number of the latest attempt and only grows. `uncounted_attempts` is how many of them do
    not count: those before the latest redrive, and those released at a shutdown. `max_attempts` bounds the
    difference. It is None before the first claim if only the handler sets it. `waits_for` is `time`, `tasks`,
    `signal`, `limit` or `pause` while the status is `waiting`; `limits` are the limits that it falls under,
    each with its key, as `tenant:acme`. `progress_percent`, `current_step`, `estimated_completion_at` and
    `is_overdue` are of the latest attempt; `checkpoint_data` is the latest one of any attempt. Only
    `target_agent` may run it, or only agents that have all `required_capabilities`; None: any worker.
    `title`, `description`, `tags`, `metadata` and `created_by` are what people say of it. `backoff` has
    delays between its attempts that go before those of its handler.
    """

    id: str
    workspace: str
    task_type: str
    agent_type: str
    priority: int
    status: TaskStatus
    attempt: int
    max_attempts: int | None
    uncounted_attempts: int
    version: int
    trace_id: str
    created_at: datetime
    updated_at: datetime
    payload: dict[str, Any] = field(default_factory=dict)
    result: Any = None
    result_ref: str | None = None
    owner_agent_id: str | None = None
    lease_until: datetime | None = None
    next_attempt_at: datetime | None = None
    last_error: dict[str, Any] | None = None
    fingerprint: str | None = None
    idempotency_key: str | None = None
    causation_id: UUID | None = None
    cancel_requested_at: datetime | None = None
    queued_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    discarded_at: datetime | None = None
    discarded_by: str | None = None
    operation_id: int | None = None
    waits_for: str | None = None
    limits: list[str] | None = None
    target_agent: str | None = None
    required_capabilities: list[str] | None = None
    title: str | None = None
    description: str | None = None
    tags: list[str] = field(default_factory=list)
    metadata: dict[str, Any] | None = None
    backoff: dict[str, Any] | None = None
    created_by: str | None = None
    progress_percent: float | None = None
    current_step: str | None = None
    checkpoint_data: Any = None
    estimated_completion_at: datetime | None = None
    is_overdue: bool = False

    @property
    def is_terminal(self) -> bool:
        """Whether the task has ended. A redrive can run it again."""
        return self.status in TERMINAL


_DIGITS = "0123456789abcdefghijklmnopqrstuv"
_PAIRS = [high + low for high in _DIGITS for low in _DIGITS]  # two digits at a time
_40_BITS = 2**40 - 1
_make, _set, _UNKNOWN = object.__new__, object.__setattr__, SafeUUID.unknown
_UUID_MASK = ~((0xF << 76) | (0x3 << 62))
_UUID_VERSION_4 = (0x4 << 76) | (0x2 << 62)
_BLOCK_BYTES = 4096
_numbers: list[int] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_numbers.clear)


def new_id(milliseconds: int, randomness: bytes) -> str:
    """Return a task id: `gr-` and 26 base32 characters that sort by time, then 80 random bits.

    The time only keeps ids of one moment together in the index.
    """
    # 130 bits in parts of 50, 40 and 40: Python is slower with numbers of more than two of its digits.
    value = int.from_bytes(randomness[:10], "big")
    time = (milliseconds & (2**48 - 1)) << 2 | value >> 78
    high, low = value >> 38 & _40_BITS, value << 2 & _40_BITS
    return (
        f"gr-{_PAIRS[time >> 40]}{_PAIRS[time >> 30 & 1023]}{_PAIRS[time >> 20 & 1023]}"
        f"{_PAIRS[time >> 10 & 1023]}{_PAIRS[time & 1023]}"
        f"{_PAIRS[high >> 30]}{_PAIRS[high >> 20 & 1023]}{_PAIRS[high >> 10 & 1023]}{_PAIRS[high & 1023]}"
        f"{_PAIRS[low >> 30]}{_PAIRS[low >> 20 & 1023]}{_PAIRS[low >> 10 & 1023]}{_PAIRS[low & 1023]}"
    )


def next_id(task_id: str) -> str:
    """Return the id that sorts directly after another one: ids of one millisecond are in any order."""
    number = (int(task_id[3:], 32) >> 2) + 1
    return new_id(number >> 80, (number & (2**80 - 1)).to_bytes(10, "big"))


def random_uuid() -> UUID:
    """Return a version 4 UUID from the randomness of the operating system: it cannot be predicted.

    Lease ids are secret and event ids public, and both come from here. Randomness is read 256 numbers at a
    time. Safe in threads (`list.pop` is atomic) and after a fork (the child discards the numbers).
    """
    try:
        number = _numbers.pop()
    except IndexError:
        block = os.urandom(_BLOCK_BYTES)
        _numbers.extend(
            int.from_bytes(block[start : start + 16], "big") for start in range(16, _BLOCK_BYTES, 16)
        )
        number = int.from_bytes(block[:16], "big")
    return uuid_of(number & _UUID_MASK | _UUID_VERSION_4)


def command_id(event_id: UUID) -> UUID:
    """Return the id of the command that the relay publishes with an event that queues a task.

    It is the event's, with the first of its last 32 bits inverted. A worker that has claimed the task before
    its command came knows the command by it.
    """
    return uuid_of(event_id.int ^ 1 << 31)


def uuid_of(number: int) -> UUID:
    """Return the UUID of a number of 128 bits, without its constructor: that takes three times as long."""
    uuid = _make(UUID)
    _set(uuid, "int", number)
    _set(uuid, "is_safe", _UNKNOWN)
    return uuid
