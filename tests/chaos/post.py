"""What must be true of mail: none is lost, none acknowledged unseen, none of an attempt without its task."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import asyncpg

from tests.chaos import journal

CREW = ("crew-0", "crew-1", "crew-2", "crew-3")
SENDS = 9
"""Every so manyth task writes to one of the crew."""
_ROWS = """
    select id::text as id, to_agent, from_task, from_attempt, acked_at is not null as is_acked from grns.mail
"""
_SENT = """
    select seq, task_id, attempt, payload ->> 'message_id' as id from grns.events
    where kind = 'evt.message.sent' and task_id is not null
"""


class Logged(Protocol):
    """An event of a task, as the checker has it."""

    kind: str
    attempt: int | None
    seq: int


@dataclass(slots=True)
class Mailed:
    """The mail that is there, held against what senders and readers wrote down."""

    rows: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    sent: list[tuple[int, str, int, str]] = field(default_factory=list)

    async def read(self, connection: asyncpg.Connection) -> None:
        """Read the mail."""
        self.rows = {row["id"]: dict(row) for row in await connection.fetch(_ROWS)}
        self.sent = [
            (row["seq"], row["task_id"], row["attempt"], row["id"]) for row in await connection.fetch(_SENT)
        ]

    def judge(self, directory: Path, log: Mapping[str, Sequence[Logged]]) -> Iterator[str]:
        """Return what is wrong."""
        tried: dict[str, str] = {}
        for note in journal.read(directory, "mails-*.jsonl"):
            if note["what"] == "mails":
                tried[note["id"]] = note["to"]
            elif note["what"] == "mailed" and note["id"] not in self.rows:
                yield f"{note['id']} was sent to {tried[note['id']]}, and is not there"
        done: dict[str, set[str]] = defaultdict(set)
        for note in journal.read(directory, "reads-*.jsonl"):
            if note["what"] == "done":
                done[note["id"]].add(note["agent"])
        for id_, row in self.rows.items():
            if tried.get(id_) != row["to_agent"]:
                yield f"{id_} is for {row['to_agent']}, and was to be for {tried.get(id_)}"
            if not row["is_acked"]:
                yield f"{id_} was never acknowledged"
            elif row["to_agent"] not in done[id_]:
                yield f"{id_} is acknowledged, and {row['to_agent']} has not dealt with it"
        yield from self._judge_attempts(log)

    def _judge_attempts(self, log: Mapping[str, Sequence[Logged]]) -> Iterator[str]:
        """What an attempt sends stands in the log while it has its task."""
        logged = {id_ for _, _, _, id_ in self.sent}
        for id_, row in self.rows.items():
            if row["from_task"] is not None and id_ not in logged:
                yield f"{id_} of {row['from_task']} is not in the log"
        for seq, task_id, attempt, id_ in self.sent:
            before = [event for event in log.get(task_id, ()) if event.seq < seq]
            if not before or (before[-1].kind, before[-1].attempt) != ("evt.task.claimed", attempt):
                was = before[-1].kind if before else "nothing"
                yield f"{id_} was sent by attempt {attempt} of {task_id}, after {was}"
