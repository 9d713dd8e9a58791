"""Mail between agents: handed out until it is acknowledged, sent once, and only by who owns its task."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID, uuid4

import pytest

import grns
from grns.client.client import Client
from grns.errors import InvalidInputError, LeaseLostError, NotFoundError, RateLimitedError
from grns.model.outcome import Claim
from grns.postgres.database import Database
from tests.support.attempts import attempts_of
from tests.support.harness import submit
from tests.support.store import claim, fetch, stranger


@pytest.fixture
async def mailboxes(client: Client) -> Client:
    """A client of a workspace with three agents."""
    for name, pool in (("planner", "plan"), ("coder-1", "code"), ("coder-2", "code")):
        await client.agents.put(name, pool=pool)
    return client


def types(found: Any) -> list[str]:
    """Return the types of messages."""
    return [one.type for one in found]


async def test_a_message_comes_again_until_it_is_acknowledged(mailboxes: Client) -> None:
    mail = mailboxes.mail
    for name in ("one", "two", "three"):
        await mail.send(name, {"n": 1}, to="coder-1", sender="planner", about="gr-1")
    first = await mail.poll("coder-1", limit=2)
    assert types(first) == ["one", "two"]
    assert (first[0].from_agent, first[0].payload, first[0].correlation_id) == ("planner", {"n": 1}, "gr-1")
    again = await mail.poll("coder-1")
    assert types(again) == ["one", "two", "three"]
    assert [one.deliveries for one in again] == [2, 2, 1]
    assert await mail.ack("coder-1", again[1]) == 1
    assert await mail.ack("coder-1", again[0]) == 1
    assert types(await mail.poll("coder-1")) == ["three"]
    assert await mail.ack("coder-1", [again[2].id, again[0].id]) == 1
    assert await mail.poll("coder-1") == []
    assert await mail.poll("coder-2") == []
    assert types((await mail.list(about="gr-1")).rows) == ["one", "two", "three"]


async def test_what_was_never_handed_out_is_not_acknowledged(mailboxes: Client, shared: Database) -> None:
    """A transaction that took a lower number may commit later."""
    mail = mailboxes.mail
    async with stranger(shared) as connection:
        await connection.fetch("select grns.send_mail('late', to_agent => 'coder-1')")
        await mail.send("early", to="coder-1")
        (early,) = await mail.poll("coder-1")
        await connection.execute("commit")
        assert await mail.ack("coder-1", early) == 1
    assert types(await mail.poll("coder-1")) == ["late"]


async def test_a_message_that_is_sent_again_is_one(mailboxes: Client, shared: Database) -> None:
    for _ in range(2):
        assert await mailboxes.mail.send("once", to="coder-1", message_id=(new := uuid4())) == new
        assert await mailboxes.mail.send("once", to="coder-1", message_id=new) == new
    assert types(await mailboxes.mail.poll("coder-1")) == ["once", "once"]
    (row,) = await fetch(shared, "select count(*) as n from grns.events where kind = 'evt.message.sent'")
    assert row["n"] == 2


async def test_a_message_to_many_has_a_place_in_each_mailbox(mailboxes: Client) -> None:
    mail = mailboxes.mail
    await mail.send("to_coders", pool="code", sender="coder-1")
    await mail.send("to_all", sender="planner")
    assert types(await mail.poll("coder-1")) == ["to_all"]
    assert types(await mail.poll("coder-2")) == ["to_coders", "to_all"]
    assert await mail.poll("planner") == []


async def test_a_reply_belongs_to_the_conversation(mailboxes: Client) -> None:
    mail = mailboxes.mail
    await mail.send("ask", to="coder-1", sender="planner", about="gr-7")
    (asked,) = await mail.poll("coder-1")
    await mail.send("answer", {"fine": True}, to="planner", sender="coder-1", reply_to=asked)
    (answer,) = await mail.poll("planner")
    assert (answer.in_reply_to, answer.correlation_id) == (asked.id, "gr-7")


async def test_who_waits_is_told(mailboxes: Client) -> None:
    asking = asyncio.create_task(mailboxes.mail.poll("coder-1", wait=20))
    await asyncio.sleep(0.2)
    began_at = time.monotonic()
    await mailboxes.mail.send("now", to="coder-1")
    assert types(await asking) == ["now"]
    assert time.monotonic() - began_at < 2


async def test_old_messages_are_not_handed_out(mailboxes: Client, shared: Database) -> None:
    await mailboxes.mail.send("stale", to="coder-1", expires=1)
    await fetch(shared, "update grns.mail set expires_at = now() - interval '1 s'")
    assert await mailboxes.mail.poll("coder-1") == []


async def test_what_cannot_be_sent(mailboxes: Client, shared: Database) -> None:
    mail = mailboxes.mail
    for wrong in (
        {"type": "a b"}, {"to": "a b"}, {"to": "coder-1", "pool": "code"}, {"about": "\n"}, {"expires": 0},
        {"expires": 32 * 86_400}, {"payload": {"a": "x" * 300_000}}, {"expires": "soon"},
    ):  # fmt: skip
        said: dict[str, Any] = {"type": "ok", **wrong}
        with pytest.raises(InvalidInputError):
            await mail.send(said.pop("type"), said.pop("payload", None), **said)
    with pytest.raises(NotFoundError):
        await mail.send("ok", to="nobody")
    for wrong in ({"limit": 0}, {"after": "!"}):
        with pytest.raises(InvalidInputError):
            await mail.list(**wrong)
    assert await fetch(shared, "select from grns.mail") == []


async def test_a_mailbox_can_be_full(mailboxes: Client, shared: Database) -> None:
    await fetch(
        shared,
        "insert into grns.mail (id, workspace, to_agent, type, payload, expires_at)"
        " select gen_random_uuid(), 'default', 'coder-1', 'old', '{}', now() + interval '1 day'"
        " from generate_series(1, 10000)",
    )
    with pytest.raises(RateLimitedError, match="coder-1"):
        await mailboxes.mail.send("more", to="coder-1")
    await mailboxes.mail.send("more", to="coder-2")


@contextmanager
def sending(shared: Database, client: Client, sent: list[str]) -> Iterator[Any]:
    """Let a handler send mail, having lost its task before."""
    pool = grns.Pool("worker")

    @pool.task("noop")
    async def work(ctx: grns.Context) -> None:
        await client.mail.send("before", to="coder-1", sender="planner")
        await fetch(shared, "update grns.tasks set lease_id = gen_random_uuid() where id = $1", ctx.id)
        try:
            await client.mail.send("after", to="coder-1", sender="planner")
        except LeaseLostError:
            sent.append("refused")

    with attempts_of(pool, shared, client) as attempts:
        yield attempts


async def test_an_attempt_that_has_lost_its_task_sends_nothing(mailboxes: Client, shared: Database) -> None:
    sent: list[str] = []
    task = await submit(shared)
    with sending(shared, mailboxes, sent) as attempts:
        await attempts.run(task.id)
    assert sent == ["refused"]
    (found,) = await mailboxes.mail.poll("coder-1")
    assert (found.type, found.from_task, found.from_attempt) == ("before", task.id, 1)


async def test_mail_from_sql_commits_with_the_transaction(mailboxes: Client, shared: Database) -> None:
    async with stranger(shared) as connection:
        await connection.fetch("select grns.send_mail('never', to_agent => 'coder-1')")
        await connection.execute("rollback")
    assert await mailboxes.mail.poll("coder-1") == []


async def test_a_task_asks_an_agent_once_and_gets_its_answer(mailboxes: Client, shared: Database) -> None:
    """Whatever happens between: the worker dies, the answer is sent twice, the task does not run."""
    pool = grns.Pool("worker")

    @pool.task("noop")
    async def ask(ctx: grns.Context) -> Any:
        reply = await ctx.ask_agent("coder-1", "question", {"n": 1})
        return [reply.type, reply.from_agent, reply.payload]

    task = await submit(shared)
    with attempts_of(pool, shared, mailboxes) as attempts:
        assert await asyncio.create_task(attempts.run(task.id)) == "waiting"
        (question,) = await mailboxes.mail.poll("coder-1")
        assert (question.type, question.payload, question.correlation_id) == ("question", {"n": 1}, task.id)
        assert (question.from_task, question.from_agent) == (task.id, None)
        new = uuid4()
        for _ in range(2):
            await mailboxes.mail.send("answer", {"n": 2}, sender="coder-1", reply_to=question, message_id=new)
        assert (await mailboxes.get(task.id)).status == "queued"
        assert await asyncio.create_task(attempts.run(task.id)) == "succeeded"
    assert (await mailboxes.get(task.id)).result == ["answer", "coder-1", {"n": 2}]
    assert types(await mailboxes.mail.poll("coder-1")) == ["question"]
    said = (await mailboxes.mail.list(about=task.id)).rows
    assert [(one.type, one.to_agent, one.to_task) for one in said] == [
        ("question", "coder-1", None), ("answer", None, task.id),
    ]  # fmt: skip


async def test_who_was_not_asked_by_anyone_cannot_be_answered(mailboxes: Client) -> None:
    sent = await mailboxes.mail.send("hint", to="coder-1")
    for missing in (sent, uuid4()):
        with pytest.raises(NotFoundError):
            await mailboxes.mail.send("answer", reply_to=missing)
    assert await mailboxes.mail.poll("planner") == [], "no answer goes to all"


async def test_tasks_that_answer_each_other_do_not_deadlock(mailboxes: Client, shared: Database) -> None:
    """Each answer locks the task that sends it and the one that gets it."""
    claims = [await claim(shared, (await submit(shared)).id) for _ in range(2)]
    asked = [uuid4(), uuid4()]
    send = """
        select grns.send_mail($1, in_reply_to => $2, to_agent => $3, message_id => $4, task_id => $5, attempt => 1, lease_id => $6)
    """  # noqa: E501
    for id_, one in zip(asked, claims, strict=True):
        await fetch(shared, send, "ask", None, "planner", id_, one.id, one.lease_id)

    async def answer(one: Claim, id_: UUID) -> None:
        for _ in range(100):
            await fetch(shared, send, "answer", id_, None, uuid4(), one.id, one.lease_id)

    await asyncio.gather(answer(claims[0], asked[1]), answer(claims[1], asked[0]))
