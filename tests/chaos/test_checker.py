"""The checker in the small: journals and tables of a few lines that tell of one bug each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.checker import Checker, Event, Report
from tests.chaos.harm import EVERYBODY, OVER_HTTP, Harms
from tests.chaos.journal import Journal
from tests.chaos.steps import STEPWISE, Stepwise

_AT = 1000.0
_ROW = {
    "id": "gr-1", "task_type": "steady", "status": "succeeded", "attempt": 1, "uncounted_attempts": 0,
    "idempotency_key": "1-1", "number": "1", "result_number": "1", "result_attempt": 1,
    "is_cancel_requested": False,
}  # fmt: skip
_TRIED = [
    {"what": "try", "key": "1-1", "type": "steady", "number": 1},
    {"what": "ok", "key": "1-1", "task": "gr-1"},
]


def _log(*kinds: str) -> list[Event]:
    """Return a task's events, whose attempts are counted by their claims."""
    attempt, events = 0, []
    for version, kind in enumerate(kinds, 1):
        attempt += kind == "claimed"
        agent = None if kind == "queued" else "A"
        events.append(Event(version, f"evt.task.{kind}", attempt or None, _AT + version, agent))
    return events


def _runs(*words: str) -> list[dict[str, Any]]:
    """Return what handlers have written down: `begin 1` is the beginning of attempt 1."""
    return [
        {"what": what, "task": "gr-1", "attempt": int(attempt), "lease": attempt, "agent": "A", "pid": 1}
        for what, attempt in (word.split() for word in words)
    ]


def _check(
    directory: Path,
    *kinds: str,
    runs: Sequence[dict[str, Any]] = (),
    seen: Sequence[dict[str, Any]] = (),
    stage: Sequence[dict[str, Any]] = (),
    told: Sequence[dict[str, Any]] = (),
    events: list[Event] | None = None,
    **row: Any,
) -> Report:
    """Check a task with these events, runs and differences from a row that is as it should be."""
    start = {"what": "start", "at": _AT, "pid": 1, "seat": "worker-1"}
    journals = {"submits": [*_TRIED, *told], "effects": runs, "seen": seen}
    for name, notes in journals.items():
        (directory / f"{name}-1.jsonl").write_text("".join(json.dumps(note) + "\n" for note in notes))
    (directory / "stage.jsonl").write_text("".join(json.dumps(note) + "\n" for note in (start, *stage)))
    messages: dict[str, tuple[str | None, int, str, float]] = {}
    if seen:
        messages["m"] = ("gr-1", 3, "evt.task.completed", _AT)
    checker = Checker(directory)
    checker.take({"gr-1": {**_ROW, **row}}, {"gr-1": events or _log(*kinds)}, messages)
    return checker.judge()


def _found(report: Report) -> set[str]:
    return {name for name, details in report.violations.items() if details}


_ENDED = ("queued", "claimed", "completed")
_TWICE = ("queued", "claimed", "retry_scheduled", "queued", "claimed")


def test_what_is_sound_is_not_found(tmp_path: Path) -> None:
    assert not _found(_check(tmp_path, *_ENDED, runs=_runs("begin 1", "end 1")))


def test_a_retry_that_the_handler_asked_for_is_sound(tmp_path: Path) -> None:
    runs = _runs("begin 1", "failed 1", "begin 2", "end 2")
    assert not _found(_check(tmp_path, *_TWICE, "completed", runs=runs, attempt=2, result_attempt=2))


@pytest.mark.parametrize("fault", ["", "network to NATS: cut", "network to Postgres: cut"])
def test_a_retry_that_nobody_asked_for_needs_a_hit(tmp_path: Path, fault: str) -> None:
    hit = {"what": "hit", "fault": fault, "whom": "worker-1", "from": _AT + 2.5, "until": _AT + 2.5}
    runs = _runs("begin 1", "cancelled 1", "begin 2", "end 2")
    stage = [hit] if fault else []
    report = _check(tmp_path, *_TWICE, "completed", runs=runs, stage=stage, attempt=2, result_attempt=2)
    assert _found(report) == (set() if "Postgres" in fault else {"unexplained duplicate"})


