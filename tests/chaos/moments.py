"""The moments at which a failpoint can strike: between any two lines that do I/O, who is there, and what
brings that one there."""

from __future__ import annotations

from dataclasses import dataclass

ACTIONS = ("kill", "stop", "raise", "sleep(0.5)", "drop")
HITS = (1, 3)


@dataclass(frozen=True)
class Moment:
    """A failpoint, the seat that reaches it, and what has to happen for it beside the usual work.

    Some are reached once in the life of a process, or once in a long while.
    """

    name: str
    seat: str
    needs: str = ""
    is_rare: bool = False


def _statement(name: str, seat: str, needs: str = "", *, is_rare: bool = False) -> tuple[Moment, Moment]:
    """Return the moments around a statement: before it is sent, and when it has committed, unheard."""
    return (
        Moment(f"{name}.asked", seat, needs, is_rare),
        Moment(f"{name}.answered", seat, needs, is_rare),
    )


MOMENTS: tuple[Moment, ...] = (
    Moment("worker.before_claim", "worker-1"),
    Moment("worker.after_claim", "worker-1"),
    Moment("worker.handler_ended", "worker-1"),
    Moment("worker.finished_not_committed", "worker-1"),
    Moment("worker.committed", "worker-1"),
    Moment("worker.finished", "worker-1"),
    Moment("worker.acked", "worker-1"),
    Moment("puller.received", "worker-1"),
    Moment("batch.sending", "worker-1"),
    *_statement("claim", "worker-1"),
    *_statement("finish", "worker-1"),
    *_statement("explain_unclaimed", "worker-1", "repeated commands"),
    *_statement("bury_messages", "worker-1", "malformed messages"),
    *_statement("claim_next", "worker-1", "no commands"),
    *_statement("release", "worker-1", "shutdown", is_rare=True),
    *_statement("register_agent", "worker-1", is_rare=True),
    *_statement("renew", "worker-1", "long tasks"),
    *_statement("touch_agent", "worker-1", "long tasks", is_rare=True),
    Moment("relay.read", "relay-1", "the lead"),
    Moment("relay.published", "relay-1", "the lead"),
    Moment("relay.acknowledged", "relay-1", "the lead"),
    Moment("relay.not_persisted", "relay-1", "the lead"),
    *_statement("take_relay", "relay-1"),
    *_statement("hold_relay", "relay-1", "the lead"),
    *_statement("read_log", "relay-1", "the lead"),
    *_statement("tick_reaper", "reaper-1"),
    *_statement("reap", "reaper-1", "dead workers"),
    *_statement("promote", "retry-scheduler-1"),
    *_statement("read_partitions", "janitor-1"),
    *_statement("delete_tasks", "janitor-1", is_rare=True),
    *_statement("read_queue_ages", "janitor-1"),
    *_statement("audit_now", "janitor-1", is_rare=True),
    *_statement("submit_tasks", "submitter-1"),
    *_statement("cancel", "submitter-1"),
)
