"""One row of the event log on its way to the broker."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from grns.nats.messages import Receipt
from grns.outbox.log import LogEntry


@dataclass(slots=True, eq=False)
class OutboxMessage:
    """One row of the log on its way. A replay publishes a row again that was published before."""

    entry: LogEntry
    is_replay: bool = False
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
        self.key = f"{self.entry.kind[:3]} {self.entry.task_id or self.entry.message_id}"
