"""`grns task question …`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import click

from grns.cli import option
from grns.cli.group import Group
from grns.cli.output import Cell, Column, Output, details, document, output_option, passage, text
from grns.cli.session import CliSession, paged, with_session
from grns.errors import ConflictError, InvalidInputError
from grns.model.form import read_answer
from grns.model.question import QuestionSummary, TaskQuestion
from grns.model.text import safe
from grns.postgres.paging import Page
from grns.tasks.questions import STATES

_DAY = 86_400.0
_ID = click.argument("question_id", metavar="QUESTION_ID", type=click.UUID)
_COLUMNS = (
    Column("ID", "id"),
    Column("QUESTION", "title", may_shrink=True),
    Column("KIND", "kind", spare=2),
    Column("ASKED OF", lambda one: " ".join(one.asked_of), may_shrink=True, spare=3),
    Column("TASK TYPE", "task_type", may_shrink=True, spare=1),
    Column("ASKED", "asked_at", is_age=True),
    Column("DUE", "due_at"),
    Column("STATE", "state", is_status=True),
)
_FIELDS: Sequence[tuple[str, Cell]] = (
    ("id", "id"),
    ("question", "title"),
    ("kind", "kind"),
    ("asked of", lambda one: " ".join(one.asked_of)),
    ("task", "task_id"),
    ("type", "task_type"),
    ("asked", "asked_at"),
    ("due", "due_at"),
    ("state", "state"),
    ("digest", "digest"),
    ("answered by", "answered_by"),
    ("answered", "answered_at"),
    ("comment", "comment"),
)


@click.group(cls=Group)
def question() -> None:
    """List and answer what handlers ask people."""


@question.command(
    "list", examples=["grns task question list", "grns task question list --asked-of role:finance"]
)
@click.option("--state", type=click.Choice([*STATES, "all"]), default="open", show_default=True)
@click.option("--asked-of", metavar="NAME", help="Only what asks this one, such as role:finance.")
@paged(_COLUMNS, nothing="no such questions")
async def list_(session: CliSession, state: str, asked_of: str | None, **page: Any) -> Page[QuestionSummary]:
    """List questions, the latest first."""
    return await session.client.questions.list(
        state=None if state == "all" else state, asked_of=asked_of, **page
    )


@question.command(
    examples=["grns task question show QUESTION_ID", "grns task question show QUESTION_ID -o json"]
)
@_ID
@output_option
@with_session("read")
async def show(session: CliSession, out: Output, question_id: UUID) -> None:
    """Show a question with its form, and its answer."""
    found = await session.client.questions.get(question_id, sees=True)
    out.record(found, lambda: _draw(found))


@question.command(
    examples=[
        "grns task question answer QUESTION_ID",
        """grns task question answer QUESTION_ID --value '{"approved": true}' --comment 'fine'""",
    ]
)
@_ID
@click.option("--value", metavar="JSON", help="The answer: JSON, @FILE, or - for standard input.")
@click.option("--comment", metavar="TEXT", help="Text for the handler.")
@output_option
@with_session("write")
async def answer(
    session: CliSession, out: Output, question_id: UUID, value: str | None, comment: str | None
) -> None:
    """Answer a question. Without --value, it is shown, and its fields are asked for one by one."""
    found = await session.client.questions.get(question_id, sees=True)
    if found.state != "open":
        raise ConflictError(f"question {question_id} takes no answer: it is {found.state}")
    if value is not None:
        said = option.read_json(value)
    elif out.is_table and sys.stdin.isatty():
        _draw(found)
        said = _ask(found.form)
    else:
        raise InvalidInputError("bad_answer", "pass the answer with --value")
    done = await session.client.questions.answer(question_id, said, digest=found.digest, comment=comment)
    out.record(done, lambda: text(f"answered: task {done.task_id} runs again"))


@question.command(
    examples=["grns task question link QUESTION_ID", "grns task question link QUESTION_ID --valid 2d"]
)
@_ID
@click.option(
    "--valid",
    type=option.Duration(code="bad_link"),
    metavar="TIME",
    default=7 * _DAY,
    help="How long: 2h, 7d.",
)
@output_option
@with_session("write")
async def link(session: CliSession, out: Output, question_id: UUID, valid: float) -> None:
    """Make a link with which one person without a key may answer a question, once. It is a secret."""
    made = await session.client.questions.link(question_id, seconds=valid)
    path = f"/q/{question_id}?t={made.secret}"
    out.record({"path": path, "until": made.until}, lambda: text(f"the dashboard's address, and {path}"))


def _draw(found: TaskQuestion) -> None:
    details(found, _FIELDS)
    if found.body:
        passage("body", found.body)
    if found.evidence is not None:
        document("evidence", found.evidence)
    document("form", found.form["properties"])
    if found.answer is not None:
        document("answer", found.answer)


def _ask(form: Mapping[str, Any]) -> dict[str, Any]:
    """Ask for each field of a form on the terminal."""
    texts: dict[str, list[str]] = {}
    for name, field in form["properties"].items():
        title, default = safe(str(field.get("title", name))), field.get("default")
        if field["type"] == "boolean":
            texts[name] = ["yes" if click.confirm(title, default=default, err=True) else "no"]
        elif field["type"] == "array":
            choices = field["items"]["enum"]
            texts[name] = [
                one
                for one in choices
                if click.confirm(f"{title}: {safe(one)}", one in (default or ()), err=True)
            ]
        elif "enum" in field:
            texts[name] = [click.prompt(title, type=click.Choice(field["enum"]), default=default, err=True)]
        else:
            shown = "" if default is None and name not in form["required"] else default
            texts[name] = [str(click.prompt(title, default=shown, show_default=bool(default), err=True))]
    return read_answer(form, texts)
