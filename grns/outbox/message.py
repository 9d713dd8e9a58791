"""One row of the event log on its way to the broker."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from grns.model import envelope, subjects
from grns.model.json import dumps
from grns.nats.messages import Message, Receipt, one_line
from grns.outbox.log import LogEntry

_QUEUED = "evt.task.queued"
_REASON = re.compile(r'"reason" ?: ?"([a-z_]*)"')
# The first of the last 32 bits of an id inverted, as of `command_id`.
_INVERTED = dict(zip("0123456789abcdef", "89abcdef01234567", strict=True))


def command_of(event: LogEntry, route: str) -> LogEntry:
    """Return the command that goes with an event that has a route: to run the task that it has queued."""
    seq, version, event_id, workspace, task_id, kind, _, trace_id, _, payload, created_at = event
    if kind == _QUEUED:
        found = _REASON.search(payload)
        reason = "new_task" if found is None else found[1]
    else:
        reason = kind.rpartition(".")[2]
    return LogEntry(
        seq,
        version,
        f"{event_id[:28]}{_INVERTED[event_id[28]]}{event_id[29:]}",
        workspace,
        task_id,
        subjects.EXECUTE,
        route,
        trace_id,
        event_id,
        f'{{"task_id":"{task_id}","target_agent_type":"{route[:-3]}","reason":"{reason}"}}',
        created_at,
    )


@dataclass(slots=True, eq=False)
class OutboxMessage:
    """One message of the log on its way. A replay publishes a row again that was published before."""

    entry: LogEntry
    is_replay: bool = False
    on_done: Callable[[int], None] | None = None  # receives the row's number once the broker has the message
    on_receipt: Callable[[Receipt], None] | None = None
    key: str = field(init=False)  # messages with the same key stay in order: one task in one stream
    followers: deque[OutboxMessage] | None = None
    is_stub: bool = False
    is_waiting: bool = False  # among the replays that are ready
    is_held: bool = False  # its stream did not take it, and its followers wait for it
    is_trial: bool = False  # it is being tried again
    tries: int = 0
    sent_ns: int = 0  # set if spans are on

    def __post_init__(self) -> None:
        self.key = stream_key(self.entry)

    def made(self, max_bytes: int) -> Message:
        """Return the message: a stub if it is larger than `max_bytes`, or was refused as too large."""
        if not self.is_stub:
            message = message_of((self.entry,))
            if len(message.body) <= max_bytes:
                return message
            self.is_stub = True
        return message_of((self.entry,), payload=_stub(self.entry))


def stream_key(entry: LogEntry) -> str:
    """Return the key of a row: rows with the same key stay in order, one task in one stream."""
    return f"{entry.kind[:3]} {entry.task_id or entry.message_id}"


def message_of(entries: Sequence[LogEntry], *, payload: str | None = None) -> Message:
    """Return the message of rows that have one subject, an envelope a line; `payload` replaces that of one.

    The headers are those of the first row. Its id tells other sets of rows that begin with it apart. Events
    that share a message have in their envelopes what else is in the headers.
    """
    seq, version, message_id, workspace, task_id, kind, route, trace_id, _, _, _ = entries[0]
    task = "" if task_id is None else f"Grns-Task: {one_line(task_id)}\r\n"
    headers = (
        f"traceparent: {envelope.traceparent(trace_id, message_id)}\r\n"
        f"Grns-Workspace: {one_line(workspace)}\r\nGrns-Version: {version}\r\nGrns-Seq: {seq}\r\n{task}"
    )
    if len(entries) == 1:
        body = _envelope(entries[0], payload)
    else:
        line = _envelope if kind == subjects.EXECUTE else _event_line
        body = b"\n".join([line(entry) for entry in entries])
        ids = "".join([entry.message_id for entry in entries])
        message_id = f"{message_id}+{blake2b(ids.encode(), digest_size=8).hexdigest()}"
    target = route if kind == subjects.EXECUTE else None  # of an event, it is that of the event's command
    return Message(subjects.message(kind, workspace, target), body, message_id, headers)


def _event_line(entry: LogEntry) -> bytes:
    """Return the envelope of an event with the fields of its headers."""
    task = "null" if entry.task_id is None else json.dumps(entry.task_id)
    fields = (
        f',"workspace":"{entry.workspace}","task_id":{task},"version":{entry.version},"seq":{entry.seq}}}'
    )
    return _envelope(entry)[:-1] + fields.encode()


def _envelope(entry: LogEntry, stub: str | None = None) -> bytes:
    _, _, message_id, _, _, kind, _, trace_id, causation_id, payload, created_at = entry
    return envelope.assemble(
        message_id=message_id,
        trace_id=trace_id,
        causation_id=causation_id,
        kind=kind,
        emitted_at=created_at,
        payload=payload if stub is None else stub,
    )


def _stub(entry: LogEntry) -> str:
    return dumps(
        {
            "truncated": True,
            "ref": f"db://events/{entry.seq}",
            "task_id": entry.task_id,
            "message_id": entry.message_id,
        }
    )
