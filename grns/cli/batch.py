"""`grns task submit-many`: a task for each line of a file, and an answer for each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice
from typing import IO, TYPE_CHECKING, Any

import click

from grns.cli import failure
from grns.cli.group import Command
from grns.cli.output import Column, Output, output_option

if TYPE_CHECKING:
    from grns.client.client import Client
    from grns.settings import Settings

# As many as one transaction creates.
_BATCH = 500
# Around a payload a line has the other fields of a task.
_ROOM_BYTES, _ROOM_VALUES = 64 * 1024, 200
_COLUMNS = [
    Column("LINE", lambda row: row["line"]),
    Column("CODE", lambda row: row["code"]),
    Column("DETAIL", lambda row: row["detail"], may_shrink=True, wraps=True),
]

Answer = dict[str, Any]


@click.command("submit-many", cls=Command)
@click.argument("file", metavar="FILE", type=click.File("rb"))
@output_option
def submit_many(out: Output, file: IO[bytes]) -> None:
    """Submit a task per line of FILE, or of standard input (-). Each line gets its own answer.

    Each line is a JSON object with the fields of a submission: {"task_type": "fetch_page", "payload":
    {"url": "…"}, "priority": 1, "idempotency_key": "page-1"}. Invalid lines do not affect the others; the
    exit code is then 1. With idempotency keys you can submit the same file again: nothing is created twice.
    """
    problems, created, known = asyncio.run(_submit(out, file))
    if out.is_table:
        out.rows(problems, _COLUMNS)
    failure.note(f"{created} created, {known} were there already, {len(problems)} are wrong")
    if problems:
        raise click.exceptions.Exit(failure.FAILED)


async def _submit(out: Output, file: IO[bytes]) -> tuple[list[Answer], int, int]:
    """Create them, some at a time; returns the answers that are problems, and how many are none."""
    from grns.cli.session import writing
    from grns.settings import load

    settings, problems, kept = load(), list[Answer](), list[Answer]()
    created = known = 0
    lines = _lines(file, settings.payload_limits.document_bytes + _ROOM_BYTES)
    async with writing() as session:
        while some := list(islice(lines, _BATCH)):
            answers = await _answers(session.client, settings, some)
            problems += (one for one in answers if one["status"] == "problem")
            created += sum(one["status"] == "created" for one in answers)
            known += sum(one["status"] == "exists" for one in answers)
            if out.form == "json":
                kept += answers
            elif not out.is_table:
                out.rows(answers, [])
    if out.form == "json":
        out.rows(kept, [])
    return problems, created, known


def _lines(file: IO[bytes], longest: int) -> Iterator[tuple[int, bytes]]:
    """Return the lines that are not blank, with their numbers; of one that is too long, its beginning."""
    number = 0
    while line := file.readline(longest + 1):
        number += 1
        while not line.endswith(b"\n") and (rest := file.readline(longest + 1)):
            if rest.endswith(b"\n"):
                break
        if line.strip():
            yield number, line


async def _answers(client: Client, settings: Settings, lines: list[tuple[int, bytes]]) -> list[Answer]:
    """Create what is right, and return an answer for each line, in their order."""
    from grns.errors import ConflictError, InvalidInputError

    read: dict[int, dict[str, Any]] = {}
    said: dict[int, Answer] = {}
    for number, line in lines:
        try:
            read[number] = _read(line, settings)
        except InvalidInputError as error:
            said[number] = {"line": number, "status": "problem", "code": error.code, "detail": str(error)}
    made = await client.submit_many(read.values()) if read else []
    for number, answer in zip(read, made, strict=True):
        if isinstance(answer, ConflictError):
            said[number] = {"line": number, "status": "problem", "code": "conflict", "detail": str(answer)}
        else:
            status = "created" if answer.is_new else "exists"
            said[number] = {
                "line": number,
                "status": status,
                "id": answer.id,
                "trace_id": answer.trace_id,
            }
    return [said[number] for number, _ in lines]


def _read(line: bytes, settings: Settings) -> dict[str, Any]:
    """Return the fields of one line; `InvalidInputError` says what is wrong with it."""
    from grns.errors import InvalidInputError
    from grns.model.json import Limits, dumps, parse
    from grns.model.submission import submission

    limits = settings.payload_limits
    around = Limits(limits.document_bytes + _ROOM_BYTES, limits.depth + 1, limits.nodes + _ROOM_VALUES)
    fields: dict[str, Any] = parse(line.strip(), around)
    if not isinstance(fields, dict):
        raise InvalidInputError("bad_submission", "a line is a JSON object with the fields of a task")
    dumps(submission(**fields).payload, limits)
    return fields