@pytest.mark.parametrize(("attempt", "uncounted_attempts"), [(3, 0), (1, 0), (2, 1)])
def test_attempts_that_are_not_the_logs(tmp_path: Path, attempt: int, uncounted_attempts: int) -> None:
    runs = _runs("begin 1", "failed 1", "begin 2", "end 2")
    row: dict[str, Any] = {"attempt": attempt, "result_attempt": 2, "uncounted_attempts": uncounted_attempts}
    assert _found(_check(tmp_path, *_TWICE, "completed", runs=runs, **row)) == {"attempts"}


@pytest.mark.parametrize(("stream", "is_explained"), [("GRNS_EVT", True), ("GRNS_DLQ", False)])
def test_what_another_stream_lost_explains_no_order(tmp_path: Path, stream: str, is_explained: bool) -> None:
    hit = {"what": "hit", "fault": "NATS: stream deleted", "whom": stream, "from": _AT, "until": _AT}
    harms = Harms()
    harms.read(hit)
    assert harms.explain_order("GRNS_EVT", _AT - 1, _AT + 1) is is_explained
    harms.read({**hit, "fault": "NATS: killed or stopped", "whom": "nobody"})
    assert harms.explain_order("GRNS_EVT", _AT - 1, _AT + 1) is is_explained


def test_a_process_id_that_comes_again_is_another_seats(tmp_path: Path) -> None:
    hit = {
        "what": "hit",
        "fault": "worker: SIGKILL",
        "whom": "worker-1",
        "from": _AT + 2.5,
        "until": _AT + 2.5,
    }
    later = {"what": "start", "at": _AT + 9, "pid": 1, "seat": "worker-2"}
    earlier = {**later, "at": _AT + 1}
    runs = _runs("begin 1", "begin 2", "end 2")
    kinds = ("queued", "claimed", "lease_expired", "claimed", "completed")
    for other, found in ((later, set()), (earlier, {"unexplained duplicate"})):
        report = _check(tmp_path, *kinds, runs=runs, stage=[other, hit], attempt=2, result_attempt=2)
        assert _found(report) == found


def test_one_attempt_run_twice(tmp_path: Path) -> None:
    runs = _runs("begin 1", "begin 1", "end 1", "end 1")
    report = _check(tmp_path, *_ENDED, runs=runs)
    assert _found(report) == {"unexplained duplicate"}
    assert report.executions == 2


def test_a_retry_after_a_good_end(tmp_path: Path) -> None:
    runs = _runs("begin 1", "end 1", "begin 2", "end 2")
    report = _check(tmp_path, *_TWICE, "completed", runs=runs, attempt=2, result_attempt=2)
    assert _found(report) == {"wrong outcome"}


def test_dead_with_attempts_left(tmp_path: Path) -> None:
    runs = _runs("begin 1", "failed 1")
    assert _found(_check(tmp_path, "queued", "claimed", "dead", runs=runs, status="dead")) == {
        "wrong outcome"
    }


def test_dead_with_no_attempt_left(tmp_path: Path) -> None:
    attempts = ("claimed", "retry_scheduled", "queued") * 7
    runs = _runs(*(f"{word} {attempt}" for attempt in range(1, 9) for word in ("begin", "failed")))
    report = _check(tmp_path, "queued", *attempts, "claimed", "dead", runs=runs, status="dead", attempt=8)
    assert not _found(report)


def test_a_failure_of_what_nobody_ran(tmp_path: Path) -> None:
    report = _check(tmp_path, "queued", "claimed", "failed", status="failed", task_type="doomed")
    assert "stale write" in _found(report)


def test_a_process_that_crashed(tmp_path: Path) -> None:
    stage = [{"what": "ended", "seat": "relay-1", "code": code} for code in (0, -9, -15, 5)]
    assert not _found(_check(tmp_path, *_ENDED, runs=_runs("begin 1", "end 1"), stage=stage))
    stage[0]["code"] = 1
    assert _found(_check(tmp_path, *_ENDED, runs=_runs("begin 1", "end 1"), stage=stage)) == {"crash"}


@pytest.mark.parametrize(
    ("answer", "is_right"), [("cancelled", False), ("requested", True), ("succeeded", True), ("dead", False)]
)
def test_what_a_cancel_was_told(tmp_path: Path, answer: str, is_right: bool) -> None:
    told = [{"what": "cancel", "task": "gr-1"}, {"what": "answered", "task": "gr-1", "answer": answer}]
    report = _check(tmp_path, *_ENDED, runs=_runs("begin 1", "end 1"), told=told)
    assert _found(report) == (set() if is_right else {"answer"})


