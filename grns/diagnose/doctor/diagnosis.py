"""All checks, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from grns.diagnose.doctor.broker import check_broker, check_dedupe, check_durables, check_room, check_streams
from grns.diagnose.doctor.clock import check_clocks
from grns.diagnose.doctor.daemon import (
    check_janitor,
    check_operations,
    check_reaper,
    check_relay,
    check_retry_scheduler,
    check_stats,
    check_stuck,
)
from grns.diagnose.doctor.finding import Finding, Severity
from grns.diagnose.doctor.log import check_partitions, check_retention
from grns.diagnose.doctor.pools import (
    check_ack_wait,
    check_pools,
    check_priority_subjects,
    check_schedules,
    check_slots,
)
from grns.diagnose.doctor.server import check_checkpoints, check_postgres, check_schema, check_transactions
from grns.diagnose.doctor.snapshot import Snapshot

CHECKS: tuple[Callable[[Snapshot], Sequence[Finding]], ...] = (
    check_postgres,
    check_schema,
    check_transactions,
    check_checkpoints,
    check_partitions,
    check_retention,
    check_relay,
    check_stats,
    check_reaper,
    check_retry_scheduler,
    check_janitor,
    check_operations,
    check_stuck,
    check_broker,
    check_streams,
    check_durables,
    check_dedupe,
    check_room,
    check_priority_subjects,
    check_ack_wait,
    check_slots,
    check_pools,
    check_schedules,
    check_clocks,
)


def diagnose(snapshot: Snapshot) -> list[Finding]:
    """Run all checks."""
    return [finding for check in CHECKS for finding in check(snapshot)]


def worst(findings: Sequence[Finding]) -> Severity:
    """Return the severity of the worst finding."""
    return max((one.severity for one in findings), key=lambda one: one.rank, default=Severity.OK)
