"""What a doctor finds: nothing of an installation that is well, and of each thing that is not, what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from grns.diagnose.doctor.diagnosis import CHECKS, diagnose, worst
from grns.diagnose.doctor.finding import Finding, Severity
from grns.diagnose.doctor.snapshot import (
    Broker,
    ClockSkew,
    Log,
    Partition,
    Postgres,
    Schema,
    Snapshot,
    Unserved,
    WorkerStats,
)
from grns.model.daemon_status import DaemonStatus
from grns.nats.report import DurableReport, StreamReport
from grns.settings import Settings, load

SUBJECTS = [f"cmd.task.execute.v1.default.worker.p{priority}" for priority in range(4)]
PRIORITY_SUBJECT = SUBJECTS[2]
SERVER = Postgres("18.1", 180001, connections=20)
PULSE = DaemonStatus(relay_owner="desk-1")
PARTITIONS = [
    Partition("events_1", 1, 1001, newest_seconds=60.0),
    *(Partition(f"events_{n}", n, n + 1000, is_ahead=True) for n in (1001, 2001, 3001)),
]
DURABLE = DurableReport(
    "execute_1",
    [PRIORITY_SUBJECT],
    5,
    10,
    0,
    2,
    [],
    ack_wait_seconds=15.0,
    max_ack_pending=20_000,
    max_waiting=8192,
)
STREAM = StreamReport(
    "GRNS_CMD", messages=5, size_bytes=10, max_bytes=1000, max_consumers=20_000,
    duplicate_window_seconds=300.0, durables=[replace(DURABLE, subjects=[lane]) for lane in SUBJECTS],
)  # fmt: skip
EVENTS = StreamReport("GRNS_EVT", max_bytes=1000, size_bytes=999, duplicate_window_seconds=600.0)
CREW = WorkerStats("default", "worker", 2, 20, 0, 15.0, 15.0, ["0.1.0"])


def reading(**parts: Any) -> Snapshot:
    """Return a reading of an installation that is well, but for what is named."""
    said: dict[str, Any] = {
        "settings": load(database_url="postgresql://127.0.0.1:1/grns"),
        "version": "0.1.0",
        "at": datetime.now(UTC),
        "postgres": SERVER,
        "schema": Schema("0006", "0006"),
        "log": Log(PARTITIONS, 500),
        "pulse": PULSE,
        "stuck": {},
        "workers_by_pool": [CREW],
        "unserved": [],
        "orphans": [],
        "broker": Broker("2.15.1", [STREAM, EVENTS]),
        "clocks": [ClockSkew("Postgres", 0.01, 0.005), ClockSkew("NATS", -0.02, 0.005)],
    }
    return Snapshot(**{**said, **parts})


def settings(**said: Any) -> Settings:
    """Return settings that are otherwise than they come."""
    return load(database_url="postgresql://127.0.0.1:1/grns", **said)


def server(**said: Any) -> dict[str, Any]:
    """Return a server that is otherwise."""
    return {"postgres": replace(SERVER, **said)}


def pulse(**said: Any) -> dict[str, Any]:
    """Return daemons that are otherwise."""
    return {"pulse": replace(PULSE, **said)}


def partitions(**said: Any) -> dict[str, Any]:
    """Return a log whose oldest partition is otherwise."""
    return {"log": Log([replace(PARTITIONS[0], **said), *PARTITIONS[1:]], 500)}


def stream(**said: Any) -> dict[str, Any]:
    """Return a stream of commands that is otherwise."""
    return {"broker": Broker("2.15.1", [replace(STREAM, **said), EVENTS])}


def durable(**said: Any) -> dict[str, Any]:
    """Return durables of which that of one lane is otherwise."""
    return stream(durables=[*STREAM.durables[:3], replace(STREAM.durables[3], **said)])


def crew(**said: Any) -> dict[str, Any]:
    """Return workers that are otherwise."""
    return {"workers_by_pool": [replace(CREW, **said)]}


DAY = 86_400.0
ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE
VERIFYING = {"settings": settings(nats_manage="verify")}

# What is otherwise; which check finds it, how bad that is, and what the sentence says.
TABLE: dict[str, tuple[dict[str, Any], str, Severity, str]] = {
    "no Postgres": (
        {"postgres": None, "schema": None, "log": None, "pulse": None, "stuck": None, "workers_by_pool": None,
         "troubles": {"postgres": "refused"}}, "postgres", ERROR, "Postgres cannot be reached: refused"),
    "an old Postgres": (server(version="14.2", version_number=140002), "postgres", ERROR, "older than 15"),
    "a standby": (server(is_standby=True), "postgres", ERROR, "a read-only standby"),
    "no fsync": (server(fsync=False), "postgres", ERROR, "fsync is off"),
    "torn pages": (server(full_page_writes=False), "postgres", ERROR, "full_page_writes is off"),
    "lost commits": (server(synchronous_commit="off"), "postgres", ERROR, "loses accepted tasks"),
    "a strange isolation": (
        {**server(isolation="serializable"), "settings": settings(database_startup_params=False)},
        "postgres", ERROR, "default_transaction_isolation is serializable"),
    "no connection left": (server(connections=95), "postgres", WARNING, "95 of 100 connections"),
    "checkpoints in a row": (server(max_wal_megabytes=1024), "checkpoints", NOTE, "max_wal_size is 1024 MB"),
    "a long transaction": (
        server(transaction_seconds=1200.0, transaction_pid=7, transaction_name="psql",
            transaction_state="idle"), "transactions", WARNING, "20 min, by process 7 (psql, idle)"),
    "a very long transaction": (
        server(transaction_seconds=7200.0, transaction_pid=7), "transactions", ERROR, "open for 2 h"),
    "no schema": ({"schema": Schema(None, "0006")}, "schema", ERROR, "has no schema"),
    "an old schema": ({"schema": Schema("0005", "0006")}, "schema", ERROR, "at 0005, and this release"),
    "workspaces in one pot that keys rely on": (  # M3
        {"schema": Schema("1", "1", "no role", True)}, "schema", WARNING, "no role"),
    "another limit of payloads": (
        {"schema": Schema("1", "1", payload_bytes=5000)}, "schema", WARNING, "other payloads 262144",
    ),
    "workspaces in one pot": ({"schema": Schema("1", "1", "no role")}, "schema", NOTE, "no role"),
    "a schema that cannot be read": (
        {"schema": None, "troubles": {"schema": "no"}}, "schema", ERROR, "could not be read: no"),
    "a log that cannot be read": ({"log": None, "troubles": {"log": "no"}}, "partitions", ERROR, "no"),
    "a full log": ({"log": Log(PARTITIONS, 4000)}, "partitions", ERROR, "the event log is full"),
    "no partition ahead": ({"log": Log(PARTITIONS[:1], 500)}, "partitions", ERROR, "0 partitions of"),
    "few partitions ahead": ({"log": Log(PARTITIONS[:3], 500)}, "partitions", WARNING, "2 partitions of"),
    "a partition half away": (partitions(is_detaching=True), "partitions", WARNING, "removal of events_1"),
    "orphans": ({"log": Log(PARTITIONS, 500, orphans=2)}, "partitions", NOTE, "2 detached partitions"),
    "old rows": (partitions(newest_seconds=31 * DAY), "retention", WARNING, "older than the retention"),
    "old rows that are held": (
        partitions(newest_seconds=31 * DAY, is_done_with=False), "retention", WARNING, "not all of their"),
    "a short log": ({"settings": settings(log_retention_days=2.0)}, "retention", WARNING, "not be replayed"),
    "a short memory": (
        {"settings": settings(processed_retention_days=2.0)}, "retention", NOTE, "needs --include-forgotten"),
    "no relay": (pulse(relay_has_leader=False), "relay", WARNING, "no relay is running"),
    "no relay, and much to do": (
        pulse(relay_has_leader=False, lag_seconds=9.0), "relay", ERROR, "is 9 s old"),
    "a late relay": (pulse(lag_seconds=9.0), "relay", WARNING, "9 s old; the leader is desk-1"),
    "a relay that is stuck": (pulse(lag_seconds=900.0), "relay", ERROR, "15 min old"),
    "daemons that cannot be asked for": (
        {"pulse": None, "troubles": {"pulse": "no"}}, "relay", ERROR, "could not be read: no"),
    "no stats aggregator": (pulse(stats_has_leader=False), "stats", WARNING, "no stats aggregator"),
    "a late stats aggregator": (pulse(uncounted_seconds=60.0), "stats", WARNING, "is 60 s old"),
    "never a reaper": (pulse(reaped_seconds_ago=None), "reaper", WARNING, "none has ever run"),
    "no reaper": (pulse(reaped_seconds_ago=60.0, is_reaper_late=True), "reaper", WARNING, "60 s ago"),
    "no reaper, and much to do": (
        pulse(is_reaper_late=True, lapsed_seconds=30.0), "reaper", ERROR, "a lease expired 30 s ago"),
    "a late retry scheduler": (pulse(overdue_seconds=10.0), "retry_scheduler", WARNING, "due for 10 s"),
    "no retry scheduler": (pulse(overdue_seconds=600.0), "retry_scheduler", ERROR, "due for 10 min"),
    "never a janitor": (pulse(janitor_seconds_ago=None), "janitor", WARNING, "none has ever run"),
    "no janitor": (pulse(janitor_seconds_ago=900.0), "janitor", WARNING, "15 min ago"),
    "no operation runner": (pulse(operations_late_seconds=90.0), "operations", WARNING, "for 1 min 30 s"),
    "something stuck": (
        {"stuck": {"undelivered": 3}}, "stuck", ERROR, "3 tasks are queued, while workers have free"),
    "a row stuck": ({"stuck": {"unrelayed": 1}}, "stuck", ERROR, "1 event is logged"),
    "no broker": (
        {"broker": None, "troubles": {"broker": "timeout"}}, "broker", ERROR, "cannot be reached: timeout"),
    "an old broker": ({"broker": Broker("2.10.29", [STREAM])}, "broker", ERROR, "2.10.29 is older than 2.11"),
    "a missing stream": (
        stream(exists=False, drift=["GRNS_CMD does not exist"], durables=[]), "streams", ERROR,
        "the stream GRNS_CMD does not exist"),
    "a strange stream": (stream(drift=["GRNS_CMD: max_age is 1"]), "streams", WARNING, "max_age is 1"),
    "a strange stream that nobody mends": (
        {**stream(drift=["GRNS_CMD: max_age is 1"]), **VERIFYING}, "streams", ERROR, "max_age is 1"),
    "a strange durable": (durable(drift=["execute_1: max_deliver is 3"]), "durables", WARNING, "is 3"),
    "a strange durable that nobody mends": (
        {**durable(drift=["execute_1: max_deliver is 3"]), **VERIFYING}, "durables", ERROR, "is 3"),
    "a short memory of the broker": (
        stream(duplicate_window_seconds=2.0), "dedupe_window", ERROR, "GRNS_CMD deduplicates messages for"),
    "a stream that fills": (stream(size_bytes=850), "room", WARNING, "GRNS_CMD is 85% full"),
    "a full stream": (stream(size_bytes=990), "room", ERROR, "GRNS_CMD is 99% full"),
    "many durables": (stream(max_consumers=4), "room", WARNING, "4 of at most 4 durable"),
    "a priority subject without a durable consumer": (
        stream(durables=STREAM.durables[1:]), "priority_subjects", WARNING,
        f"1 of 4 priority subjects of worker have no durable consumer, such as {SUBJECTS[0]}"),
    "an ack_wait that is too short": (
        durable(ack_wait_seconds=5.0), "ack_wait", ERROR, "every command is delivered twice"),
    "an ack_wait that is short": (
        durable(ack_wait_seconds=8.0), "ack_wait", WARNING, "is 8 s, and workers send InProgress every 5 s"),
    "leases of two kinds": (
        crew(shortest_lease_seconds=5.0), "ack_wait", WARNING, "workers of worker have leases of 5 to 15 s"),
    "more slots than deliveries": (
        durable(max_ack_pending=10), "slots", ERROR, "max_ack_pending is 10, and its workers have 20"),
    "deliveries that nobody ends": (durable(ack_pending=19_000), "slots", WARNING, "19,000 of 20,000"),
    "more workers than fetches": (durable(max_waiting=1), "slots", WARNING, "max_waiting is 1"),
    "a type without a worker": (
        {"unserved": [Unserved("worker", "odd", 3, 60.0)]}, "pools", WARNING,
        "type odd are queued (for up to 60 s), and the pool worker has no worker with a handler"),
    "a pool without a worker": (
        {"unserved": [Unserved("writer", "odd", 3, 60.0)]}, "pools", WARNING, "writer has no live worker"),
    "a schedule that the code no longer has": (
        {"orphans": [("old", "reports")]}, "schedules", WARNING,
        "no live worker of reports declares schedule old any more"),
    "silent workers": (crew(silent=2), "pools", NOTE, "2 workers of worker stopped sending heartbeats"),
    "old workers": (crew(versions=["0.0.9", "0.1.0"]), "pools", NOTE, "workers of grns 0.0.9 are running"),
    "pools that cannot be read": (
        {"workers_by_pool": None, "troubles": {"pools": "no"}}, "pools", ERROR, "no"),
    "a clock of this machine": (
        {"clocks": [ClockSkew("Postgres", 7.0, 0.1), ClockSkew("NATS", 7.0, 0.1)]}, "clocks", NOTE,
        "the clock of Postgres is 6.9 s ahead of that of this machine"),
    "a clock of the broker": (
        {"clocks": [ClockSkew("Postgres", 0.0, 0.1), ClockSkew("NATS", 7.0, 0.1)]}, "clocks", WARNING,
        "the clock of NATS is 6.8 s ahead of that of Postgres"),
    "a clock that is far off": (
        {"clocks": [ClockSkew("Postgres", 0.0, 0.1), ClockSkew("NATS", -3600.0, 0.1)]}, "clocks", ERROR,
        "the clock of Postgres is 1 h ahead of that of NATS"),
}  # fmt: skip


def bad(read: Snapshot) -> list[Finding]:
    """Return what is found that is not well."""
    return [one for one in diagnose(read) if one.severity is not Severity.OK]


def test_nothing_is_found_where_all_is_well() -> None:
    found = diagnose(reading())
    assert [one for one in found if one.severity is not Severity.OK] == []
    assert len({one.check for one in found}) == len(found) == len(CHECKS)
    assert worst(found) is Severity.OK


@pytest.mark.parametrize("name", TABLE)
def test_each_trouble_is_found_and_no_other(name: str) -> None:
    parts, check, severity, sentence = TABLE[name]
    found = bad(reading(**parts))
    of_check = [one for one in found if one.check == check]
    assert max(of_check, key=lambda one: one.severity.rank).severity is severity
    told = next(one for one in of_check if sentence in one.sentence)
    assert told.severity is severity
    assert told.what_to_do
    # Beside a broker's clock, that of this machine differs from one of the two.
    assert {one.check for one in found} == {check}, [one.sentence for one in found]


def test_every_check_has_a_trouble_that_it_finds() -> None:
    assert {check for _, check, *_ in TABLE.values()} == {one.check for one in diagnose(reading())}


@pytest.mark.parametrize(
    ("parts", "check"),
    [
        ({"clocks": [ClockSkew("Postgres", 4.0, 3.0), ClockSkew("NATS", 0.0, 0.1)]}, "clocks"),
        (durable(drift=["execute_1: ack_wait is 1"]), "durables"),
        ({**durable(ack_wait_seconds=5.0), "workers_by_pool": []}, "ack_wait"),
        ({**durable(max_ack_pending=10, ack_pending=0), "workers_by_pool": []}, "slots"),
        (durable(subjects=["cmd.task.execute.v1"], ack_wait_seconds=1.0), "ack_wait"),
        (durable(subjects=["cmd.>"], ack_wait_seconds=1.0), "ack_wait"),
        ({**stream(durables=[]), "workers_by_pool": []}, "priority_subjects"),
        ({**stream(durables=[]), **crew(workers=0)}, "priority_subjects"),
        (stream(exists=False, durables=[]), "priority_subjects"),
        (pulse(lag_seconds=1.0, uncounted_seconds=1.0, overdue_seconds=1.0), "relay"),
        (partitions(newest_seconds=30 * DAY), "retention"),
        ({"broker": Broker("unknown", [STREAM])}, "broker"),
    ],
)
def test_what_is_as_it_may_be_is_no_finding(parts: dict[str, Any], check: str) -> None:
    assert [one for one in bad(reading(**parts)) if one.check == check] == []


def test_a_namespace_is_no_part_of_a_lanes_name() -> None:
    durables = [replace(DURABLE, subjects=[f"staging_{lane}"], max_ack_pending=10) for lane in SUBJECTS]
    theirs = replace(STREAM, name="staging_GRNS_CMD", durables=durables)
    found = bad(reading(broker=Broker("2.15.1", [theirs]), settings=settings(nats_namespace="staging")))
    assert [one.check for one in found] == ["slots"] * 4


def test_of_many_that_are_alike_a_few_are_told() -> None:
    lanes = [replace(one, max_ack_pending=10) for one in STREAM.durables] * 10
    found = [one for one in bad(reading(**stream(durables=lanes))) if one.check == "slots"]
    assert len(found) == 6
    assert found[-1].sentence == "and 35 more findings like these"


def test_the_worst_is_what_counts() -> None:
    make: Callable[[Severity], Finding] = lambda severity: Finding("x", severity, "")  # noqa: E731
    assert worst([make(WARNING), make(ERROR), make(NOTE)]) is ERROR
    assert worst([make(NOTE)]) is NOTE
    assert worst([]) is Severity.OK


def test_where_nothing_could_be_read_that_is_all() -> None:
    empty = Snapshot(settings(), "0.1.0", datetime.now(UTC))
    assert [one.check for one in diagnose(empty)] == ["postgres", "broker"]
