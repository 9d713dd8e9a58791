"""The moments at which a failpoint can strike: between any two lines that do I/O, who is there, and what
brings that one there."""

from __future__ import annotations

from dataclasses import dataclass

ACTIONS = ("kill", "stop", "raise", "sleep(0.5)", "drop")
HITS = (1, 3)


@dataclass(frozen=True)
class Moment:
    """A failpoint, the seat that reaches it, and what has to happen for it beside the usual work.

    Some are reached once in the life of a process, or once in a long while; some only where another
    failpoint (`beside`) brings their process there. A connection to drop is not at hand at each.
    """

    name: str
    seat: str
    needs: str = ""
    is_rare: bool = False
    beside: str = ""
    has_connection: bool = False

    def __str__(self) -> str:
        return f"{self.name} ({self.needs})" if self.needs else self.name

    @property
    def actions(self) -> tuple[str, ...]:
        """What can be done there: without a connection, `drop` would be one more `raise`."""
        return ACTIONS if self.has_connection else tuple(one for one in ACTIONS if one != "drop")


def _statement(
    name: str, seat: str, needs: str = "", *, is_rare: bool = False, beside: str = ""
) -> tuple[Moment, Moment]:
    """Return the moments around a statement: before it is sent, and when it has committed, unheard."""
    return (
        Moment(f"{name}.asked", seat, needs, is_rare, beside, has_connection=True),
        Moment(f"{name}.answered", seat, needs, is_rare, beside, has_connection=True),
    )