def test_what_was_tried_again_after_a_refusal_may_be_there(tmp_path: Path) -> None:
    again: list[dict[str, Any]] = [
        {"what": "refused", "key": "1-1"},
        {"what": "try", "key": "1-1", "type": "steady", "number": 1},
    ]
    assert not _found(_check(tmp_path, *_ENDED, runs=_runs("begin 1", "end 1"), told=again))


def _taken_away(
    directory: Path, fault: str, begin: float, end: float, kind: str = "lease_expired", **whom: Any
) -> Report:
    hit = {"what": "hit", "fault": fault, "whom": "worker-1", "from": _AT + begin, "until": _AT + end, **whom}
    runs = _runs("begin 1", "begin 2", "end 2")
    kinds = ("queued", "claimed", kind, "claimed", "completed")
    uncounted_attempts = int(kind == "released")
    return _check(
        directory,
        *kinds,
        runs=runs,
        stage=[hit],
        attempt=2,
        result_attempt=2,
        uncounted_attempts=uncounted_attempts,
    )


@pytest.mark.parametrize("kind", ["lease_expired", "released"])
@pytest.mark.parametrize(
    ("fault", "begin", "end", "is_explained"),
    [
        ("worker: SIGKILL", 2.5, 2.5, True),
        ("worker: SIGKILL", 0.5, 0.5, False),  # another process claimed it
        ("worker: SIGKILL", 3.5, 3.5, False),  # it was taken away before
        ("worker: SIGTERM", 0.5, 0.5, True),  # it was not heard yet
        ("worker: SIGINT", -0.5, -0.5, False),  # it was heard long ago
        ("network to Postgres: silent", 0.0, 2.5, True),
        ("network to Postgres: cut", 2.1, 2.1, True),  # the answer to the claim
        ("network to NATS: silent", 0.0, 5.0, False),
        ("NATS: killed or stopped", 0.0, 5.0, False),
    ],
)
def test_only_a_hit_between_claim_and_loss_explains_it(
    tmp_path: Path, kind: str, fault: str, begin: float, end: float, is_explained: bool
) -> None:
    report = _taken_away(tmp_path, fault, begin, end, kind)
    assert _found(report) == (set() if is_explained else {"unexplained duplicate"})


@pytest.mark.parametrize(("reason", "is_explained"), [("postgres_unavailable", True), ("shutdown", False)])
def test_terminated_backend_explains_the_release_of_an_open_transaction(
    tmp_path: Path, reason: str, is_explained: bool
) -> None:
    events = _log("queued", "claimed", "released", "claimed", "completed")
    for event in events[2:]:
        event.at += 5.0
    events[2].reason = reason
    fault = "Postgres: backends terminated"
    hit = {"what": "hit", "fault": fault, "whom": "everybody", "from": _AT + 5.0, "until": _AT + 5.1}
    runs = _runs("begin 1", "begin 2", "end 2")
    report = _check(
        tmp_path,
        runs=runs,
        stage=[hit],
        events=events,
        attempt=2,
        result_attempt=2,
        version=5,
        uncounted_attempts=1,
    )
    assert _found(report) == (set() if is_explained else {"unexplained duplicate"})


@pytest.mark.parametrize(
    ("reason", "ran", "is_explained"),
    [
        ("no_slot", "begin 1", False),
        ("no_slot", "begin 2", True),
        ("postgres_unavailable", "begin 1", False),
        ("postgres_unavailable", "begin 2", True),
        ("deadline", "begin 2", True),
        ("shutdown", "begin 2", False),
    ],
)
def test_a_task_may_be_released_before_it_has_begun(
    tmp_path: Path, reason: str, ran: str, is_explained: bool
) -> None:
    events = _log("queued", "claimed", "released", "claimed", "completed")
    events[2].reason = reason
    runs = _runs(*dict.fromkeys((ran, "begin 2")), "end 2")
    report = _check(
        tmp_path,
        runs=runs,
        stage=[],
        events=events,
        attempt=2,
        result_attempt=2,
        version=5,
        uncounted_attempts=1,
    )
    assert _found(report) == (set() if is_explained else {"unexplained duplicate"})


