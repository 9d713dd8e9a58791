"""`grns task submit-many` and `grns task count`: many tasks, with an answer for each line."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from grns.cli import run
from grns.dev.servers import LocalNats
from tests.cli.test_pool import with_database
from tests.support.aggregators import begin_here, count_all

GOOD = {"task_type": "fetch_page", "payload": {"url": "https://a.example"}, "idempotency_key": "page-1"}
LINES = [
    (GOOD, "created"),
    (GOOD, "exists"),
    ({**GOOD, "payload": {}}, "conflict"),
    ({"task_type": "noop"}, "created"),
    ({"task_type": "not a name"}, "bad_submission"),
    ({"task_type": "noop", "colour": "red"}, "bad_submission"),
    (["noop"], "bad_submission"),
    ("{'task_type': 'noop'}", "bad_json"),
    ('{"task_type": "noop", "task_type": "b"}', "duplicate_key"),
    ({"task_type": "noop", "payload": {"a": "x" * 300_000}}, "too_large"),
    ({"task_type": "noop", "payload": {"a": "x" * 900_000}}, "too_large"),
    ({"task_type": "noop", "delay_seconds": 60}, "created"),
]


@dataclass(frozen=True)
class Answer:
    """What one command left behind."""

    code: int
    out: str
    err: str


Call = Callable[..., Answer]


@pytest.fixture
def grns(
    shared_url: str, broker: LocalNats, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Call:
    """Run `grns task` on the test's own servers, with nothing in the database."""
    monkeypatch.setenv("GRNS_DATABASE_URL", shared_url)
    monkeypatch.setenv("GRNS_NATS_URL", broker.url)
    with_database(shared_url, begin_here)

    def call(*arguments: str) -> Answer:
        capfd.readouterr()
        code = run(["task", *arguments])
        return Answer(code, *capfd.readouterr())

    return call


def written(lines: list[Any]) -> bytes:
    """Return lines as a file has them."""
    return "\n\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines).encode()


def test_each_line_has_its_answer(grns: Call, tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_bytes(written([line for line, _ in LINES]))
    told = grns("submit-many", str(file), "-o", "jsonl")
    assert told.code == 1
    rows = [json.loads(line) for line in told.out.splitlines()]
    assert [row.get("code", row["status"]) for row in rows] == [said for _, said in LINES]
    assert [row["line"] for row in rows] == [1 + 2 * place for place in range(len(LINES))]
    assert rows[0]["id"] == rows[1]["id"]
    assert told.err == "3 created, 1 existed already, 8 are invalid\n"
    shown = grns("submit-many", str(file))
    assert shown.err == "2 created, 2 existed already, 8 are invalid\n"
    assert shown.out.splitlines()[1].split()[:2] == ["5", "conflict"]
    whole = json.loads(grns("submit-many", str(file), "-o", "json").out)
    assert len(whole["items"]) == len(LINES)


def test_more_than_a_batch_comes_from_a_pipe_and_is_counted(
    grns: Call, monkeypatch: pytest.MonkeyPatch, shared_url: str
) -> None:
    lines = [{"task_type": f"type_{number % 2}", "payload": {"n": number}} for number in range(1203)]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(written(lines))))
    told = grns("submit-many", "-")
    assert (told.code, told.out, told.err) == (0, "", "1203 created, 0 existed already, 0 are invalid\n")
    assert grns("count", "payload.n:7").out == "1\n"
    with_database(shared_url, count_all)
    assert grns("count", "type:type_0").out == "602\n"
    assert json.loads(grns("count", "status:queued", "-o", "json").out) == {"count": 1203, "is_exact": True}
    assert "queued      1203" in grns("count").out
    assert json.loads(grns("count", "-o", "json").out)["total"] == 1203
    assert grns("count", "colour:red").code == 2
    assert grns("count", "--saved-filter", "nobody").code == 3


def test_a_file_that_is_not_there_is_told(grns: Call) -> None:
    refused = grns("submit-many", "nowhere.jsonl")
    assert (refused.code, refused.out) == (2, "")
    assert "nowhere.jsonl" in refused.err
