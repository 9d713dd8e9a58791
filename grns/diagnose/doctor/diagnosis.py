"""All checks, in the order in which they are told."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from grns.diagnose.doctor.broker import check_broker, check_dedupe, check_durables, check_room, check_streams
from grns.diagnose.doctor.clock import check_clocks
from grns.diagnose.doctor.daemon import (
    check_counter,
    check_janitor,
    check_operations,
    check_reaper,
    check_relay,
    check_retry_scheduler,
    check_stuck,
)
from grns.diagnose.doctor.finding import Finding, Severity
from grns.diagnose.doctor.lane import check_ack_wait, check_lanes, check_pools, check_slots
from grns.diagnose.doctor.log import check_partitions, check_retention
from grns.diagnose.doctor.server import check_postgres, check_schema, check_transactions
from grns.diagnose.doctor.snapshot import Snapshot

CHECKS: tuple[Callable[[Snapshot], Sequence[Finding]], ...] = (
    check_postgres,
    check_schema,
    check_transactions,
    check_partitions,
    check_retention,
    check_relay,
    check_counter,
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
    check_lanes,
    check_ack_wait,
    check_slots,
    check_pools,
    check_clocks,
)


def diagnose(read: Snapshot) -> list[Finding]:
    """Return what all checks have found; a check that found nothing says that it is well."""
    return [finding for check in CHECKS for finding in check(read)]


def worst(findings: Sequence[Finding]) -> Severity:
    """Return the severity of the worst finding."""
    return max((one.severity for one in findings), key=lambda one: one.rank, default=Severity.OK)
