"""What must be true of handlers with steps: none ran again once recorded, and each fan-out is there once."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg

from tests.chaos import journal

STEPWISE = "stepwise"
STEPS = ("one", "two", "three")
CLAIMED = "evt.task.claimed"  # of itself: every fourth one waits for the first, which has happened
SIGNAL = "go"  # sent to every fifth one, which waits for it a little
_STEPS = "select task_id, name, kind, attempt, value::text as value from grns.steps"

_PROGRESS = (
    "select task_id, attempt, checkpoint::text::integer as checkpoint from grns.progress"
    " where checkpoint is not null"
)
_QUESTIONS = (
    "select q.task_id, q.state, s.value::text as value from grns.questions q"
    " left join grns.steps s on s.task_id = q.task_id and s.name = q.step"
)
_SIGNALS = (
    "select task_id, count(taken_by) as taken from grns.signals"
    " where name not like 'question %' and name not like 'event %' group by task_id"
)


@dataclass(slots=True)
class Stepwise:
    """The recorded steps, held against what the handlers wrote down."""

    attempts: dict[tuple[str, str], int] = field(default_factory=dict)
    spared: set[tuple[str, int]] = field(default_factory=set)
    fan_outs: dict[str, list[str]] = field(default_factory=dict)
    signals: dict[str, int | None] = field(default_factory=dict)
    events: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    questions: dict[str, tuple[str, dict[str, Any] | None]] = field(default_factory=dict)
    checkpoints: dict[str, tuple[int, int]] = field(default_factory=dict)

    async def read(self, connection: asyncpg.Connection) -> None:
        """Read the steps."""
        for row in await connection.fetch(_STEPS):
            self.attempts[row["task_id"], row["name"]] = row["attempt"]
            if row["kind"] != "sleep":
                self.spared.add((row["task_id"], row["attempt"]))
            if row["kind"] == "fan_out":
                self.fan_outs[row["task_id"]] = json.loads(row["value"])
            if row["name"] == f"event {CLAIMED}":
                self.events[row["task_id"]] = json.loads(row["value"]).get("value")
            elif row["kind"] == "signal" and row["name"] != "ask pay":
                self.signals[row["task_id"]] = json.loads(row["value"]).get("value")
        for row in await connection.fetch(_SIGNALS):
            self.taken[row["task_id"]] = row["taken"]
        for row in await connection.fetch(_QUESTIONS):
            value = None if row["value"] is None else json.loads(row["value"])
            self.questions[row["task_id"]] = row["state"], value
        for row in await connection.fetch(_PROGRESS):
            self.checkpoints[row["task_id"]] = row["attempt"], row["checkpoint"]

    def judge(self, directory: Path, tasks: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
        """Return what is wrong."""
        for task_id, row in tasks.items():
            if row["task_type"] == STEPWISE and row["status"] == "succeeded":
                missing = [name for name in STEPS if (task_id, name) not in self.attempts]
                if missing:
                    yield f"{task_id} has succeeded without {missing}"
        yield from self._judge_runs(directory)
        yield from self._judge_checkpoints(directory, tasks)
        yield from self._judge_signals(tasks)
        yield from self._judge_questions(directory)
        yield from self._judge_fan_outs(tasks)
        for task_id, event in self.events.items():
            if event is not None and (event["task_id"], event["payload"]["attempt"]) != (task_id, 1):
                yield f"{task_id} waited for its first claim, and got {event}"

    def _judge_runs(self, directory: Path) -> Iterator[str]:
        for note in journal.read(directory, "effects-*.jsonl"):
            if note["what"] != "step":
                continue
            recorded = self.attempts.get((note["task"], note["step"]))
            if recorded is not None and note["attempt"] > recorded:
                told = f"{note['task']}: {note['step']} ran in attempt {note['attempt']}"
                yield f"{told}, and was recorded by attempt {recorded}"

    def _judge_checkpoints(self, directory: Path, tasks: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
        """Each attempt keeps its number: later ones find it, and none that has lost its task replaces it.

        An attempt that is frozen before its handler begins may find that of a later one.
        """
        found: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for note in journal.read(directory, "effects-*.jsonl"):
            if note["what"] == "checkpoint":
                found[note["task"]].append((note["attempt"], note["found"] or 0))
        for task_id, seen in found.items():
            kept, latest = 0, self.checkpoints.get(task_id, (0, 0))
            for attempt, checkpoint in sorted(seen):
                if attempt < checkpoint <= tasks[task_id]["attempt"]:
                    continue
                if not kept <= checkpoint < attempt:
                    yield f"{task_id}: attempt {attempt} found checkpoint {checkpoint} after {kept}"
                kept = max(kept, checkpoint)
            if latest[0] != latest[1] or latest[1] < kept:
                yield f"{task_id} has checkpoint {latest[1]} of attempt {latest[0]} after {kept}"

    def _judge_signals(self, tasks: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
        for task_id, value in self.signals.items():
            if value is not None and str(value) != tasks[task_id]["number"]:
                yield f"{task_id} was sent {tasks[task_id]['number']}, and got {value}"
            if (value is not None) != (self.taken.get(task_id, 0) == 1):
                yield f"{task_id} got {value}, and {self.taken.get(task_id, 0)} signals are taken"

    def _judge_questions(self, directory: Path) -> Iterator[str]:
        """What was answered is what the step has recorded, and what each attempt got."""
        for task_id, (state, value) in self.questions.items():
            recorded = None if value is None else "expired" if "timed_out" in value else "answered"
            if recorded is not None and recorded != state:
                yield f"{task_id}: its question is {state}, and its step says {recorded}"
        for note in journal.read(directory, "effects-*.jsonl"):
            if note["what"] == "approval":
                state, _ = self.questions.get(note["task"], ("nothing", None))
                if state != ("answered" if note["approved"] else "expired"):
                    yield f"{note['task']} got {note['approved']}, and its question is {state}"

    def _judge_fan_outs(self, tasks: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
        children: dict[str, list[str]] = defaultdict(list)
        for task_id, row in tasks.items():
            if row.get("parent") is not None:
                children[row["parent"]].append(task_id)
        for task_id in children.keys() | self.fan_outs.keys():
            there, wanted = sorted(children[task_id]), sorted(self.fan_outs.get(task_id, []))
            if there != wanted:
                yield f"{task_id} has fanned out {wanted}, and {there} are there"
