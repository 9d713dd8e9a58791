"""The tasks that the table is filled with: who they are, what became of each, and how long that took."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import orjson

from grns.model.failure import failed
from grns.model.task import TaskStatus, new_id
from tests.bench.interfaces.size import Sizes

OURS, THEIRS = "default", "acme"
# Beside the workspace that is asked for there is another one, whose tasks lie between its own.
_THEIR_SHARE = 0.1
# Task types, each with its pool, and how common they are.
KINDS: Sequence[tuple[str, str, int]] = (
    ("fetch_page", "crawler", 40), ("parse_page", "parser", 25), ("send_mail", "mailer", 15),
    ("resize_image", "imager", 8), ("charge_card", "billing", 5), ("build_report", "reporter", 5),
    ("sync_crm", "connector", 2),
)  # fmt: skip
AGENTS_OF_A_POOL = 8
_CLASSES = (
    "TimeoutError", "ConnectionError", "ValueError", "KeyError", "HTTPStatusError", "PermissionError",
    "MemoryError", "JSONDecodeError",
)  # fmt: skip
_WORDS = ("{} refused the request {} after {} s", "no answer from {} for request {}", "{} sent row {} twice",
          "cannot read field of {} in row {}")  # fmt: skip
_DAYS = 20
_SLICES_OF_A_DAY = 2
# In its last tenth a slice begins nothing: all that began in it ends in it, and the log is in order of time.
_LULL = 0.1
_BACKLOG_SECONDS = 3 * 3600.0
_PRIORITIES = (0, 1, 2, 2, 2, 2, 3)
COLUMNS = (
    "id", "workspace", "task_type", "agent_type", "priority", "fate", "created_at", "trace_id",
    "attempts", "wait_ms", "run_ms", "backoff_ms", "failure", "number", "agent_id", "until", "key",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Failure:
    """What a task fails with. In its message stands `#`, where each has its own number."""

    number: int
    kind: int
    error_class: str
    message: str
    frames: Sequence[str]
    fingerprint: str

    @property
    def row(self) -> tuple[Any, ...]:
        """It as its table has it."""
        return (
            self.number,
            self.error_class,
            self.message,
            orjson.dumps(self.frames).decode(),
            self.fingerprint,
        )


def failures(count: int) -> list[Failure]:
    """Return so many failures, each with the fingerprint that the product gives it."""
    return [_failure(number) for number in range(count)]


def _failure(number: int) -> Failure:
    kind = number % len(KINDS)
    error_class = _CLASSES[number // len(KINDS) % len(_CLASSES)]
    service = "".join(chr(ord("a") + digit) for digit in (number // 26 % 26, number % 26)) + "-service"
    message = _WORDS[number % len(_WORDS)].format(service, "#", "#")
    frames = [f"/srv/agents/{KINDS[kind][0]}.py:{10 + number % 90} in run", "/srv/agents/base.py:41 in call"]
    outcome = failed(
        KINDS[kind][0], error_class, message.replace("#", "1"), is_final=False, backoff_seconds=0.0,
        lines=frames, places=frames,
    )  # fmt: skip
    assert outcome.fingerprint is not None
    return Failure(number, kind, error_class, message, frames, outcome.fingerprint)


def agent_of(workspace: str, agent_type: str, number: int) -> str:
    """Return the id of one of a pool's workers."""
    return f"{agent_type}-{workspace}-{number % AGENTS_OF_A_POOL:02}"


