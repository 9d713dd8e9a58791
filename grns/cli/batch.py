"""`grns task submit-many`: a task for each line of a file, and an answer for each line."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import IO, Any

import click

from grns.cli import failure
from grns.cli.group import Command
from grns.cli.output import JSON, Column, Output, output_option
from grns.cli.session import CliSession, with_session
from grns.errors import ConflictError, InvalidInputError
from grns.model.json import Limits, dumps, parse
from grns.model.submission import Submission, submission
from grns.settings import Settings

# As many as one transaction creates.
_BATCH = 500
# A line has other fields than the payload.
_MORE_BYTES, _MORE_VALUES = 64 * 1024, 200
_COLUMNS = (
    Column("LINE", "line"),
    Column("CODE", "code"),
    Column("DETAIL", "detail", may_shrink=True, wraps=True),
)

Answer = dict[str, Any]


@click.command(
    "submit-many",
    cls=Command,
    examples=["grns task submit-many tasks.jsonl", "cat tasks.jsonl | grns task submit-many - -o jsonl"],
)
@click.argument("file", metavar="FILE", type=click.File("rb"))
@output_option
@with_session("write")
async def submit_many(session: CliSession, out: Output, file: IO[bytes]) -> None:
    """Submit a task per line of FILE, or of standard input (-). Each line gets its own answer.

    Each line is a JSON object with the fields of a submission: {"task_type": "fetch_page", "payload":
    {"url": "…"}, "priority": 1, "idempotency_key": "page-1"}. Invalid lines do not affect the others; the
    exit code is then 1. With idempotency keys you can submit the same file again: nothing is created twice.
    """
    settings, problems, kept = session.app.settings, list[Answer](), list[Answer]()
    counts = {"created": 0, "exists": 0, "problem": 0}
    lines = _lines(file, settings.payload_limits.document_bytes + _MORE_BYTES)
    while batch := list(islice(lines, _BATCH)):
        answers = await _answers(session, settings, batch)
        for answer in answers:
            counts[answer["status"]] += 1
        problems += (answer for answer in answers if answer["status"] == "problem")
        if out.form == JSON:
            kept += answers
        elif not out.is_table:
            out.rows(answers)
    if out.form != "jsonl":
        out.rows(problems if out.is_table else kept, _COLUMNS)
    failure.note(
        f"{counts['created']} created, {counts['exists']} existed already, {counts['problem']} are invalid"
    )
    if problems:
        raise click.exceptions.Exit(failure.FAILED)


def _lines(file: IO[bytes], longest: int) -> Iterator[tuple[int, bytes]]:
    """Return the lines that are not blank, with their numbers; of a line that is too long, its beginning."""
    number = 0
    while line := file.readline(longest + 1):
        number += 1
        while not line.endswith(b"\n") and (rest := file.readline(longest + 1)):
            if rest.endswith(b"\n"):
                break
        if line.strip():
            yield number, line


async def _answers(session: CliSession, settings: Settings, lines: list[tuple[int, bytes]]) -> list[Answer]:
    """Create the tasks of valid lines, and return an answer for each line, in order."""
    valid: dict[int, Submission] = {}
    answers: dict[int, Answer] = {}
    for number, line in lines:
        try:
            valid[number] = _read(line, settings)
        except InvalidInputError as error:
            answers[number] = _problem(number, error.code, error)
    made = await session.client.submit_many(valid.values()) if valid else []
    for number, answer in zip(valid, made, strict=True):
        if isinstance(answer, ConflictError):
            answers[number] = _problem(number, "conflict", answer)
        else:
            status = "created" if answer.created else "exists"
            answers[number] = {
                "line": number,
                "status": status,
                "id": answer.id,
                "trace_id": answer.trace_id,
            }
    return [answers[number] for number, _ in lines]


def _problem(number: int, code: str, error: Exception) -> Answer:
    return {"line": number, "status": "problem", "code": code, "detail": str(error)}


def _read(line: bytes, settings: Settings) -> Submission:
    """Return the submission of one line. Raises `InvalidInputError`."""
    limits = settings.payload_limits
    around = Limits(limits.document_bytes + _MORE_BYTES, limits.depth + 1, limits.nodes + _MORE_VALUES)
    fields: dict[str, Any] = parse(line.strip(), around)
    if not isinstance(fields, dict):
        raise InvalidInputError("bad_submission", "a line must be a JSON object with the fields of a task")
    read = submission(**{"workspace": settings.workspace, **fields})
    dumps(read.payload, limits)
    return read
