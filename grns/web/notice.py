"""What a page says above all else, once something was done. An address only names one of these."""

from __future__ import annotations

NOTICES = {
    "cancelled": "The task was cancelled.",
    "requested": "The task runs, and was asked to end: it may yet succeed.",
    "redriven": "The task was queued again, with all its attempts before it.",
    "discarded": "It was set aside: lists leave it out from now on.",
    "edited": "The task was changed.",
    "unchanged": "Nothing was changed: it was like that already, or has ended meanwhile.",
    "issue": "The issue was changed.",
    "paused": "It is paused: nothing more of it is claimed. What runs goes on.",
    "resumed": "It goes on.",
    "operation_cancelled": "The operation is cancelled. Moved tasks stay moved.",
    "operation": "The operation was begun.",
    "resent": "The message was sent again.",
    "saved": "The view was saved.",
    "forgotten": "The view is forgotten.",
    "revoked": "The key is worth nothing any more.",
    "workspace": "The workspace is there.",
    "webhook": "The webhook was changed.",
    "deleted": "Nothing is sent there any more.",
    "pinged": "It is told of an event of its own: see what comes of it.",
    "told": "It is told of the event once more.",
}
