"""How pages write what they are given, and what they make of numbers."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from grns.model import text as texts
from grns.model.filter import parse
from grns.model.timeline import AttemptEvent, attempts
from grns.web import alarms, charts, filters
from grns.web import formatting as words
from grns.web.charts import key_figures
from grns.web.formatting import DisplayPreferences, time_zone
from grns.web.task import timeline_rows

NOW = datetime(2026, 2, 6, 21, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("a\nb\tc", "a\nb\tc"),
        ("gnp\u202eexe", "gnp⟨U+202E⟩exe"),
        ("\u2067\u2069\u200e\u200f\u061c", "⟨U+2067⟩⟨U+2069⟩⟨U+200E⟩⟨U+200F⟩⟨U+061C⟩"),
        ("\x00\x1b[31m\x85", "⟨U+0000⟩⟨U+001B⟩[31m⟨U+0085⟩"),
        ("\u200b\u2060\ufeff\u00ad", "⟨U+200B⟩⟨U+2060⟩⟨U+FEFF⟩⟨U+00AD⟩"),
        ("\U000e0041", "⟨U+E0041⟩"),
        ("שלום 👩\u200d💻 می\u200cخواهم", "שלום 👩\u200d💻 می\u200cخواهم"),
    ],
)
def test_what_nobody_would_see_is_written_out(text: str, shown: str) -> None:
    assert words.visible(text) == shown


@pytest.mark.parametrize(
    "value",
    [
        {"a": "\u202e\u2028\x07"},
        {"\u200f": ["\U000e0041", "ü👩\u200d💻"]},
        2**53 + 1,
        [],
        "",
        None,
        {"a": 1e-300},
        "a\nb",
    ],
)
def test_a_document_is_read_back_as_it_was(value: Any) -> None:
    text = words.document(value)
    assert json.loads(text) == value
    assert words.visible(text) == text, "nothing of it is hidden"


def test_times_are_written_as_somebody_wants_them() -> None:
    then = NOW - timedelta(minutes=5)
    assert DisplayPreferences().format(then, NOW) == "5 min ago"
    assert DisplayPreferences(times="utc").format(then, NOW) == "2026-02-06 20:55:00 UTC"
    zurich = DisplayPreferences(times="local", zone=time_zone("Europe/Zurich"))
    assert zurich.format(then, NOW) == "2026-02-06 21:55:00 CET"
    assert DisplayPreferences(times="local").format(then, NOW) == "2026-02-06 20:55:00 UTC"
    assert texts.ago(NOW + timedelta(seconds=30), NOW) == "in 30 s"
    assert texts.ago(NOW, NOW) == "now"
    for name in ("", "../etc/passwd", "/etc/localtime", "Europe", "No/Where", "A" * 300, "Europe/Zurich\n"):
        assert time_zone(name) is None, name


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "–"),
        (0.0012, "1 ms"),
        (1.26, "1.3 s"),
        (1.0, "1 s"),
        (3600.0, "1 h"),
        (125.0, "2 min 5 s"),
        (7300.0, "2 h 1 min"),
        (90_000.0, "25 h"),
    ],
)
def test_durations_are_written(seconds: float | None, shown: str) -> None:
    assert texts.lasted(seconds) == shown


def test_amounts_are_written() -> None:
    assert (words.grouped(1234567), words.grouped(0.25), words.grouped(3.0)) == (
        "1\u202f234\u202f567",
        "0.2",
        "3",
    )
    assert (texts.sized(512), texts.sized(262_144)) == ("512 B", "256.0 KiB")
    assert (words.counted(1, "task"), words.counted(2000, "task")) == ("1 task", "2\u202f000 tasks")
    assert words.summary({"task_id": "x", "a": "b", "n": None, "d": {"é": 1}}) == 'a=b d={"é": 1}'
    error = {"class": "TimeoutError", "frames": ["a.py:1 in f"], "message": "late"}
    assert words.summary({"error": error, "attempt": 2}) == "error=TimeoutError: late attempt=2"
    assert len(words.summary({"a": "x" * 500})) == 160


def test_quantiles_are_those_of_what_was_seen() -> None:
    found = charts.quantiles([n / 100 for n in range(1, 101)])
    assert found is not None
    assert (found.p50, found.p95, found.p99, found.count) == (0.51, 0.96, 1.0, 100)
    assert charts.quantiles([]) is None


def test_a_chart_has_a_value_for_every_minute_that_is_over() -> None:
    steps = {
        "since": "2026-02-06T20:00:30Z", "until": "2026-02-06T20:05:30Z", "step_seconds": 60,
        "items": [{"at": "2026-02-06T20:02:00Z", "submitted": 120, "queue_count": 4, "queue_ms_sum": 2000}],
    }  # fmt: skip
    chart = charts.per_second("x", steps, "submitted")
    first = datetime(2026, 2, 6, 20, 1, tzinfo=UTC).timestamp()
    assert chart.points == [[first + 60 * n for n in range(4)], [0, 2.0, 0, 0]]
    assert charts.per_minute("x", steps, "submitted").points[1] == [0, 120, 0, 0]
    assert charts.mean_seconds("x", steps, wait="queue").points[1] == [None, 0.5, None, None]
    assert json.loads(chart.content)["lines"] == ["submitted"]
    assert chart.latest == [("submitted", 0)]


def test_bars_are_as_high_as_their_numbers() -> None:
    assert charts.bars([0, 0]) == ""
    assert charts.bars([0, 5, 10]) == "M5 24v-12h4V24z M10 24v-24h4V24z"
    assert charts.bars([1, 1_000_000]).startswith("M0 24v-1h4"), "what is there is seen"


@pytest.mark.parametrize(
    ("text", "state", "rest"),
    [
        ("", None, ""),
        ("status:dead", "dead", ""),
        ("status:dead type:noop", "dead", "type:noop"),
        ("status:dead,failed type:noop", None, "status:dead,failed type:noop"),
        ("-status:dead", None, "-status:dead"),
        ("colour:red", None, "colour:red"),
    ],
)
def test_the_state_that_a_filter_asks_for_is_found(text: str, state: str | None, rest: str) -> None:
    assert filters.split_status(text) == (state, rest)


def test_a_filter_of_a_value_finds_it_alone() -> None:
    for value in ("plain", "a b", 'say "no"', "50*", "back\\slash", "a,b", ""):
        (term,) = parse(filters.term("trace", value)).terms
        assert term.patterns[0].pieces == (value,), value


def _pool(**said: Any) -> dict[str, Any]:
    return {
        "agent_type": "w",
        "workers": 1,
        "queued": 0,
        "has_more": False,
        "oldest_seconds": None,
        "pauses": [],
        **said,
    }


def test_what_is_wrong_with_pools_is_said() -> None:
    assert alarms.pool_alarms([_pool()]) == []
    (unserved,) = alarms.pool_alarms([_pool(workers=0, queued=3)])
    assert (unserved.severity, unserved.text) == ("bad", "No worker serves pool w: 3 tasks queued.")
    (behind,) = alarms.pool_alarms([_pool(queued=1, oldest_seconds=400.0)])
    assert (behind.severity, behind.text[:18]) == ("note", "Pool w is behind: ")
    paused = alarms.pool_alarms(
        [_pool(workers=0, queued=3, pauses=[{"task_type": None}, {"task_type": "x"}])]
    )
    assert [one.text for one in paused] == [
        "Pool w is paused: 3 tasks queued.",
        "Task type x of pool w is paused.",
    ]


def test_a_type_that_no_worker_serves_is_named() -> None:
    workers = [
        {"agent_type": "w", "task_types": ["a"], "is_alive": True},
        {"agent_type": "w", "task_types": ["b"], "is_alive": False},
    ]
    queued = [{"agent_type": "w", "task_type": kind} for kind in ("a", "b", "b")]
    queued.append({"agent_type": "other", "task_type": "c"})
    assert [one.text for one in alarms.handler_alarms(queued, workers)] == [
        "No worker of pool w has a handler for b."
    ]
    assert [one.text for one in alarms.worker_alarms(workers)] == [
        "1 worker has stopped without signing off."
    ]


def test_only_what_daemons_here_tell_is_a_signal() -> None:
    silent = (
        "grns_relay_lag_seconds 0.0\n# HELP grns_messages_published_total x\ngrns_stats_lag_seconds 0.0\n"
    )
    assert key_figures(silent) == []
    told = (
        silent + 'grns_messages_published_total{kind="a"} 3.0\ngrns_messages_published_total{kind="b"} 4.0\n'
    )
    assert [(one.name, one.value) for one in key_figures(told)] == [("Relay lag", 0.0)]
    told += "grns_measured_timestamp_seconds 1.8e+09\ngrns_unpublished_oldest_seconds 2.5\n"
    assert [(one.name, one.value) for one in key_figures(told)] == [("Relay lag", 2.5)]


def test_attempts_lie_where_they_were() -> None:
    def event(kind: str, attempt: int, at: str, **payload: Any) -> dict[str, Any]:
        return {"kind": kind, "attempt": attempt, "created_at": f"2026-02-06T20:00:{at}Z", "payload": payload}

    task = {
        "created_at": "2026-02-06T20:00:00Z",
        "finished_at": "2026-02-06T20:00:10Z",
        "attempt": 2,
        "last_error": {"class": "B", "message": "no", "traceback": "Traceback"},
    }
    events = [
        event("evt.task.claimed", 1, "02", agent_id="w-1", queued_ms=1000),
        event("evt.task.retry_scheduled", 1, "04", error_class="A"),
        event("evt.task.claimed", 2, "08", agent_id="w-2"),
        event("evt.task.dead", 2, "10", error={"class": "B", "message": "no"}, error_class="B"),
    ]
    transitions = [AttemptEvent(seq, **one) for seq, one in enumerate(events)]
    shown = [asdict(one) for one in attempts(transitions)]
    first, second = timeline_rows(task, shown, events, NOW.timestamp())
    assert (first.wait_seconds, first.run_seconds, first.error) == (1.0, 2.0, {"class": "A"})
    assert first.wait is not None
    assert (first.wait.start, first.wait.width, first.run.start, first.run.width) == (
        100.0,
        100.0,
        200.0,
        200.0,
    )
    assert (second.wait, second.run_seconds) == (None, 2.0)
    assert second.error == task["last_error"], "newcomer 15: with its traceback, which no event has"
    shown = [asdict(one) for one in attempts(transitions[:1])]
    (running,) = timeline_rows({**task, "finished_at": None}, shown, events, NOW.timestamp())
    assert running.run_seconds is None
    assert running.run.start + running.run.width == pytest.approx(1000, abs=0.2)


def test_an_attempt_that_waits_is_suspended_and_one_that_has_ended_is_not() -> None:
    def one(seq: int, kind: str, attempt: int, **payload: Any) -> AttemptEvent:
        return AttemptEvent(seq, kind, attempt, NOW, payload)

    first, second = attempts(
        [
            one(1, "evt.task.claimed", 1, agent_id="w-1"),
            one(2, "evt.task.waiting", 1, waits_for="signal", step="signal go"),
            one(3, "evt.task.claimed", 2, agent_id="w-2"),
            one(4, "evt.task.retry_scheduled", 2, error_class="A"),
            one(5, "evt.task.waiting", 2, waits_for="limit"),
        ]
    )
    assert (first.outcome, first.reason) == ("suspended", "signal go")
    assert (second.outcome, second.reason) == ("retry_wait", "A")