MOMENTS: tuple[Moment, ...] = (
    Moment("worker.before_claim", "worker-1"),
    Moment("worker.claimed_not_acked", "worker-1"),
    Moment("worker.hint_claimed", "worker-1"),
    Moment("worker.part_given_back", "worker-1", "bursts"),
    Moment("worker.after_claim", "worker-1"),
    Moment("worker.handler_ended", "worker-1"),
    Moment("worker.finished_not_committed", "worker-1", has_connection=True),
    Moment("worker.committed", "worker-1"),
    Moment("worker.finished", "worker-1"),
    Moment("worker.acked", "worker-1"),
    Moment("puller.received", "worker-1"),
    Moment("batch.sending", "worker-1"),
    *_statement("claim", "worker-1"),
    *_statement("finish", "worker-1"),
    *_statement("read_claims", "worker-1", beside="claim.answered=drop@0.3"),
    *_statement("read_finishes", "worker-1", beside="finish.answered=drop@0.3"),
    *_statement("explain_unclaimed", "worker-1", "repeated commands"),
    *_statement("reject_messages", "worker-1", "malformed messages"),
    *_statement("claim_next", "worker-1", "no commands"),
    *_statement("read_next_claims", "worker-1", "no commands", beside="claim_next.answered=drop@0.5"),
    *_statement("dispatch", "scout-1", "repeated commands"),
    *_statement("stop_worker", "worker-1", "end", is_rare=True),
    *_statement("release", "worker-1", "shutdown", is_rare=True),
    *_statement("register_worker", "worker-1", is_rare=True),
    *_statement("renew", "worker-1", "long tasks"),
    *_statement("touch_worker", "worker-1", "long tasks", is_rare=True),
    *_statement("read_pauses", "worker-1"),
    *_statement("read_steps", "worker-1"),
    *_statement("record_step", "worker-1"),
    *_statement("record_steps", "worker-1"),
    *_statement("read_joined", "worker-1"),
    *_statement("take_signal", "worker-1"),
    *_statement("suspend", "worker-1"),
    *_statement("await_event", "worker-1"),
    *_statement("record_progress", "worker-1"),
    *_statement("read_order", "worker-1"),
    *_statement("send_mail", "worker-1"),
    *_statement("poll_mail", "reader-1"),
    *_statement("deliver_mail", "reader-1"),
    *_statement("ack_mail", "reader-1"),
    Moment("relay.read", "relay-1", "the lead"),
    Moment("relay.published", "relay-1", "the lead"),
    Moment("relay.wave_sent", "relay-1", "the lead"),
    Moment("relay.acknowledged", "relay-1", "the lead"),
    Moment("relay.not_persisted", "relay-1", "the lead"),
    *_statement("acquire_lease", "relay-1"),
    *_statement("read_relay_cursor", "relay-1", "the lead", is_rare=True),
    *_statement("hold_relay", "relay-1", "the lead"),
    *_statement("read_log", "relay-1", "the lead"),
    *_statement("release_lease", "relay-1", "the lead for once", is_rare=True),
    *_statement("next_replay", "relay-1", "replays"),
    *_statement("read_log_age", "relay-1", "replays"),
    *_statement("hold_replay", "relay-1", "replays"),
    *_statement("read_stretch", "relay-1", "replays"),
    *_statement("read_stretch", "relay-1", "lost streams"),
    *_statement("tick_reaper", "reaper-1"),
    *_statement("reap", "reaper-1", "dead workers"),
    *_statement("end_stalled", "reaper-1"),
    *_statement("warn_overdue", "reaper-1", is_rare=True),
    *_statement("end_ordered", "reaper-1"),
    *_statement("note_presence", "reaper-1"),
    *_statement("promote", "scheduler-1"),
    *_statement("look_at_budgets", "scheduler-1"),
    *_statement("has_budgets", "scheduler-1"),
    *_statement("has_event_waits", "scheduler-1"),
    *_statement("deliver_events", "scheduler-1"),
    *_statement("due_schedules", "scheduler-1"),
    *_statement("note_runs", "scheduler-1"),
    Moment("follower.read", "scheduler-1", "the lead"),
    *_statement("read_follow_cursor", "scheduler-1", "the lead", is_rare=True),
    *_statement("follow_log", "scheduler-1", "the lead"),
    *_statement("sweep_waits", "scheduler-1", "the lead", is_rare=True),
    Moment("admitter.read", "scheduler-1", "the lead of limits"),
    Moment("admitter.planned", "scheduler-1", "the lead of limits"),
    Moment("admitter.applied", "scheduler-1", "the lead of limits"),
    *_statement("read_limit_use", "scheduler-1", is_rare=True),
    *_statement("read_limit_tokens", "scheduler-1", "the lead of limits", is_rare=True),
    *_statement("read_limit_rules", "scheduler-1", "the lead of limits", is_rare=True),
    *_statement("read_admitted", "scheduler-1", "the lead of limits", is_rare=True),
    *_statement("read_lines", "scheduler-1", "the lead of limits", is_rare=True),
    *_statement("read_heads", "scheduler-1", "the lead while tasks wait for room", is_rare=True),
    *_statement("follow_limits", "scheduler-1", "the lead of limits"),
    *_statement("admit_tasks", "scheduler-1", "the lead of limits"),
    *_statement("forget_limit_tokens", "scheduler-1", "the lead of limits", is_rare=True),
    Moment("stats.read", "stats-1"),
    *_statement("read_stats_cursor", "stats-1", is_rare=True),
    *_statement("read_numbers", "stats-1"),
    *_statement("count_log", "stats-1"),
    *_statement("read_partitions", "janitor-1"),
    *_statement("add_log_partition", "janitor-1", "missing partitions", is_rare=True),
    *_statement("read_orphan_partitions", "janitor-1"),
    *_statement("note_server", "janitor-1"),
    *_statement("delete_processed_messages", "janitor-1"),
    *_statement("delete_old_workers", "janitor-1"),
    *_statement("delete_tasks", "janitor-1", is_rare=True),
    *_statement("read_queue_ages", "janitor-1"),
    *_statement("count_all_states", "janitor-1"),
    *_statement("read_lags", "janitor-1"),
    *_statement("count_workers", "janitor-1"),
    *_statement("count_agents", "janitor-1"),
    *_statement("end_pauses", "janitor-1"),
    *_statement("read_paused_pools", "janitor-1"),
    *_statement("audit_now", "janitor-1", is_rare=True),
    *_statement("audit_tasks", "janitor-1", is_rare=True),
    *_statement("audit_log", "janitor-1", is_rare=True),
    *_statement("audit_schedules", "janitor-1", is_rare=True),
    *_statement("mark_messages", "command-server-1", "orders"),
    *_statement("unmark_messages", "command-server-1", "orders"),
    *_statement("find_submitted", "command-server-1", "orders"),
    Moment("commands.executed", "command-server-1", "orders"),
    Moment("commands.not_answered", "command-server-1", "orders"),
    *_statement("submit_tasks", "submitter-1"),
    *_statement("cancel", "submitter-1"),
    Moment("hint.sent", "submitter-1"),
)
