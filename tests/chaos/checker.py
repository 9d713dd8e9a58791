"""What must be true after the storm, told from the journals and the tables alone."""

from __future__ import annotations

import json
import signal
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import asyncpg

from grns.model.task import STATUS_AFTER
from tests.chaos import journal
from tests.chaos.agents import Routed
from tests.chaos.content import Content
from tests.chaos.declared import undeclared
from tests.chaos.follow_ups import KEY as FOLLOW_UP_KEY
from tests.chaos.follow_ups import Followed
from tests.chaos.graphs import BY_NEEDS, Graphs
from tests.chaos.handed_in import HandedIn, read_handed_in
from tests.chaos.harm import OVER_HTTP, Harms
from tests.chaos.http_worker import POOL
from tests.chaos.limits import Limited
from tests.chaos.operator import PARKED
from tests.chaos.post import Mailed
from tests.chaos.schedules import KEY, Schedules
from tests.chaos.steps import Stepwise

VIOLATIONS = {
    "lost": "handed in, and not there",
    "invented": "there, and handed in by nobody (or refused), or not as it was handed in",
    "stuck": "not ended after all was well again",
    "double terminal": "ended more than once",
    "wrong outcome": "ended as its handler cannot have ended it",
    "early reap": "taken back before its lease had ended",
    "stale write": "written by an attempt that did not do the work, or did not own it",
    "effect": "a transaction's effects that are not there exactly once",
    "needs": "run before its needs were met, or ended against them, or needs not as their tasks have ended",
    "schedule": "a time that was due and not decided once, or whose task is not there once",
    "step": "a recorded step that ran again, or is missing, or a fan-out whose tasks are not there once",
    "content": "a file that a result refers to and that is lost or another attempt's, or a password in clear",
    "follow-up": "an end that is not followed once, by a task that tells of it",
    "mail": "lost, acknowledged unseen, or sent by an attempt that had lost its task",
    "agent": "run by an agent that it was not for, or beside more than its agent may have",
    "limit": "more of a key at once, or in a time, than its limits allow, or queued without its admitter",
    "attempts": "attempted more often than it may be",
    "unclaimed run": "run without a claim in the log",
    "missing event": "in the log, and not seen on the bus",
    "phantom event": "seen on the bus, and not in the log",
    "undeclared": "a field of an event that its schema does not have",
    "order": "a task's first copies out of their order",
    "miscounted": "counted otherwise than it is there",
    "unexplained duplicate": "run again though nobody who ran it was hit",
    "answer": "a cancel that was told otherwise than it came",
    "operation": "a bulk operation that moved otherwise than the log has it, or never ended",
    "undelivered": "told to no webhook, or told and not in the log, or with a wrong signature",
    "crash": "a process that ended as by a bug, or an error that is none of grns'",
}
_ENDS = {"evt.task.completed", "evt.task.failed", "evt.task.dead", "evt.task.cancelled"}
_REPEATED = "unexplained duplicate"
_CLAIMED, _RELEASED = "evt.task.claimed", "evt.task.released"
# A worker over HTTP counts its lease from when it asked: a claim that has waited for Postgres is given back.
_ASKED_SECONDS = 6.0
_GIVEN_BACK = ("no_slot", "postgres_unavailable", "deadline")
_QUEUED, _WAITING = "evt.task.queued", "evt.task.waiting"
_FAILURES = {"evt.task.retry_scheduled", "evt.task.failed", "evt.task.dead"}
_BOUND = {"doomed": 2}
_USUAL_BOUND = 8
# Exit codes of processes that ended as they should: by themselves, without their servers, by a signal.
_GOOD_ENDS = {0, 5, 130, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT}
_EVENTS = """
    select task_id, version, kind, attempt, message_id, extract(epoch from created_at)::float8 as at,
        payload ->> 'agent_id' as agent, payload ->> 'error_class' as error_class,
        extract(epoch from (payload ->> 'lease_until')::timestamptz)::float8 as lease_until,
        payload ->> 'reason' as reason, seq, payload ->> 'step' as step
    from grns.events where kind like 'evt.%' or kind like 'dlq.%' order by seq
"""
_OF_EVENT = (
    "version",
    "kind",
    "attempt",
    "at",
    "agent",
    "error_class",
    "lease_until",
    "reason",
    "seq",
    "step",
)
_COUNTS = """
    select task_type, status, sum(count)::int as count from grns.task_counts
    group by task_type, status having sum(count) <> 0
"""
_TASKS = """
    select id, task_type, status, attempt, uncounted_attempts, idempotency_key,
        payload ->> 'number' as number, payload ->> 'parent' as parent, result ->> 'number' as result_number,
        (result ->> 'attempt')::int as result_attempt, route,
        cancel_requested_at is not null as is_cancel_requested
    from grns.tasks
"""


