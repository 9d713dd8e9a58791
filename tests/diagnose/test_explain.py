"""Why a task is where it is: a word, a sentence and what helps, for each thing that there can be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from grns.diagnose.explain.explanation import Explanation, explain
from grns.diagnose.explain.snapshot import (
    Ahead,
    IssueSeen,
    Owner,
    PauseSeen,
    PoolWorkers,
    RowLock,
    SubjectSeen,
    TaskSnapshot,
)
from grns.model.daemon_status import DaemonStatus
from grns.model.task import TERMINAL, Task, TaskStatus

NOW = datetime(2026, 2, 6, 12, 0, 0, tzinfo=UTC)
ERROR = {"class": "TimeoutError", "message": "no answer\nin time", "traceback": "…"}
IDLE = PoolWorkers(workers=2, serving=2, slots=20, running=5, task_types=("fetch",))
BUSY = replace(IDLE, running=20)
OWNER = Owner("worker-1", "desk", 7, "0.1.0", 15.0, 2.0)
ISSUE = IssueSeen("0f0f", "acknowledged", 5, 12, NOW - timedelta(days=2), "ann", "the proxy")
PAUSE = PauseSeen(None, "cli:ann@desk", NOW - timedelta(minutes=3), "deploy", None)


def ago(seconds: float) -> datetime:
    """Return a time before now; with less than nothing, after it."""
    return NOW - timedelta(seconds=seconds)


def task(status: TaskStatus, **fields: Any) -> Task:
    """Return a task that is somewhere."""
    made = Task(
        id="gr-1", workspace="default", task_type="fetch", agent_type="worker", priority=2, status=status,
        attempt=0, max_attempts=None, uncounted_attempts=0, version=1, trace_id="t", created_at=ago(900),
        updated_at=ago(60),
    )  # fmt: skip
    return replace(made, **fields)


def seen(status: TaskStatus, *, around: Mapping[str, Any] | None = None, **fields: Any) -> TaskSnapshot:
    """Return a situation: a task, and what is around it."""
    return TaskSnapshot(**{"now": NOW, "task": task(status, **fields), "stats": IDLE, **(around or {})})


def queued(seconds: float = 10.0, **around: Any) -> TaskSnapshot:
    """Return a queued task and what is around it; its lane is as it should be."""
    around = {"subject": SubjectSeen(fetching=2), **around}
    return seen(TaskStatus.QUEUED, queued_at=ago(seconds), around=around)


def running(*, left: float = 10.0, around: Mapping[str, Any] | None = None, **fields: Any) -> TaskSnapshot:
    """Return a task that runs, with so much of its lease left."""
    return seen(
        TaskStatus.RUNNING,
        owner_agent_id="worker-1", attempt=2, version=4, started_at=ago(12), lease_until=ago(-left),
        around={"owner": OWNER, "attempt_limit": 3, **(around or {})}, **fields,
    )  # fmt: skip


COMMAND = {"kind": "cmd.task.execute", "version": 3, "seq": 1, "attempt": 1, "actor": None, "payload": {}}
COMMANDS = [{**COMMAND, "created_at": NOW, "has_command": True}] * 3


# What was read; the word and all that hold beside it; what a claim would be told; and what the sentence says.
TABLE: dict[str, tuple[TaskSnapshot, list[str], str, str]] = {
    "a delay": (
        seen(TaskStatus.WAITING, next_attempt_at=ago(-90)),
        ["not_due"],
        "not_due",
        "waiting until 12:01:30Z, for 1 min 30 s more",
    ),
    "a delay of days": (
        seen(TaskStatus.WAITING, next_attempt_at=ago(-86_400)),
        ["not_due"],
        "not_due",
        "waiting until 2026-02-07 12:00:00Z, for 24 h more",
    ),
    "a delay, and nobody who would take it then": (
        seen(TaskStatus.WAITING, next_attempt_at=ago(-90), around={"stats": PoolWorkers()}),
        ["not_due", "no_worker"],
        "not_due",
        "for 1 min 30 s more",
    ),
    "due just now": (
        seen(TaskStatus.WAITING, next_attempt_at=ago(1)),
        ["due"],
        "not_due",
        "1 s ago; the retry scheduler is about to queue it",
    ),
    "due for long": (
        seen(TaskStatus.WAITING, next_attempt_at=ago(40)),
        ["overdue"],
        "not_due",
        "no retry scheduler has queued it",
    ),
    "a retry": (
        seen(
            TaskStatus.RETRY_WAIT,
            next_attempt_at=ago(-5),
            attempt=2,
            last_error=ERROR,
            around={"attempt_limit": 5},
        ),
        ["retry_wait"],
        "not_due",
        "waiting for its retry, attempt 3 of 5, at 12:00:05Z, in 5 s, after TimeoutError: no answer",
    ),
    "a retry of one that was redriven": (
        seen(
            TaskStatus.RETRY_WAIT,
            next_attempt_at=ago(-5),
            attempt=4,
            uncounted_attempts=3,
            around={"attempt_limit": 3},
        ),
        ["retry_wait"],
        "not_due",
        "attempt 2 of 3",
    ),
    "a retry that is overdue": (
        seen(TaskStatus.RETRY_WAIT, next_attempt_at=ago(60), attempt=1, last_error=ERROR),
        ["overdue"],
        "claimable",
        "due at 11:59:00Z, 60 s ago, and no retry scheduler",
    ),
    "a paused pool": (
        queued(pauses=[PAUSE]),
        ["paused"],
        "paused",
        "queued for 10 s: the pool worker was paused by cli:ann@desk at 11:57:00Z, with no end time (deploy)",
    ),
    "a paused task type": (
        queued(pauses=[replace(PAUSE, task_type="fetch", left_seconds=60.0, reason=None)]),
        ["paused"],
        "paused",
        "fetch of the pool worker was paused by cli:ann@desk at 11:57:00Z, for 60 s more",
    ),
    "paused, and nobody there": (
        queued(pauses=[PAUSE], stats=PoolWorkers()),
        ["paused", "no_worker"],
        "paused",
        "was paused",
    ),
    "nobody there": (
        queued(stats=PoolWorkers()),
        ["no_worker"],
        "claimable",
        "the pool worker has no live worker: none was started",
    ),
    "nobody there any more": (
        queued(stats=PoolWorkers(silent_workers=1, silent_seconds=200.0)),
        ["no_worker"],
        "claimable",
        "1 worker stopped sending heartbeats, the last one 3 min 20 s ago",
    ),
    "nobody who can": (
        queued(stats=PoolWorkers(workers=1, task_types=("a", "b"))),
        ["no_handler"],
        "no_handler",
        "no worker of the pool worker has a handler for fetch (1 live; they have a, b): the task waits",
    ),
    "nobody who can, and a type spelled nearly so": (
        queued(stats=PoolWorkers(workers=1, task_types=("ftech", "b"))),
        ["no_handler"],
        "no_handler",
        "(1 live; they have ftech, b), did you mean ftech?",
    ),
    "a lock": (
        queued(lock=RowLock(99, 40.0, "psql")),
        ["locked"],
        "locked",
        "another transaction, open for 40 s, locks its row (process 99 of Postgres, psql)",
    ),
    "a lock of a moment": (
        queued(lock=RowLock(99, 0.2, "grns")),
        ["on_its_way"],
        "claimable",
        "is being delivered",
    ),
    "a long queue": (
        queued(stats=BUSY, ahead=Ahead(1000, has_more=True)),
        ["backlog"],
        "claimable",
        "all 20 slots of 2 workers with its handler are taken, and 1,000+ tasks of the pool run first",
    ),
    "the end of a queue": (queued(stats=BUSY), ["backlog"], "claimable", "taken, and it is the next"),
    "no relay": (
        queued(pulse=DaemonStatus(is_published=False, relay_has_leader=False, lag_seconds=9.0)),
        ["not_published"],
        "claimable",
        "the oldest unpublished event is 9 s old, and no relay is running",
    ),
    "a slow relay": (
        queued(pulse=DaemonStatus(is_published=False, lag_seconds=9.0)),
        ["not_published"],
        "claimable",
        "a relay is running",
    ),
    "a relay that is about to": (
        queued(0.1, pulse=DaemonStatus(is_published=False, lag_seconds=0.1)),
        ["on_its_way"],
        "claimable",
        "is being delivered",
    ),
    "no broker": (
        queued(subject=None, trouble="the broker is away"),
        ["broker_away"],
        "claimable",
        "the broker did not answer (the broker is away)",
    ),
    "no broker, room, and nobody takes it": (
        queued(300.0, subject=None, trouble="away"),
        ["broker_away", "undelivered"],
        "claimable",
        "the broker did not answer (away)",
    ),
    "a paused subject": (
        queued(subject=SubjectSeen(pending=3, fetching=2, paused_seconds=30.0)),
        ["subject_paused"],
        "claimable",
        "the durable consumer of its subject cmd.task.execute.v1.default.worker.p2 is paused for 30 s",
    ),
    "a subject that is paused with its pool": (
        queued(pauses=[PAUSE], subject=SubjectSeen(fetching=2, paused_seconds=30.0)),
        ["paused"],
        "paused",
        "paused",
    ),
    "a subject without a durable consumer": (
        queued(subject=SubjectSeen(exists=False)),
        ["not_fetched"],
        "claimable",
        "p2 has no durable consumer",
    ),
    "a subject without clients": (
        queued(subject=SubjectSeen(pending=3)),
        ["not_fetched"],
        "claimable",
        "has a durable consumer without clients",
    ),
    "just queued": (
        queued(0.2),
        ["on_its_way"],
        "claimable",
        "queued for 200 ms: 15 of 20 slots with its handler are free, and its command is being delivered",
    ),
    "room, and nobody takes it": (queued(300.0), ["undelivered"], "claimable", "no worker has claimed it"),
    "a run": (
        running(),
        ["running"],
        "lost_race",
        "running: worker-1 (desk, process 7, grns 0.1.0) has been running attempt 2 of 3 for 12 s; its"
        " lease lasts 10 s more",
    ),
    "a run that reports": (
        running(progress_percent=40.0, current_step="page 3", is_overdue=True),
        ["running"],
        "lost_race",
        "has been running attempt 2 of 3 for 12 s (40 %, page 3), longer than expected; its lease",
    ),
    "a run of somebody unknown": (
        running(around={"owner": None, "attempt_limit": None}),
        ["running"],
        "lost_race",
        "running: worker-1 has been running attempt 2 for 12 s",
    ),
    "a run whose end was asked for": (
        running(cancel_requested_at=ago(3), around={"cancel_actor": "key:7f", "cancel_reason": "not needed"}),
        ["cancelling"],
        "lost_race",
        "cancellation was requested by key:7f 3 s ago (not needed)",
    ),
    "a lease that is over": (
        running(left=-1.0, around={"pulse": DaemonStatus(reaped_seconds_ago=0.5)}),
        ["lease_over"],
        "lost_race",
        "its lease expired 1 s ago: a reaper is about to put it back",
    ),
    "a lease that is over, after an outage": (
        running(left=-1.0, around={"pulse": DaemonStatus(reaper_holds_seconds=9.0)}),
        ["lease_over"],
        "lost_race",
        "in which live workers renew first, lasts 9 s more",
    ),
    "a lease that is over, and no reaper": (
        running(left=-60.0, around={"pulse": DaemonStatus(reaped_seconds_ago=90.0, is_reaper_late=True)}),
        ["unreaped"],
        "lost_race",
        "no reaper has put it back (the last run was 1 min 30 s ago)",
    ),
    "a lease that is over, and never a reaper": (
        running(left=-60.0, around={"pulse": DaemonStatus(reaped_seconds_ago=None, is_reaper_late=True)}),
        ["unreaped"],
        "lost_race",
        "(none has ever run)",
    ),
    "a lease that is over, of one whose end was asked for": (
        running(left=-1.0, cancel_requested_at=ago(3)),
        ["lease_over", "cancelling"],
        "lost_race",
        "expired",
    ),
    "a silent worker": (
        running(around={"owner": replace(OWNER, silent_seconds=20.0)}),
        ["running", "owner_silent"],
        "lost_race",
        "10 s more",
    ),
    "a worker that has ended": (
        running(around={"owner": replace(OWNER, has_stopped=True)}),
        ["running", "owner_silent"],
        "lost_race",
        "",
    ),
    "a race": (
        running(around={"history": COMMANDS}),
        ["running", "lost_race"],
        "lost_race",
        "",
    ),
    "no race": (running(around={"history": COMMANDS[:1]}), ["running"], "lost_race", ""),
    "success": (
        seen(TaskStatus.SUCCEEDED, attempt=1, started_at=ago(20), finished_at=ago(15)),
        ["succeeded"],
        "terminal",
        "succeeded at 11:59:45Z, with attempt 1, which took 5 s",
    ),
    "death": (
        seen(
            TaskStatus.DEAD,
            attempt=3,
            finished_at=ago(15),
            last_error=ERROR,
            around={"attempt_limit": 3, "issue": ISSUE},
        ),
        ["dead", "issue"],
        "terminal",
        "dead at 11:59:45Z, all 3 attempts used: TimeoutError: no answer",
    ),
    "death before its time": (
        seen(TaskStatus.DEAD, attempt=1, finished_at=ago(15), last_error=ERROR, around={"attempt_limit": 3}),
        ["dead"],
        "terminal",
        "1 of 3 attempts used",
    ),
    "failure": (
        seen(TaskStatus.FAILED, attempt=1, finished_at=ago(15), last_error=ERROR, around={"issue": ISSUE}),
        ["failed", "issue"],
        "terminal",
        "failed at 11:59:45Z with attempt 1, with an error that is not retried: TimeoutError: no answer",
    ),
    "what was set aside": (
        seen(TaskStatus.DEAD, attempt=1, finished_at=ago(15), discarded_at=ago(5), discarded_by="key:7f"),
        ["dead", "discarded"],
        "terminal",
        "dead",
    ),
    "a cancellation": (
        seen(
            TaskStatus.CANCELLED,
            finished_at=ago(15),
            around={"cancel_actor": "cli:ann@desk", "cancel_reason": "not needed"},
        ),
        ["cancelled"],
        "terminal",
        "cancelled at 11:59:45Z by cli:ann@desk (not needed)",
    ),
}


def told(situation: TaskSnapshot) -> Explanation:
    """Return what is said of a situation, which is in one piece."""
    found = explain(situation)
    assert (found.reason, found.sentence) == (found.reasons[0].word, found.reasons[0].sentence)
    for one in found.reasons:
        assert one.sentence.strip() == one.sentence
        assert "\n" not in one.sentence
        assert "None" not in one.sentence
    return found


@pytest.mark.parametrize("name", TABLE)
def test_each_reason_has_its_word_and_its_sentence(name: str) -> None:
    situation, words, claim, sentence = TABLE[name]
    found = told(situation)
    assert [one.word for one in found.reasons] == words
    assert sentence in found.sentence
    assert found.claim == claim


def test_the_table_has_every_status() -> None:
    assert {situation.task.status for situation, *_ in TABLE.values()} == set(TaskStatus)


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("a paused pool", ["grns pool resume worker"]),
        ("a paused task type", ["grns pool resume worker --type fetch"]),
        ("a delay", ["grns task edit gr-1 --delay 0s  (to run it now)"]),
        ("no relay", ["grns daemon relay"]),
        ("a retry that is overdue", ["grns daemon scheduler"]),
        ("a lease that is over, and no reaper", ["grns daemon reaper"]),
        (
            "death",
            [
                "grns task redrive gr-1  (once its cause is gone; restart workers whose code you fixed)",
                "grns task redrive gr-1 --patch JSON  (with another payload)",
                "grns issue show 0f0f",
                "grns issue redrive 0f0f  (all its tasks)",
            ],
        ),
        ("what was set aside", []),
        ("success", []),
        ("a run", []),
    ],
)
def test_what_helps_is_said(name: str, steps: list[str]) -> None:
    assert list(told(TABLE[name][0]).next_steps) == steps


def test_a_dead_task_is_one_of_an_issue() -> None:
    assert told(TABLE["death"][0]).reasons[1].sentence == (
        "its issue 0f0f is acknowledged, owned by ann: 4 other tasks dead or failed with it,"
        " seen 12 times since 2026-02-04 12:00:00Z (the proxy)"
    )


def test_how_many_have_lost_the_race() -> None:
    assert told(TABLE["a race"][0]).reasons[1].sentence.startswith("2 more commands named the task")


@pytest.mark.parametrize("status", TaskStatus)
def test_little_is_known_and_something_is_said(status: TaskStatus) -> None:
    """A row may be older than this version, and its neighbours may be gone."""
    found = told(TaskSnapshot(now=NOW, task=task(status)))
    assert found.sentence
    assert (found.claim == "terminal") == (status in TERMINAL)


def test_what_users_wrote_stays_one_short_line() -> None:
    error = {"class": "E" * 5000, "message": "a" * 5000 + "\n\x1b[31m"}
    found = told(seen(TaskStatus.DEAD, last_error=error, around={"cancel_reason": "x\ny"}))
    assert len(found.sentence) < 400
