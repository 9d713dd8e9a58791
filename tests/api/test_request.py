"""What is sent to the API: bodies and parameters that nobody could accept, and what is answered."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from grns.api.route import PREFIX
from grns.errors import DriftError
from grns.postgres.database import Database
from grns.telemetry.service_signals import RequestCrashed
from tests.support.api import Door, good, problem_of
from tests.support.bad_input import FRAMING, NOT_OBJECTS, OPTIONS, TEXTS, Case
from tests.support.store import fetch

TASKS = f"{PREFIX}/tasks"
JSON = {"Content-Type": "application/json"}
# A body may be a little deeper and fuller than a payload: these are no submission, and refused as such.
_FITS = ("depth_65", "depth_65_of_objects", "10000_elements")


def _sendable(case: Case) -> bool:
    """Say whether JSON has a form for it."""
    try:
        json.dumps(case.value, allow_nan=False).encode()
    except (TypeError, ValueError):
        return False
    return True


async def tasks_of(database: Database) -> int:
    """Return how many tasks there are."""
    count: int = (await fetch(database, "select count(*) as count from grns.tasks"))[0]["count"]
    return count


@pytest.mark.parametrize("case", [case for case in FRAMING + TEXTS if case.value], ids=str)
async def test_what_is_no_strict_json_is_refused(
    local: httpx2.AsyncClient, shared: Database, case: Case
) -> None:
    answer = await local.post(TASKS, content=case.value, headers=JSON)
    if case.code == "too_large":
        assert problem_of(answer, 413) == "too_large"
    else:
        assert problem_of(answer, 400) == ("bad_submission" if case.name in _FITS else case.code)
    assert await tasks_of(shared) == 0


@pytest.mark.parametrize("case", NOT_OBJECTS, ids=str)
async def test_what_is_no_object_is_refused(local: httpx2.AsyncClient, case: Case) -> None:
    answer = await local.post(TASKS, content=case.value, headers=JSON)
    assert problem_of(answer, 400) == "bad_submission"


@pytest.mark.parametrize("case", [case for case in OPTIONS if _sendable(case)], ids=str)
async def test_a_bad_option_is_named(local: httpx2.AsyncClient, shared: Database, case: Case) -> None:
    body = {"task_type": "noop", **case.value}
    answer = await local.post(TASKS, content=json.dumps(body), headers=JSON)
    code = problem_of(answer, 400)
    assert code in ("bad_submission", "bad_string", "bad_number")
    assert code != "bad_submission" or case.code in answer.json()["detail"]
    assert await tasks_of(shared) == 0


async def test_a_body_that_is_too_long_is_refused_while_it_comes(local: httpx2.AsyncClient) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(10_000):
            sent += 10_000
            yield b" " * 10_000

    assert problem_of(await local.post(TASKS, content=endless(), headers=JSON), 413) == "too_large"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        JSON | {"Content-Encoding": "gzip"},
    ],
)
async def test_another_type_of_content_is_refused(local: httpx2.AsyncClient, headers: dict[str, str]) -> None:
    answer = await local.post(TASKS, content=b'{"task_type": "noop"}', headers=headers)
    assert problem_of(answer, 415) == "bad_content_type"


async def test_a_parameter_of_the_type_is_fine(local: httpx2.AsyncClient) -> None:
    kind = {"Content-Type": "application/json; charset=utf-8"}
    good(await local.post(TASKS, content=b'{"task_type": "noop"}', headers=kind))


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/tasks", {"task_type": "noop", "prio": 1}),
        ("PATCH", "/tasks/gr-1", {"status": "queued"}),
        ("POST", "/tasks/gr-1/cancel", {"because": "no"}),
        ("POST", "/operations", {"action": "redrive", "dryrun": True}),
        ("PATCH", "/issues/beef", {"status": "resolved"}),
        ("POST", "/pools/worker/pause", {"for": 5}),
        ("POST", "/keys", {"name": "x", "scopes": ["read"], "workspace": "acme"}),
        ("PUT", "/filters/mine", {"filter": "status:dead"}),
    ],
)
async def test_a_field_that_there_is_not_is_refused(
    local: httpx2.AsyncClient, method: str, path: str, body: dict[str, Any]
) -> None:
    answer = await local.request(method, PREFIX + path, json=body)
    problem_of(answer, 400)
    assert "there is no such field" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/tasks?limit=0", "bad_limit"),
        ("/tasks?limit=-1", "bad_limit"),
        ("/tasks?limit=1001", "bad_limit"),
        ("/tasks?limit=many", "bad_limit"),
        ("/tasks?cursor=nonsense", "bad_cursor"),
        ("/tasks?cursor=%00", "bad_cursor"),
        ("/tasks?cursor=" + "x" * 2000, "bad_cursor"),
        ("/tasks?fliter=status:dead", "bad_parameter"),
        ("/tasks?filter=status:lost", "bad_filter"),
        ("/tasks?filter=" + "a" * 5000, "bad_filter"),
        ("/tasks/%00", "bad_parameter"),
        ("/tasks/" + "x" * 5000, "bad_parameter"),
        ("/issues?state=lost", "bad_parameter"),
        ("/issues?cursor=nonsense", "bad_cursor"),
        ("/dead-letters?what=both", "bad_parameter"),
        ("/dead-letters?what=message&filter=type:x", "bad_filter"),
        ("/messages/nobody", "bad_parameter"),
        ("/operations/first", "bad_parameter"),
        ("/operations/0", "bad_parameter"),
        ("/operations?cursor=x", "bad_cursor"),
        ("/pools?cursor=a.b", "bad_cursor"),
        ("/workers?cursor=nonsense", "bad_cursor"),
        ("/events?kind=evt.task", "bad_kind"),
        ("/events?kind=evt.task.*&kind=everything", "bad_kind"),
        ("/events?order=odd", "bad_parameter"),
        ("/events?cursor=-1", "bad_cursor"),
        ("/events?cursor=9999999999999999999", "bad_cursor"),
        ("/minutes?since=yesterday", "bad_parameter"),
        ("/minutes?since=1700000000", "bad_parameter"),
        ("/minutes?since=0001-01-01T00:00:00Z", "bad_parameter"),
        ("/minutes?since=2026-01-01T00:00:00Z&until=2025-01-01T00:00:00Z", "bad_stretch"),
        ("/minutes?since=2020-01-01T00:00:00Z", "bad_step"),
        ("/minutes?step_seconds=1", "bad_parameter"),
        ("/keys?cursor=.", "bad_cursor"),
        ("/filters?cursor=nonsense!", "bad_cursor"),
        ("/filters/a.b", "bad_parameter"),
    ],
)
async def test_a_bad_parameter_is_named(local: httpx2.AsyncClient, path: str, code: str) -> None:
    assert problem_of(await local.get(PREFIX + path), 400) == code


async def test_little_of_what_was_sent_is_repeated_and_nothing_that_acts(local: httpx2.AsyncClient) -> None:
    evil = "<script>\x1b[31m" + "é" * 3000
    for answer in (
        await local.get(TASKS, params={evil: "1"}),
        await local.get(TASKS, params={"filter": f"{evil}:1"}),
        await local.post(TASKS, json={"task_type": evil}),
        await local.post(TASKS, json={evil: "noop"}),
        await local.get(f"{PREFIX}/{quote(evil)}"),
        await local.get(f"{PREFIX}/messages/" + quote(f"\u202e{evil}")),
        await local.get(f"{PREFIX}/minutes", params={"since": evil}),
    ):
        problem_of(answer, answer.status_code)
        said = answer.json()["detail"]
        assert said.isascii()
        assert said.isprintable()
        assert said.count("\\xe9") <= 100


async def test_what_there_is_not_is_a_problem_too(local: httpx2.AsyncClient) -> None:
    assert problem_of(await local.get("/nowhere"), 404) == "not_found"
    assert problem_of(await local.get(f"{TASKS}/"), 404) == "not_found"
    answer = await local.delete(TASKS)
    assert problem_of(answer, 405) == "bad_method"
    assert set(answer.headers["allow"].split(", ")) <= {"GET", "POST"}


@pytest.mark.parametrize("kind", [ZeroDivisionError, DriftError])
async def test_a_bug_tells_nothing_of_our_inside_but_where_to_look(
    door: Door, local: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    """Also an error of our own that nobody is to meet here."""

    async def broken(*_: Any, **__: Any) -> Any:
        raise kind("postgresql://grns:hunter2@db.internal")

    monkeypatch.setattr("grns.api.count.count_states", broken)
    answer = await local.get(f"{PREFIX}/counts")
    assert problem_of(answer, 500) == "internal_error"
    assert "hunter2" not in answer.text
    assert [signal.trace_id for signal in door.emitted.of(RequestCrashed)] == [answer.json()["trace_id"]]


async def test_postgres_away_is_told_in_our_words(door: Door, local: httpx2.AsyncClient) -> None:
    await door.database.close()
    answer = await local.get(f"{PREFIX}/counts")
    assert problem_of(answer, 503) == "unavailable"
    assert answer.headers["retry-after"] == "1"
    assert [signal.event for signal in door.emitted.seen if signal.level == "warning"] == ["request_failed"]
    ready = await local.get("/readyz")
    assert (ready.status_code, ready.json()) == (503, {"status": "postgres does not answer"})
    assert good(await local.get("/livez")) == {"status": "ok"}


async def test_it_is_ready_while_postgres_answers_and_the_schema_fits(
    door: Door, local: httpx2.AsyncClient
) -> None:
    assert good(await local.get("/readyz")) == {"status": "ok"}
    door.context.stopping.set()
    assert (await local.get("/readyz")).status_code == 503
