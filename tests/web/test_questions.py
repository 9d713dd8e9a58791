"""The inbox of questions, and the page of a link."""

from __future__ import annotations

import json
import re
from uuid import uuid4

import pytest

from grns.client.client import Client
from grns.model.form import form_of
from grns.model.question import APPROVAL
from grns.postgres.database import Database
from grns.tasks.questions import Questions
from tests.support.api import OURS
from tests.support.harness import submit
from tests.support.store import fetch
from tests.support.web import Browser, Document, Hall

FORM = form_of(
    {
        "type": "object",
        "properties": {
            "amount": {"type": "number", "minimum": 0, "title": "Amount"},
            "reason": {"type": "string", "enum": ["late", "broken"]},
            "parts": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
            "urgent": {"type": "boolean"},
            "when": {"type": "string", "format": "date"},
            "note": {"type": "string", "maxLength": 20},
        },
        "required": ["amount", "urgent"],
    }
)
_ASK = """
    insert into grns.questions (id, workspace, task_id, step, kind, title, body, evidence, form, asked_of,
        digest, attempt)
    values ($1, $2, $3, 'ask it', $4, $5, 'Look at <b>this</b>', '{"euro": 900}', $6::text::jsonb,
        '{role:finance}', repeat('a', 64), 1)
"""


async def ask(database: Database, kind: str = "question", workspace: str = OURS) -> str:
    """Let a task ask, and return the id of the question."""
    task = await submit(database, workspace=workspace)
    form = FORM if kind == "question" else APPROVAL
    question_id = uuid4()
    await fetch(database, _ASK, question_id, workspace, task.id, kind, "Pay <900>?", json.dumps(form))
    return str(question_id)


async def answered(database: Database, question_id: str) -> tuple[str, object, str]:
    (row,) = await fetch(
        database,
        "select state, answer::text as answer, answered_by from grns.questions where id = $1::text::uuid",
        question_id,
    )
    return row["state"], row["answer"] and json.loads(row["answer"]), row["answered_by"]


async def test_somebody_answers_on_the_page(hall: Hall) -> None:
    question_id = await ask(hall.database)
    browser = await hall.logged_in("read", "answer")
    inbox = await browser.open("/questions")
    assert "Pay <900>?" in inbox.root.text
    shown = await browser.open(f"/questions/{question_id}")
    assert "Look at <b>this</b>" in shown.root.text, "it is text"
    form = shown.form(f"/questions/{question_id}/answer")
    wrong = await browser.submit(form, more={"answer.amount": "-3"}, status=400)
    assert "greater than or equal to 0" in wrong.root.text
    said = {"answer.amount": "3.5", "answer.urgent": "true", "answer.when": "2026-12-24", "comment": "soon"}
    done = await browser.submit(form, more=said)
    assert "The answer was recorded" in done.root.text
    state, answer, who = await answered(hall.database, question_id)
    assert state == "answered"
    assert answer == {"amount": 3.5, "urgent": True, "when": "2026-12-24", "parts": []}
    assert who.startswith("key:")
    again = await browser.submit(form, more=said, status=200)
    assert "answered by" in again.root.text.lower(), "the same once more"
    assert "There are no such questions" in (await browser.open("/questions")).root.text
    assert "Pay <900>?" in (await browser.open("/questions?state=answered")).root.text


@pytest.mark.parametrize(("decision", "approved"), [("approve", True), ("reject", False)])
async def test_somebody_approves_or_rejects(hall: Hall, decision: str, approved: bool) -> None:
    question_id = await ask(hall.database, "approval")
    browser = await hall.logged_in("read", "answer")
    form = (await browser.open(f"/questions/{question_id}")).form(f"/questions/{question_id}/answer")
    await browser.submit(form, button=("decision", decision))
    assert (await answered(hall.database, question_id))[:2] == ("answered", {"approved": approved})


async def test_a_key_without_the_scope_looks_only(hall: Hall) -> None:
    question_id = await ask(hall.database)
    browser = await hall.logged_in("read")
    shown = await browser.open(f"/questions/{question_id}")
    assert "Your key lacks the scope" in shown.root.text
    (row,) = await fetch(hall.database, "select seen_at from grns.questions")
    assert row["seen_at"] is None
    await (await hall.logged_in("read", "answer")).open(f"/questions/{question_id}")
    (row,) = await fetch(hall.database, "select seen_by from grns.questions")
    assert row["seen_by"].startswith("key:")


async def linked(hall: Hall, client: Client, question_id: str) -> str:
    from uuid import UUID

    store = Questions(hall.database, client._transport, OURS, "ann")
    return (await store.link(UUID(question_id), seconds=600)).secret


async def test_whoever_has_the_link_answers_once_without_a_key(hall: Hall, client: Client) -> None:
    question_id = await ask(hall.database)
    await hall.door.key()
    secret = await linked(hall, client, question_id)
    async with hall.visitor() as visitor:
        browser = Browser(visitor, hall)
        for _ in range(3):  # a mail scanner looks, and changes nothing
            shown = await browser.open(f"/q/{question_id}?t={secret}")
        assert (await answered(hall.database, question_id))[0] == "open"
        form = shown.form(f"/q/{question_id}")
        await browser.submit(form, more={"answer.amount": "-1", "answer.urgent": "true"}, status=400)
        done = await browser.submit(form, more={"answer.amount": "1", "answer.urgent": "true"})
        assert "Answered by link:ann" in done.root.text
        await browser.submit(form, more={"answer.amount": "2", "answer.urgent": "true"}, status=404)
        await browser.open(f"/q/{question_id}?t={secret}", status=404)
    assert (await answered(hall.database, question_id))[:2] == (
        "answered", {"amount": 1, "urgent": True, "parts": []},
    )  # fmt: skip


@pytest.mark.parametrize("secret", ["", "x", "é", "a" * 5000])
async def test_a_wrong_link_shows_nothing(hall: Hall, client: Client, secret: str) -> None:
    question_id = await ask(hall.database)
    await hall.door.key()
    await linked(hall, client, question_id)
    async with hall.visitor() as visitor:
        browser = Browser(visitor, hall)
        shown: Document = await browser.open(f"/q/{question_id}?t={secret}", status=404)
        assert not re.search("Pay|Look at", shown.root.text)
        await browser.open(f"/q/nonsense?t={secret}", status=404)