@dataclass(slots=True)
class Event:
    """One row of the log that observers are told of."""

    version: int
    kind: str
    attempt: int | None
    at: float
    agent: str | None
    error_class: str | None = None
    lease_until: float | None = None
    reason: str | None = None
    seq: int = 0
    step: str | None = None

    @property
    def takes_away(self) -> bool:
        """Say whether it tells of an attempt that somebody else ended."""
        by_reaper = self.kind == "evt.task.dead" and self.error_class == "lease_expired"
        return by_reaper or self.kind in ("evt.task.lease_expired", _RELEASED)

    @property
    def is_early(self) -> bool:
        """Say whether it was taken back while its lease lasted; both times are the database's."""
        ended = self.lease_until if self.kind == "evt.task.lease_expired" else None
        return ended is not None and self.at < ended


@dataclass(slots=True)
class Run:
    """What one attempt's handler wrote down."""

    agent: str
    pid: int
    leases: set[str] = field(default_factory=set)
    words: list[str] = field(default_factory=list)


@dataclass
class Report:
    """What was checked, and what was found."""

    tasks: int = 0
    executions: int = 0
    repeated: Counter[str] = field(default_factory=Counter)
    events: int = 0
    excused: int = 0
    deliveries: int = 0
    needy: int = 0
    ticks: int = 0
    limited: int = 0
    stepwise: int = 0
    mail: int = 0
    files: int = 0
    followed: int = 0
    sealed: int = 0
    routed: int = 0
    operations: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    violations: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in VIOLATIONS})

    def found(self, what: str, detail: str) -> None:
        """Note one violation."""
        self.violations[what].append(detail)

    def add(self, other: Report) -> None:
        """Add what was found elsewhere."""
        self.tasks += other.tasks
        self.executions += other.executions
        self.events += other.events
        self.excused += other.excused
        self.repeated += other.repeated
        self.states += other.states
        for name, details in other.violations.items():
            self.violations[name] += details

    @property
    def is_clean(self) -> bool:
        """Say whether nothing was violated."""
        return not any(self.violations.values())

    def is_sound(self, may_repeat: int) -> bool:
        """Say whether nothing was violated, but that so many attempts were repeated without an explanation.

        A machine with other work explains such a one: a worker that is slow for seconds renews too late.
        """
        repeated = self.violations[_REPEATED]
        return len(repeated) <= may_repeat and not any(
            found for name, found in self.violations.items() if name != _REPEATED
        )