class Lives:
    """All tasks, slice by slice of time, as rows of `COLUMNS`. The same seed makes the same ones."""

    def __init__(self, sizes: Sizes, now: datetime, *, seed: int = 1) -> None:
        self._sizes = sizes
        self._now = now
        self._dice = random.Random(seed)
        self.failures = failures(sizes.failures)
        # The first are the most common: as 1, 1/2, 1/3 …
        self._weights = [1 / (place + 1) for place in range(len(self.failures))]
        self._serial = 0

    @property
    def slices(self) -> int:
        """How many slices there are."""
        return _DAYS * _SLICES_OF_A_DAY

    def slice(self, number: int) -> list[tuple[Any, ...]]:
        """Return the tasks that were created in one slice of time; the last one ends now."""
        length = timedelta(hours=24 / _SLICES_OF_A_DAY)
        begin = self._now - (self.slices - number) * length
        is_last = number == self.slices - 1
        rows = [
            self._row(fate, workspace, begin + length * self._dice.random() * (1 - _LULL))
            for fate, workspace in self._ended(number)
        ]
        return rows + (list(self._open()) if is_last else [])

    def _ended(self, number: int) -> Iterator[tuple[str, str]]:
        sizes = self._sizes
        counts = {
            TaskStatus.DEAD: sizes.dead, TaskStatus.FAILED: sizes.failed,
            TaskStatus.CANCELLED: sizes.cancelled,
        }  # fmt: skip
        still_open = sizes.queued + sizes.retrying + sizes.running + sizes.waiting
        counts[TaskStatus.SUCCEEDED] = sizes.rows - still_open - sum(counts.values())
        for status, count in counts.items():
            for _ in range(count * (number + 1) // self.slices - count * number // self.slices):
                # All that are to be redriven are of one workspace.
                is_ours = status is TaskStatus.DEAD or self._dice.random() > _THEIR_SHARE
                yield status.value, OURS if is_ours else THEIRS

    def _open(self) -> Iterator[tuple[Any, ...]]:
        sizes = self._sizes
        counts = {
            TaskStatus.QUEUED: sizes.queued, TaskStatus.RETRY_WAIT: sizes.retrying,
            TaskStatus.RUNNING: sizes.running, TaskStatus.WAITING: sizes.waiting,
        }  # fmt: skip
        for status, count in counts.items():
            for _ in range(count):
                workspace = THEIRS if self._dice.random() < _THEIR_SHARE else OURS
                # An hour is longer than two attempts and the pause between them.
                ago = self._dice.random() * _BACKLOG_SECONDS + (0 if status is TaskStatus.QUEUED else 3600)
                yield self._row(status.value, workspace, self._now - timedelta(seconds=ago))

    def _row(self, fate: str, workspace: str, created_at: datetime) -> tuple[Any, ...]:
        dice = self._dice
        self._serial += 1
        attempts = self._attempts(fate)
        has_failed = attempts > 1 or fate in (TaskStatus.DEAD, TaskStatus.FAILED, TaskStatus.RETRY_WAIT)
        failure = dice.choices(self.failures, self._weights)[0] if has_failed else None
        kinds = range(len(KINDS))
        kind = failure.kind if failure else dice.choices(kinds, [weight for _, _, weight in KINDS])[0]
        task_type, agent_type, _ = KINDS[kind]
        # What is due comes after the bench.
        until = self._now + timedelta(hours=24 + 24 * dice.random())
        return (
            new_id(int(created_at.timestamp() * 1000), dice.randbytes(10)), workspace, task_type,
            agent_type, dice.choice(_PRIORITIES), fate, created_at, dice.randbytes(16).hex(), attempts,
            int(dice.expovariate(1 / 5000)) % 60_000, int(dice.expovariate(1 / 2000)) % 30_000 + 1,
            int(dice.uniform(1000, 60_000)), None if failure is None else failure.number, self._serial,
            agent_of(workspace, agent_type, self._serial), until,
            f"order-{self._serial}" if self._serial % 5 == 0 else None,
        )  # fmt: skip

    def _attempts(self, fate: str) -> int:
        if fate in (TaskStatus.QUEUED, TaskStatus.WAITING, TaskStatus.CANCELLED):
            return 0
        if fate == TaskStatus.DEAD:
            return 3
        if fate == TaskStatus.RETRY_WAIT:
            return self._dice.choice((1, 1, 2))
        if fate == TaskStatus.FAILED:
            return 1
        return self._dice.choices((1, 2, 3), (94, 5, 1))[0]
