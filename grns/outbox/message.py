"""One row of the log on its way to the broker."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from grns.nats.interface import Receipt
from grns.outbox.log import LogEntry


class OutboxMessage:
    """One row of the log on its way. A replayed one is published again for those who lost it."""

    __slots__ = (
        "entry",
        "followers",
        "is_held",
        "is_replay",
        "is_stub",
        "is_trial",
        "is_waiting",
        "key",
        "on_receipt",
        "sent_ns",
        "tries",
    )

    def __init__(
        self, entry: LogEntry, *, is_replay: bool = False, on_receipt: Callable[[Receipt], None] | None = None
    ) -> None:
        self.entry = entry
        self.on_receipt = on_receipt
        self.is_replay = is_replay
        self.is_stub = False
        # What has to stay in order: one task in one stream.
        self.key = f"{entry.kind[:3]} {entry.task_id or entry.message_id}"
        self.followers: deque[OutboxMessage] | None = None
        self.is_waiting = False  # among the replays that are ready
        self.is_held = False  # it was not taken, and those behind it wait for it
        self.is_trial = False  # it is being tried again
        self.tries = 0
        self.sent_ns = 0  # when it was sent, where somebody wants to know