class Checker:
    """Holds journals and tables against each other."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.report = Report()
        self._tasks: dict[str, Mapping[str, Any]] = {}
        self._log: dict[str, list[Event]] = defaultdict(list)
        self._messages: dict[str, tuple[str | None, int, str, float]] = {}
        self._counts: dict[tuple[str, str], int] | None = None
        self._ledger: dict[str, list[int]] = defaultdict(list)
        self._runs: dict[tuple[str, int], Run] = {}
        self._handed_in = HandedIn()
        self._harms = Harms()
        self._agents: dict[str, int] = {}
        self.graphs = Graphs()
        self.schedules = Schedules()
        self.limited = Limited()
        self.stepwise = Stepwise()
        self.mailed = Mailed()
        self.content = Content()
        self.followed = Followed()
        self.routed = Routed()

    async def check(self, url: str) -> Report:
        """Read everything, and say what is wrong."""
        await self._read_tables(url)
        return self.judge()

    def take(
        self,
        tasks: Mapping[str, Mapping[str, Any]],
        log: Mapping[str, list[Event]],
        messages: Mapping[str, tuple[str | None, int, str, float]],
    ) -> None:
        """Take tables as they are told, where there are none to be read."""
        self._tasks.update(tasks)
        self._log.update(log)
        self._messages.update(messages)

    def judge(self) -> Report:
        """Hold the journals against the tables that have been read."""
        self._read_stage()
        self._read_runs()
        self._handed_in = read_handed_in(self._directory)
        self._check_submits()
        for task_id in self._tasks:
            self._check_task(task_id)
        self._check_runs()
        self._check_seen()
        self._check_counts()
        judged = {
            "needs": self.graphs.judge(self._tasks, self._log, self._handed_in.needs),
            "schedule": self.schedules.judge(self._tasks),
            "limit": self.limited.judge(self._tasks, self._log),
            "step": self.stepwise.judge(self._directory, self._tasks),
            "mail": self.mailed.judge(self._directory, self._log),
            "content": self.content.judge(),
            "follow-up": self.followed.judge(),
            "agent": self.routed.judge(self._directory, self._tasks, self._log),
        }
        for what, details in judged.items():
            for detail in details:
                self.report.found(what, detail)
        for place in sorted(self._directory.glob("scheduler-*.log")):
            for line in place.read_text().splitlines():
                if '"waits_repaired"' in line:
                    self.report.found("needs", f"the sweep had to repair: {line}")
        return self.report

    # ------------------------------------------------------------ reading

    async def _read_tables(self, url: str) -> None:
        connection = await asyncpg.connect(url)
        async with connection.transaction():
            async for row in connection.cursor(_TASKS, prefetch=5000):
                self._tasks[row["id"]] = dict(row)
            async for row in connection.cursor(_EVENTS, prefetch=5000):
                message_id, task_id = str(row["message_id"]), row["task_id"]
                self._messages[message_id] = (task_id, row["version"], row["kind"], row["at"])
                if task_id is not None and row["kind"] in STATUS_AFTER:
                    self._log[task_id].append(Event(*(row[name] for name in _OF_EVENT)))
            async for row in connection.cursor("select task_id, attempt from chaos_ledger", prefetch=5000):
                self._ledger[row["task_id"]].append(row["attempt"])
        await self.graphs.read(connection)
        await self.schedules.read(connection)
        await self.limited.read(connection)
        await self.stepwise.read(connection)
        await self.mailed.read(connection)
        await self.content.read(connection)
        await self.followed.read(connection)
        for detail in await undeclared(connection):
            self.report.found("undeclared", detail)
        counts = await connection.fetch(_COUNTS)
        self._counts = {(row["task_type"], row["status"]): row["count"] for row in counts}
        agents = await connection.fetch("select agent_id, agent_type, pid from grns.workers")
        self._agents = {
            row["agent_id"]: OVER_HTTP if row["agent_type"] == POOL else row["pid"] for row in agents
        }
        await connection.close()
        self.report.tasks = len(self._tasks)
        self.report.events = len(self._messages)
        self.report.needy = len(self.graphs.waits)
        self.report.ticks = self.schedules.decided
        self.report.mail = len(self.mailed.rows)
        self.report.files = len(self.content.files)
        self.report.followed = len(self.followed.rows)
        self.report.sealed = self.content.sealed
        self.report.routed = sum(bool(row["route"]) for row in self._tasks.values())
        self.report.limited = len(self.limited.keys)
        self.report.stepwise = len({task_id for task_id, _ in self.stepwise.attempts})
        self.report.states.update(row["status"] for row in self._tasks.values())

    def _read_stage(self) -> None:
        for note in journal.read(self._directory, "stage.jsonl"):
            self._harms.read(note)
            if note["what"] == "ended" and note["code"] not in _GOOD_ENDS:
                self.report.found("crash", f"{note['seat']} ended with {note['code']}")

    def _read_runs(self) -> None:
        for note in journal.read(self._directory, "effects-*.jsonl"):
            key = note["task"], note["attempt"]
            run = self._runs.setdefault(key, Run(note["agent"], note["pid"]))
            self._agents.setdefault(note["agent"], note["pid"])  # the janitor deletes rows of an hour ago
            run.leases.add(note["lease"])
            run.words.append(note["what"])
        self.report.executions = sum(run.words.count("begin") for run in self._runs.values())

    # ------------------------------------------------------------ checking

    def _check_submits(self) -> None:
        said, found = self._handed_in, self.report.found
        by_key = {row["idempotency_key"]: task_id for task_id, row in self._tasks.items()}
        for key, task_id in said.accepted:
            if by_key.get(key) != task_id:
                found("lost", f"{task_id} ({key})")
        for key, task_id in by_key.items():
            row = self._tasks[task_id]
            if (key or "").startswith((KEY, FOLLOW_UP_KEY)) or row.get("parent") is not None:
                continue
            if not said.open_tries[key]:
                found("invented", f"{task_id} ({key} was refused)")
            elif (is_now := (row["task_type"], row["number"], row.get("route", ""))) != said.wanted[key]:
                found("invented", f"{task_id} ({key}) is {is_now}, and was to be {said.wanted[key]}")
        for crash in said.crashes:
            found("crash", f"a submitter, of {crash}")

    def _check_task(self, task_id: str) -> None:
        row, events, found = self._tasks[task_id], self._log[task_id], self.report.found
        lives = _lives(events)
        ends = [[event for event in life if event.kind in _ENDS] for life in lives]
        if not all(ends):
            found("stuck", f"{task_id} is {row['status']} at attempt {row['attempt']}")
            return
        if any(len(found_ends) > 1 for found_ends in ends):
            found("double terminal", f"{task_id}: {[event.kind for life in ends for event in life]}")
        self._check_attempts(task_id, row, lives)
        end = ends[-1][-1]
        last = events[-1]
        if last is not end or STATUS_AFTER[last.kind] != row["status"]:
            found("wrong outcome", f"{task_id} is {row['status']}, and its last event is {last.kind}")
        self._check_outcome(task_id, row, end)
        self._check_answer(task_id, row["status"], [STATUS_AFTER[life[-1].kind] for life in ends])
        self._check_ended_runs(task_id, events)
        booked = self._ledger.get(task_id, [])
        wanted = [end.attempt] * (row["task_type"] == "ledger" and row["status"] == "succeeded")
        if booked != wanted:
            found("effect", f"{task_id} is {row['status']}, booked by the attempts {booked}")
        self._explain(task_id, events)

    def _check_attempts(self, task_id: str, row: Mapping[str, Any], lives: list[list[Event]]) -> None:
        """The row's numbers are the log's, and within their bounds; a redrive forgives all before it."""
        claims = uncounted_attempts = cut = 0
        is_over = False
        for life in lives:
            cut += self._cut_by_orders(task_id, life)
            spent = [e for e in life if e.kind == _RELEASED and not self._is_spared(task_id, e)]
            uncounted_attempts = claims + min(_bound(row), len(spent))
            uncounted_attempts += sum(self._is_spared(task_id, event) for event in life)
            claims += sum(event.kind == _CLAIMED for event in life)
            is_over = is_over or claims - uncounted_attempts - cut > _bound(row)
        is_counted = uncounted_attempts <= row["uncounted_attempts"] <= uncounted_attempts + cut
        if claims != row["attempt"] or not is_counted or is_over:
            detail = f"{task_id}: {row['attempt']} attempts, {row['uncounted_attempts']} uncounted_attempts;"
            self.report.found(
                "attempts", f"{detail} claimed {claims} times, {uncounted_attempts} to be uncounted_attempts"
            )

    def _cut_by_orders(self, task_id: str, life: list[Event]) -> int:
        """Count the attempts that may have been cut as their agent was told to stop: they do not count."""
        cut = 0
        for before, event in pairwise(life):
            if before.kind == _CLAIMED and event.kind in ("evt.task.lease_expired", "evt.task.cancelled"):
                pid = self._pid_of(before.agent)
                cut += self._harms.was_ordered(pid, before.at, event.at) and not self._is_spared(
                    task_id, event
                )
        return cut

    def _pid_of(self, agent: str | None) -> int:
        """Return the process of a worker; of one over HTTP also after the janitor has deleted its row."""
        return self._agents.get(agent or "", OVER_HTTP if _is_http(agent) else 0)

    def _is_spared(self, task_id: str, event: Event) -> bool:
        """Say whether it ends an attempt that does not count: it waits, or has recorded a step."""
        if event.kind == _WAITING:
            return event.step is not None
        is_repeated = event.kind in ("evt.task.retry_scheduled", "evt.task.lease_expired", _RELEASED)
        return is_repeated and (task_id, event.attempt) in self.stepwise.spared

    def _check_answer(self, task_id: str, status: str, ends: list[str]) -> None:
        """A cancel was told how the task ended, then or after a redrive."""
        answer = self._handed_in.answers.get(task_id, "requested")
        if answer not in ("requested", *ends):
            self.report.found("answer", f"{task_id} is {status}, and a cancel was told {answer}")

    def _check_outcome(self, task_id: str, row: Mapping[str, Any], end: Event) -> None:
        found, status = self.report.found, row["status"]
        is_parked = row["task_type"] == PARKED
        is_cancelled = status == "cancelled" and end.reason not in BY_NEEDS
        if is_parked is not is_cancelled and (is_parked or task_id not in self._handed_in.cancels):
            found("wrong outcome", f"{task_id} of type {row['task_type']} is {status}")
        if status == "failed" and row["task_type"] != "doomed":
            found("wrong outcome", f"{task_id} is failed, and is of type {row['task_type']}")
        if status == "dead" and row["attempt"] - row["uncounted_attempts"] < _bound(row):
            found(
                "wrong outcome",
                f"{task_id} is dead at attempt {row['attempt']}, {row['uncounted_attempts']} uncounted",
            )
        if status != "succeeded":
            return
        if row["task_type"] == "doomed":
            found("wrong outcome", f"{task_id} is succeeded, and was doomed")
        run = self._runs.get((task_id, end.attempt or 0))
        if run is None or ("end" not in run.words and row["task_type"] != "ledger"):
            found("stale write", f"{task_id}: attempt {end.attempt} completed it, and never came to its end")
        elif run.agent != end.agent:
            found("stale write", f"{task_id}: {end.agent} completed the attempt of {run.agent}")
        if (row["result_number"], row["result_attempt"]) != (row["number"], end.attempt):
            found("stale write", f"{task_id}: the result is another one's")

    def _check_ended_runs(self, task_id: str, events: list[Event]) -> None:
        """What failed was begun by the one who says so, and did not come to its end well."""
        claimed: Event | None = None
        for event in events:
            if event.kind == _CLAIMED:
                claimed = event
            if event.kind not in _FAILURES or event.takes_away:
                continue
            run = self._runs.get((task_id, event.attempt or 0))
            told = f"{task_id}: {event.kind} of attempt {event.attempt}"
            if run is None or claimed is None or event.agent not in (None, run.agent):
                self.report.found("stale write", f"{told}, told by another than ran it ({event.agent})")
            elif "end" in run.words:
                self.report.found("wrong outcome", f"{told}, which had come to its end")
            elif "failed" not in run.words and not self._harms.explain_failure(
                task_id, run.pid, claimed.at, event.at
            ):
                self.report.found("unexplained duplicate", f"{told}, and its handler did not fail")

    def _explain(self, task_id: str, events: list[Event]) -> None:
        """Each attempt that was taken away needs somebody who was hit between its claim and that."""
        claimed: Event | None = None
        for event in events:
            if event.kind == _CLAIMED:
                claimed = event
            elif event.takes_away and claimed is not None:
                self.report.repeated[event.kind.rpartition(".")[2]] += 1
                detail = f"{task_id}: attempt {claimed.attempt} of {claimed.agent}, {event.kind}"
                detail += f" ({event.reason})" if event.reason else ""
                if event.is_early:
                    self.report.found("early reap", detail)
                run = self._runs.get((task_id, claimed.attempt or 0))
                # Given back by its worker before the handler began: claimed ahead, or Postgres did not answer
                # a worker that got no CPU. Nothing runs twice, and the attempt does not count.
                if run is None and event.kind == _RELEASED and event.reason in _GIVEN_BACK:
                    self.report.repeated["released_before_they_began"] += 1
                    continue
                pid = run.pid if run is not None else self._pid_of(claimed.agent)
                until = min(event.at, event.lease_until or event.at)
                explains = self._harms.explain_loss
                if event.reason == "postgres_unavailable":  # a statement of its transaction was cut off
                    explains = self._harms.explain_failure
                asked = [claimed.at]
                if event.reason == "deadline" and _is_http(claimed.agent):
                    asked.append(claimed.at - _ASKED_SECONDS)
                if not any(explains(task_id, pid, at, until) for at in asked):
                    self.report.found("unexplained duplicate", detail)

    def _check_runs(self) -> None:
        claims = {
            (task_id, event.attempt): event.agent
            for task_id, events in self._log.items()
            for event in events
            if event.kind == _CLAIMED
        }
        for (task_id, attempt), run in self._runs.items():
            if claims.get((task_id, attempt)) != run.agent or len(run.leases) > 1:
                self.report.found("unclaimed run", f"{task_id}: attempt {attempt} by {run.agent}")
            if (times := run.words.count("begin")) > 1:
                detail = f"{task_id}: attempt {attempt} was begun {times} times"
                self.report.found("unexplained duplicate", detail)

    def _check_seen(self) -> None:
        missing = set(self._messages)
        newest: dict[tuple[str, str], int] = {}
        for note in self._seen():
            known = self._messages.get(note["id"])
            if known is None:
                self.report.found("phantom event", f"{note['kind']} of {note['task']}, {note['id']}")
                continue
            task_id, version, kind, at = known
            if (note["task"], note["version"], note["kind"]) != (task_id, version, kind):
                self.report.found(
                    "phantom event", f"{note['kind']} of {note['task']} as {note['id']}: {known}"
                )
                continue
            if note["id"] not in missing:
                continue
            missing.discard(note["id"])
            if task_id is None:
                continue
            key = task_id, note["stream"]
            if version < newest.get(key, 0):
                if self._harms.explain_order(note["stream"], at, note["at"]):
                    self.report.excused += 1
                else:
                    self.report.found("order", f"{task_id}: {kind} at version {version} after {newest[key]}")
            newest[key] = max(version, newest.get(key, 0))
        for message_id in missing:
            task_id, version, kind, _ = self._messages[message_id]
            self.report.found("missing event", f"{kind} of {task_id} at version {version}")

    def _check_counts(self) -> None:
        """The counts are those of the tasks, once all of the log is counted."""
        if self._counts is None:
            return
        there = Counter((row["task_type"], row["status"]) for row in self._tasks.values())
        for kind in sorted(there.keys() | self._counts.keys()):
            if there[kind] != self._counts.get(kind, 0):
                detail = f"{kind}: {there[kind]} are there, and {self._counts.get(kind, 0)} were counted"
                self.report.found("miscounted", detail)

    def _seen(self) -> Iterator[dict[str, Any]]:
        return (note for note in journal.read(self._directory, "seen-*.jsonl") if note["what"] == "seen")


def _lives(events: list[Event]) -> list[list[Event]]:
    """Return a task's events between redrives, its own or of those that it needs."""
    lives: list[list[Event]] = [[]]
    for event in events:
        before = lives[-1][-1] if lives[-1] else None
        is_back = before is not None and before.kind in _ENDS and before.reason in BY_NEEDS
        if event.kind in (_QUEUED, _WAITING) and (event.reason == "redriven" or is_back):
            lives.append([])
        lives[-1].append(event)
    return lives


def _is_http(agent: str | None) -> bool:
    return (agent or "").startswith("http-")


def _bound(row: Mapping[str, Any]) -> int:
    return _BOUND.get(row["task_type"], _USUAL_BOUND)


async def history(url: str, task_id: str) -> str:
    """Return the whole history of a task, as the log has it."""
    connection = await asyncpg.connect(url)
    rows = await connection.fetch(
        "select seq, version, kind, created_at, payload from grns.events where task_id = $1 order by seq",
        task_id,
    )
    row = await connection.fetchrow("select * from grns.tasks where id = $1", task_id)
    await connection.close()
    lines = [
        f"{line['created_at']:%H:%M:%S.%f} {line['seq']} v{line['version']} {line['kind']} {line['payload']}"
        for line in rows
    ]
    return "\n".join([json.dumps(dict(row), default=str) if row else "no such task", *lines])
