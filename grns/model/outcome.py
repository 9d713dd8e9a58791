"""The outcome of an attempt, as a value: the decision is separate from the write."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from uuid import UUID

from grns.model.subjects import DEFAULT_WORKSPACE

if TYPE_CHECKING:
    from grns.model.secret import Scrubber


class Verb(StrEnum):
    """The requested transition; the row decides the result (attempts left, cancellation)."""

    SUCCEED = "succeed"
    FAIL = "fail"
    RETRY = "retry"
    SNOOZE = "snooze"
    SUSPEND = "suspend"
    CANCEL = "cancel"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class Suspension:
    """What a handler waits for in a step.

    A time, or for so many seconds at most until `required` of some tasks have ended, or a signal comes, which
    may be the answer to a `question` (JSON).
    """

    step: str
    seconds: float | None = None
    needed: tuple[str, ...] | None = None
    required: int | None = None
    signal: str | None = None
    question: str | None = None


@dataclass(slots=True)  # created for each task: frozen ones take five times as long
class Outcome:
    """How an attempt ended. `result` and `error` are JSON text; retries and snoozes have a backoff.

    `is_usual`: the backoff is that of the handler, so one that the task has goes before it.
    """

    verb: Verb
    result: str | None = None
    error: str | None = None
    error_class: str | None = None
    fingerprint: str | None = None
    backoff_seconds: float = 0.0
    is_usual: bool = False
    suspension: Suspension | None = None


@dataclass(slots=True)  # created for each task: frozen ones take five times as long
class Claim:
    """One claimed attempt: its fence, and what its handler needs.

    `id`, `workspace`, `attempt` and `lease_id` together are the fence: nothing is written without all
    four. `expires_at` is on the local monotonic clock, counted from before the request
    was sent, hence never later than the database's `lease_until`.
    """

    id: str
    task_type: str
    priority: int
    payload: str
    attempt: int
    attempt_limit: int
    uncounted_attempts: int
    lease_id: UUID
    trace_id: str
    causation_id: UUID | None
    queued_seconds: float
    expires_at: float
    workspace: str = DEFAULT_WORKSPACE
    # Removes the secrets of the payload from what is said of the attempt; None where it has none.
    scrubber: Scrubber | None = field(default=None, repr=False, compare=False)

    def scrubbed(self, value: Any) -> Any:
        """Return a text or a JSON value with `•••` in place of each secret of the payload."""
        return value if self.scrubber is None else self.scrubber.value(value)

    @property
    def counted_attempts(self) -> int:
        """Number of attempts that count, with this one."""
        return self.attempt - self.uncounted_attempts


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """Why a task could not be claimed: `lost_race`, `not_due`, `terminal`, `no_handler`, `unknown_task`,
    `other_workspace`, `other_agent_type`, `routed`, `paused`, `locked`, `agent_full`, `stopping`."""

    id: str
    reason: str
    task_type: str | None = field(default=None, compare=False)


@dataclass(slots=True)  # created for each task: frozen ones take five times as long
class Finished:
    """The new status of the task; `lost` if the attempt did not own it any more."""

    status: str
    total_seconds: float | None = None

    @property
    def is_lost(self) -> bool:
        """Whether nothing was written."""
        return self.status == "lost"
