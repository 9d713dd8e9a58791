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
_STEPS = "select task_id, name, kind, attempt, value::text as value from grns.steps"


@dataclass(slots=True)
class Stepwise:
    """The recorded steps, held against what the handlers wrote down."""

    attempts: dict[tuple[str, str], int] = field(default_factory=dict)
    spared: set[tuple[str, int]] = field(default_factory=set)
    fan_outs: dict[str, list[str]] = field(default_factory=dict)

    async def read(self, connection: asyncpg.Connection) -> None:
        """Read the steps."""
        for row in await connection.fetch(_STEPS):
            self.attempts[row["task_id"], row["name"]] = row["attempt"]
            if row["kind"] != "sleep":
                self.spared.add((row["task_id"], row["attempt"]))
            if row["kind"] == "fan_out":
                self.fan_outs[row["task_id"]] = json.loads(row["value"])

    def judge(self, directory: Path, tasks: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
        """Return what is wrong."""
        children: dict[str, list[str]] = defaultdict(list)
        for task_id, row in tasks.items():
            if row.get("parent") is not None:
                children[row["parent"]].append(task_id)
            if row["task_type"] == STEPWISE and row["status"] == "succeeded":
                missing = [name for name in STEPS if (task_id, name) not in self.attempts]
                if missing:
                    yield f"{task_id} has succeeded without {missing}"
        for note in journal.read(directory, "effects-*.jsonl"):
            if note["what"] != "step":
                continue
            recorded = self.attempts.get((note["task"], note["step"]))
            if recorded is not None and note["attempt"] > recorded:
                told = f"{note['task']}: {note['step']} ran in attempt {note['attempt']}"
                yield f"{told}, and was recorded by attempt {recorded}"
        for task_id in children.keys() | self.fan_outs.keys():
            there, wanted = sorted(children[task_id]), sorted(self.fan_outs.get(task_id, []))
            if there != wanted:
                yield f"{task_id} has fanned out {wanted}, and {there} are there"