@pytest.mark.parametrize(
    ("agent", "reason", "is_explained"),
    [("http-a-1", "deadline", True), ("http-a-1", "shutdown", False), ("worker-1", "deadline", False)],
)
def test_a_claim_over_http_that_has_waited_for_postgres_may_be_given_back(
    tmp_path: Path, agent: str, reason: str, is_explained: bool
) -> None:
    """Its worker counts from when it asked, which nothing else tells: its row has been deleted."""
    events = _log("queued", "claimed", "released", "claimed", "completed")
    for event in events:
        event.agent = agent
    events[2].reason = reason
    runs = [{**note, "agent": agent} for note in _runs("begin 1", "begin 2", "end 2")]
    fault = "Postgres: away for more than a lease"
    hit = {"what": "hit", "fault": fault, "whom": "everybody", "from": _AT - 12.0, "until": _AT - 3.0}
    report = _check(
        tmp_path, runs=runs, stage=[hit], events=events, attempt=2, result_attempt=2, version=5,
        uncounted_attempts=1,
    )  # fmt: skip
    assert _found(report) == (set() if is_explained else {"unexplained duplicate"})


@pytest.mark.parametrize(("locked", "is_explained"), [("gr-1", True), ("gr-2", False)])
def test_a_stranger_harms_the_tasks_that_it_locks(tmp_path: Path, locked: str, is_explained: bool) -> None:
    fault = "Postgres: a stranger's transaction"
    report = _taken_away(tmp_path, fault, 0.0, 5.0, whom="nobody", tasks=[locked])
    assert _found(report) == (set() if is_explained else {"unexplained duplicate"})


@pytest.mark.parametrize("row", [{"number": "2", "result_number": "2"}, {"task_type": "thread"}])
def test_not_what_was_handed_in(tmp_path: Path, row: dict[str, Any]) -> None:
    report = _check(tmp_path, *_ENDED, runs=_runs("begin 1", "end 1"), **row)
    assert _found(report) == {"invented"}


@pytest.mark.parametrize(
    ("kinds", "status"),
    [(_ENDED, "dead"), ((*_ENDED, "queued"), "succeeded"), ((*_ENDED, "claimed"), "running")],
)
def test_a_row_that_its_events_do_not_tell(tmp_path: Path, kinds: Sequence[str], status: str) -> None:
    report = _check(tmp_path, *kinds, runs=_runs("begin 1", "end 1"), status=status, attempt=8)
    assert "wrong outcome" in _found(report)


@pytest.mark.parametrize("other", [{}, {"kind": "evt.task.dead"}, {"task": "gr-2"}, {"version": 4}])
def test_another_message_under_a_known_id(tmp_path: Path, other: dict[str, Any]) -> None:
    message = {"what": "seen", "stream": "GRNS_EVT", "id": "m", "at": _AT}
    message |= {"kind": "evt.task.completed", "task": "gr-1", "version": 3, **other}
    report = _check(tmp_path, *_ENDED, runs=_runs("begin 1", "end 1"), seen=[message])
    assert _found(report) == ({"phantom event"} if other else set()) | ({"missing event"} if other else set())


def _redriven(directory: Path, *kinds: str, runs: Sequence[dict[str, Any]], **row: Any) -> Report:
    """Check a doomed task that a bulk operation opened again where `kinds` say redriven."""
    events = _log(*("queued" if kind == "redriven" else kind for kind in kinds))
    for event, kind in zip(events, kinds, strict=True):
        event.reason = "redriven" if kind == "redriven" else None
    told = [{"what": "try", "key": "1-1", "type": "doomed", "number": 1}]
    row = {"task_type": "doomed", "status": "failed", "attempt": 2, **row}
    return _check(directory, runs=runs, told=told, events=events, **row)


def test_a_redriven_task_ends_once_more_and_forgives_what_was_before(tmp_path: Path) -> None:
    kinds = ("queued", "claimed", "failed", "redriven", "claimed", "failed")
    runs = _runs("begin 1", "failed 1", "begin 2", "failed 2")
    assert not _found(_redriven(tmp_path, *kinds, runs=runs, uncounted_attempts=1))
    assert _found(_redriven(tmp_path, *kinds, runs=runs, uncounted_attempts=0)) == {"attempts"}


