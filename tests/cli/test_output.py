"""What a command prints: whole and always the same in a pipe, fitted to whoever looks at a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import click
import pytest
from pydantic_core import SchemaError

from grns.cli import event, failure
from grns.cli.group import CliState
from grns.cli.output import Column, Output, table
from grns.cli.webhook import webhook
from grns.errors import ConflictError, NotFoundError
from grns.outbox.events import LogEvent

NOW = datetime(2026, 2, 6, 21, 0, 0, tzinfo=UTC)
LONG = "it was taken by somebody and then it was not given back for a while " * 3
EVENT = LogEvent(
    seq=48211,
    version=3,
    message_id="0198f3b2-0000-7000-8000-000000000001",
    workspace="default",
    task_id="gr-06gvth4jukpbv0rmaajaog611c",
    kind="evt.task.completed",
    attempt=1,
    trace_id="0af7651916cd43dd8448eb211c80319c",
    causation_id=None,
    actor="cli:ann@desk",
    payload={"task_id": "gr-06gvth4jukpbv0rmaajaog611c", "reason": "x" * 300},
    created_at=NOW,
)

Print = Callable[[Any], str]


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """Return what is printed on a terminal of a width, or into a pipe where there is none."""

    def call(work: Callable[[], None], width: int | None) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width or 40))
        monkeypatch.setattr(sys.stdout, "isatty", lambda: width is not None)
        work()
        return capsys.readouterr().out.splitlines()

    return call


@pytest.mark.parametrize(
    ("width", "expected"),
    [(80, "3 min ago  in 2 h   -"), (None, "2026-02-06T20:57:00Z  2026-02-06T23:00:00Z  -")],
)
def test_times_are_relative_for_people_and_exact_for_programs(
    printed: Callable[..., list[str]], width: int | None, expected: str
) -> None:
    row = {"a": NOW - timedelta(minutes=3), "b": NOW + timedelta(hours=2), "c": None}
    columns = [
        Column("A" * 7, "a", is_age=True),
        Column("B" * 7, "b", is_age=True),
        Column("C" * 7, "c", is_age=True),
    ]
    lines = printed(lambda: table([row], columns, now=NOW), width)
    assert click.unstyle(lines[1]) == expected


def test_a_column_that_says_nothing_is_the_first_to_go(printed: Callable[..., list[str]]) -> None:
    columns = [
        Column("ID", lambda row: "i" * 30),
        Column("MESSAGE", lambda row: "m" * 40, may_shrink=True),
        Column("OWNER", lambda row: row["owner"], spare=1),
        Column("LAST", lambda row: "now", spare=2),
    ]

    def head(owner: str | None, width: int | None) -> list[str]:
        return click.unstyle(printed(lambda: table([{"owner": owner}], columns), width)[0]).split()

    assert head(None, 80) == ["ID", "MESSAGE", "LAST"]
    assert head("ann", 80) == ["ID", "MESSAGE", "OWNER", "LAST"]
    assert head(None, 200) == head(None, None) == ["ID", "MESSAGE", "OWNER", "LAST"]


@pytest.mark.parametrize("text", [LONG, "x" * 200, "ж" * 200, "日本" * 60, "", "short"])
def test_what_wraps_is_never_cut(printed: Callable[..., list[str]], text: str) -> None:
    columns = [
        Column("AT", lambda _row: "12:00"),
        Column("WHAT", lambda _row: text, may_shrink=True, wraps=True),
    ]
    lines = printed(lambda: table([{}], columns), 60)
    assert "".join(line[7:].replace(" ", "") for line in lines[1:]) == text.replace(" ", "")
    assert all(line.startswith((" " * 7, "12:00")) for line in lines[1:])


@pytest.mark.parametrize(("width", "lines"), [(80, 2), (119, 2), (120, 1), (200, 1), (None, 1)])
def test_an_event_fits_its_terminal_and_is_whole_in_a_pipe(
    printed: Callable[..., list[str]], width: int | None, lines: int
) -> None:
    found = printed(lambda: event._print(Output("table"), EVENT), width)
    assert len(found) == lines
    assert str(EVENT.task_id) in found[0]
    assert "by=cli:ann@desk" in found[-1]
    if width is None:
        assert found[0].endswith("  by=cli:ann@desk reason=" + "x" * 300)
    else:
        assert max(map(len, found)) <= max(width, 200)
        assert found[-1].endswith("…")


def told(work: Callable[[], None], capsys: pytest.CaptureFixture[str]) -> str:
    """Return what somebody reads on whom something fails."""

    def do() -> int:
        work()
        return 0

    assert failure.guarded(do, CliState()) != 0
    return capsys.readouterr().err


def test_what_is_missing_or_not_so_is_told_with_what_helps(capsys: pytest.CaptureFixture[str]) -> None:
    def missing() -> None:
        with failure.hinting(missing="grns pool list", conflict="grns pool show"):
            raise NotFoundError("there is no such pool")

    def conflict() -> None:
        with failure.hinting(missing="grns pool list", conflict="grns pool show"):
            raise ConflictError("it is not so")

    assert "try: grns pool list" in told(missing, capsys)
    assert "try: grns pool show" in told(conflict, capsys)


def test_a_number_that_is_none_is_told_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    said = told(lambda: webhook.main(["resend", "wh-1", "seven"], standalone_mode=False), capsys)
    assert "'seven' is not a valid whole number" in said


def test_an_interrupt_while_modules_are_imported_is_no_bug(capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C, or a SIGINT at the start of a worker: pydantic wraps it."""

    def begin() -> int:
        raise SchemaError('Error building "literal" validator:\n  KeyboardInterrupt: ')

    assert failure.guarded(begin, CliState()) == failure.INTERRUPTED
    assert capsys.readouterr().err == ""