def test_a_second_end_without_a_redrive_is_found(tmp_path: Path) -> None:
    kinds = ("queued", "claimed", "failed", "claimed", "failed")
    runs = _runs("begin 1", "failed 1", "begin 2", "failed 2")
    assert _found(_redriven(tmp_path, *kinds, runs=runs)) == {"double terminal"}


def test_a_parked_task_that_was_not_cancelled_is_found(tmp_path: Path) -> None:
    told = [{"what": "try", "key": "1-1", "type": "parked", "number": 1}]
    for kind, status, found in (("cancelled", "cancelled", set()), ("failed", "failed", {"wrong outcome"})):
        row: dict[str, Any] = {"task_type": "parked", "status": status, "attempt": 0}
        assert _found(_check(tmp_path, "queued", kind, told=told, **row)) - {"stale write"} == found


def test_a_hit_on_the_api_explains_what_a_worker_over_http_lost(tmp_path: Path) -> None:
    hit = {"what": "hit", "fault": "API: SIGKILL", "whom": "api-1", "from": _AT, "until": _AT}
    harms = Harms()
    harms.read(hit)
    assert harms.explain_loss("gr-1", OVER_HTTP, _AT - 1, _AT + 1)
    assert not harms.explain_loss("gr-1", OVER_HTTP, _AT - 9, _AT - 8)
    assert not harms.explain_loss("gr-1", 1, _AT - 1, _AT + 1)


@pytest.mark.parametrize(
    ("pauses", "pid", "is_explained"),
    [((2.0,), 1, False), ((2.0, 0.8), 1, True), ((2.0, 1.5), 1, False), ((2.0,), OVER_HTTP, True)],
)
def test_two_cut_connections_in_a_row_explain_what_one_does_not(
    pauses: tuple[float, ...], pid: int, is_explained: bool
) -> None:
    """The second one hits the renewal that is tried again; an HTTP worker has time for one more only."""
    harms, at = Harms(), _AT
    for pause in pauses:
        at += pause
        hit = {"fault": "Postgres: backends terminated", "whom": EVERYBODY, "from": at, "until": at}
        harms.read({"what": "hit", **hit})
    assert harms.explain_loss("gr-1", pid, _AT, _AT + 4) is is_explained


@pytest.mark.parametrize(
    ("found", "is_right"),
    [
        ({1: None, 2: 1, 3: 2}, True),
        ({1: None, 2: 3, 3: 1}, True),  # the second was frozen, and began after the third
        ({1: None, 2: 4, 3: 1}, False),  # there was no fourth
        ({1: None, 2: 1, 3: 0}, False),
        ({1: None, 2: 2, 3: 2}, False),
    ],
)
def test_which_checkpoints_attempts_may_find(
    tmp_path: Path, found: dict[int, int | None], is_right: bool
) -> None:
    notes = Journal(tmp_path / "effects-1.jsonl")
    for attempt, checkpoint in found.items():
        notes.note("checkpoint", task="gr-1", attempt=attempt, found=checkpoint)
    stepwise = Stepwise(checkpoints={"gr-1": (3, 3)})
    tasks = {"gr-1": {"task_type": STEPWISE, "status": "failed", "attempt": 3}}
    assert (list(stepwise.judge(tmp_path, tasks)) == []) == is_right


@pytest.mark.parametrize("fault", ["agent: told to stop", "worker: SIGKILL"])
def test_an_attempt_that_is_cut_and_cancelled_may_go_uncounted(tmp_path: Path, fault: str) -> None:
    """The reaper takes the lease away and, of a task that is to be cancelled, says only that."""
    hit = {"what": "hit", "fault": fault, "whom": "worker-1", "from": _AT + 1.5, "until": _AT + 1.6}
    report = _check(
        tmp_path,
        "queued",
        "claimed",
        "cancelled",
        runs=_runs("begin 1"),
        stage=[hit],
        told=[{"what": "cancel", "task": "gr-1"}],
        status="cancelled",
        is_cancel_requested=True,
        result_number=None,
        result_attempt=None,
        uncounted_attempts=1,
    )
    assert _found(report) == (set() if fault == "agent: told to stop" else {"attempts"})
