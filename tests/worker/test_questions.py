"""Questions to people: the slot is free meanwhile, one answer counts, and it counts for what was shown."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any, Literal
from uuid import UUID, uuid4

import asyncpg
import pytest
from pydantic import BaseModel, Field, field_validator

import grns
from grns.client.client import Client
from grns.errors import ConflictError, InvalidInputError, NotFoundError, PermissionDeniedError
from grns.maintenance.scheduler import promote
from grns.model.question import TaskQuestion
from grns.postgres.database import Database
from grns.tasks.questions import Questions
from grns.testing import context
from tests.support.attempts import Attempts, attempts_of
from tests.support.harness import submit
from tests.support.store import cancel, claim, fetch, kinds_of, log_of, redrive, row_of

POOL = grns.Pool("worker", backoff=grns.Backoff(base_seconds=0.001))
TIMEOUT: list[float | None] = [None]
SHOWN: list[Any] = [{"order": 7}]
FAILS: list[bool] = []


class Refund(BaseModel):
    amount: Annotated[float, Field(ge=0)]
    reason: Literal["late", "broken"] = "late"


@POOL.task("noop")
async def refund(payload: dict[str, Any], ctx: grns.Context) -> dict[str, Any]:
    answer = await ctx.ask_person(
        "refund", Refund, title="Refund order 7?", evidence=SHOWN[0], to=["role:finance"], timeout=TIMEOUT[0],
        default=Refund(amount=0) if payload.get("has_default") else None,
    )  # fmt: skip
    if FAILS:
        FAILS.clear()
        raise ConnectionError
    return {"amount": answer.value.amount, "by": answer.answered_by, "comment": answer.comment}


@POOL.task("pay")
async def pay(payload: dict[str, Any], ctx: grns.Context) -> list[Any]:
    approval = await ctx.approve("pay", title="Pay 900 €?", evidence=payload)
    return [approval.value, approval.answered_by]


@pytest.fixture
def attempts(shared: Database, client: Client) -> Iterator[Attempts]:
    TIMEOUT[0], SHOWN[0] = None, {"order": 7}
    FAILS.clear()
    with attempts_of(POOL, shared, client) as attempts:
        yield attempts


async def asked(attempts: Attempts, client: Client, **fields: Any) -> TaskQuestion:
    """Let a task ask, and return the question."""
    task = await submit(attempts.database, **fields)
    assert await attempts.run(task.id) == "waiting"
    (found,) = [one for one in (await client.questions.list()).rows if one.task_id == task.id]
    return await client.questions.get(found.id)


def answers(client: Client, actor: str | None) -> Questions:
    return Questions(client._database, client._transport, "default", actor)


async def test_a_task_waits_without_a_slot_until_somebody_answers(
    attempts: Attempts, client: Client, shared: Database
) -> None:
    question = await asked(attempts, client, max_attempts=1)
    row = await row_of(shared, question.task_id)
    assert (row["waits_for"], row["uncounted_attempts"]) == ("signal", 1)
    assert (question.title, question.asked_of, question.evidence, question.state) == (
        "Refund order 7?", ["role:finance"], {"order": 7}, "open",
    )  # fmt: skip
    assert (await client.questions.list(asked_of="role:legal")).rows == []
    done = await answers(client, "ann").answer(
        question.id, {"amount": 3}, digest=question.digest, comment="ok"
    )
    assert (done.state, done.answered_by) == ("answered", "ann")
    assert done.answer == {"amount": 3.0, "reason": "late"}, "with what was left to the default"
    assert await attempts.run(question.task_id) == "succeeded"
    assert (await row_of(shared, question.task_id))[
        "result"
    ] == '{"by": "ann", "amount": 3.0, "comment": "ok"}'
    kinds = await kinds_of(shared, question.task_id)
    assert [kind for kind in kinds if "question" in kind] == ["evt.question.asked", "evt.question.answered"]
    (event,) = [
        one for one in await log_of(shared, question.task_id) if one["kind"] == "evt.question.answered"
    ]
    assert event["actor"] == "ann"


async def test_the_same_answer_is_used_by_later_attempts(
    attempts: Attempts, client: Client, shared: Database
) -> None:
    question = await asked(attempts, client)
    await client.questions.answer(question.id, {"amount": 3}, digest=question.digest)
    FAILS.append(True)
    assert await attempts.run(question.task_id) == "retry_wait"
    await fetch(shared, "update grns.tasks set next_attempt_at = now()")
    assert await attempts.run(question.task_id) == "succeeded"
    assert (await kinds_of(shared, question.task_id)).count("evt.question.asked") == 1


async def test_one_of_many_answers_counts(attempts: Attempts, client: Client, shared: Database) -> None:
    question = await asked(attempts, client)
    given = await asyncio.gather(
        *(
            answers(client, f"p{n}").answer(question.id, {"amount": n}, digest=question.digest)
            for n in range(8)
        ),
        return_exceptions=True,
    )
    taken = [one for one in given if not isinstance(one, BaseException)]
    assert len(taken) == 1
    assert all(isinstance(one, ConflictError) for one in given if one is not taken[0])
    again = await answers(client, taken[0].answered_by).answer(
        question.id, taken[0].answer, digest=question.digest
    )
    assert again == taken[0], "the same person may say the same once more"
    assert await attempts.run(question.task_id) == "succeeded"
    assert f'"by": "{taken[0].answered_by}"' in (await row_of(shared, question.task_id))["result"]


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"amount": -1},
        {"amount": "3"},
        {"amount": 1, "who": "x"},
        [1],
        None,
        {"amount": 1, "reason": None},
    ],
)
async def test_an_answer_that_does_not_fit_leaves_the_question_open(
    attempts: Attempts, client: Client, answer: Any
) -> None:
    question = await asked(attempts, client)
    with pytest.raises(InvalidInputError) as caught:
        await client.questions.answer(question.id, answer, digest=question.digest)
    assert caught.value.code == "bad_answer"
    assert (await client.questions.get(question.id)).state == "open"


async def test_an_answer_to_something_else_is_refused(attempts: Attempts, client: Client) -> None:
    question = await asked(attempts, client)
    with pytest.raises(ConflictError, match="has changed"):
        await client.questions.answer(question.id, {"amount": 3}, digest="0" * 64)
    with pytest.raises(NotFoundError):
        await client.questions.get(uuid4())


async def test_what_was_answered_is_not_used_for_what_is_shown_later(
    attempts: Attempts, client: Client, shared: Database
) -> None:
    question = await asked(attempts, client, max_attempts=1)
    await client.questions.answer(question.id, {"amount": 3}, digest=question.digest)
    SHOWN[0] = {"order": 8}
    assert await attempts.run(question.task_id) == "waiting", "it is asked anew"
    again = await client.questions.get(question.id)
    assert (again.state, again.evidence, again.answer) == ("open", {"order": 8}, None)
    assert (await kinds_of(shared, question.task_id)).count("evt.question.asked") == 2
    with pytest.raises(ConflictError, match="has changed"):
        await client.questions.answer(question.id, {"amount": 3}, digest=question.digest)
    await client.questions.answer(question.id, {"amount": 4}, digest=again.digest)
    SHOWN[0] = {"order": 9}
    assert await attempts.run(question.task_id) == "waiting"
    last = await client.questions.get(question.id)
    await client.questions.answer(question.id, {"amount": 5}, digest=last.digest)
    FAILS.append(True)
    assert await attempts.run(question.task_id) == "retry_wait"
    SHOWN[0] = {"order": 10}  # it has been taken: a new version may show it in other words
    await fetch(shared, "update grns.tasks set next_attempt_at = now()")
    assert await attempts.run(question.task_id) == "succeeded"


@pytest.mark.parametrize("number", [1e18, 1.7e18, -0.0, 3.0, 0.1, 2**53 + 1, 1e300])
async def test_numbers_that_postgres_has_kept_are_the_same_evidence(
    attempts: Attempts, client: Client, shared: Database, number: float
) -> None:
    SHOWN[0] = {"n": number}
    question = await asked(attempts, client)
    await client.questions.answer(question.id, {"amount": 3}, digest=question.digest)
    SHOWN[0] = (await client.questions.get(question.id)).evidence
    assert await attempts.run(question.task_id) == "succeeded"


async def test_a_signal_with_the_id_of_the_question_does_no_harm(
    attempts: Attempts, client: Client, shared: Database
) -> None:
    question = await asked(attempts, client)
    assert await client.signal(question.task_id, "x", 1, signal_id=question.id) == "kept"
    await client.questions.answer(question.id, {"amount": 3}, digest=question.digest)
    assert await attempts.run(question.task_id) == "succeeded"


@pytest.mark.parametrize("answer", [None, [], {"approved": "false"}, {"approved": None}, {}, {"approved": 1}])
async def test_sql_takes_no_answer_that_is_none(
    attempts: Attempts, client: Client, shared: Database, answer: Any
) -> None:
    task = await submit(shared, "pay")
    await attempts.run(task.id)
    (found,) = (await client.questions.list()).rows
    question = await client.questions.get(found.id)
    with pytest.raises(asyncpg.PostgresError, match="answer"):
        await fetch(
            shared,
            "select grns.answer_question($1, $2, $3::text::jsonb)",
            question.id,
            question.digest,
            json.dumps(answer),
        )
    assert (await client.questions.get(found.id)).state == "open"


async def test_an_answer_that_the_model_refuses_ends_the_task(shared: Database, client: Client) -> None:
    class Even(BaseModel):
        number: int

        @field_validator("number")
        @classmethod
        def _even(cls, value: int) -> int:
            if value % 2:
                raise ValueError("odd")
            return value

    pool = grns.Pool("worker")

    @pool.task("noop")
    async def pick(ctx: grns.Context) -> int:
        return (await ctx.ask_person("pick", Even, title="Which one?")).value.number

    with attempts_of(pool, shared, client) as attempts:
        task = await submit(shared)
        await attempts.run(task.id)
        (found,) = (await client.questions.list()).rows
        question = await client.questions.get(found.id)
        await client.questions.answer(question.id, {"number": 3}, digest=question.digest)
        assert await attempts.run(task.id) == "failed"
        assert "grns task reset" in (await row_of(shared, task.id))["last_error"]
        assert await client.reset(task.id, to="ask pick") == "redriven"
        await attempts.run(task.id)
        await client.questions.answer(question.id, {"number": 4}, digest=question.digest)
        assert await attempts.run(task.id) == "succeeded"


async def test_nobody_answers_in_time(attempts: Attempts, client: Client, shared: Database) -> None:
    TIMEOUT[0] = 60.0
    question = await asked(attempts, client, payload={"has_default": True})
    await fetch(shared, "update grns.questions set due_at = now()")
    await fetch(shared, "update grns.signal_waits set until = now()")
    await fetch(shared, "update grns.tasks set next_attempt_at = now()")
    with pytest.raises(ConflictError, match="its time is over"):
        await client.questions.answer(question.id, {"amount": 3}, digest=question.digest)
    await promote(shared, 10, None)
    assert await attempts.run(question.task_id) == "succeeded"
    assert '"amount": 0' in (await row_of(shared, question.task_id))["result"]
    assert (await client.questions.get(question.id)).state == "expired"
    assert (await kinds_of(shared, question.task_id)).count("evt.question.expired") == 1


async def test_a_time_out_without_a_default_is_an_error(
    attempts: Attempts, client: Client, shared: Database
) -> None:
    TIMEOUT[0] = 60.0
    question = await asked(attempts, client, max_attempts=1)
    await fetch(shared, "update grns.signal_waits set until = now()")
    await fetch(shared, "update grns.tasks set next_attempt_at = now()")
    await promote(shared, 10, None)
    assert await attempts.run(question.task_id) == "retry_wait", "it has recorded the time-out"
    await fetch(shared, "update grns.tasks set next_attempt_at = now()")
    assert await attempts.run(question.task_id) == "dead"
    assert "WaitTimeoutError" in (await row_of(shared, question.task_id))["last_error"]


async def run_once_unlocked(attempts: Attempts, task_id: str) -> str:
    """Run an attempt once no answer has the task locked."""
    while True:
        try:
            return await attempts.run(task_id)
        except AssertionError as error:
            if "locked" not in str(error):
                raise


async def test_an_answer_and_the_time_out_at_the_same_moment(
    attempts: Attempts, client: Client, shared: Database
) -> None:
    TIMEOUT[0] = 60.0
    for round_ in range(10):
        question = await asked(attempts, client, payload={"has_default": True})
        await fetch(shared, "update grns.signal_waits set until = now()")
        await fetch(shared, "update grns.tasks set next_attempt_at = now() where status = 'waiting'")
        await promote(shared, 10, None)
        given, status = await asyncio.gather(
            client.questions.answer(question.id, {"amount": 1 + round_}, digest=question.digest),
            run_once_unlocked(attempts, question.task_id),
            return_exceptions=True,
        )
        assert status == "succeeded"
        result = (await row_of(shared, question.task_id))["result"]
        state = (await client.questions.get(question.id)).state
        is_answered = not isinstance(given, BaseException)
        assert state == ("answered" if is_answered else "expired")
        assert (f'"amount": {1 + round_}' in result) == is_answered


async def test_the_question_of_a_task_that_has_ended_takes_no_answer(
    attempts: Attempts, client: Client, shared: Database
) -> None:
    question = await asked(attempts, client)
    await cancel(shared, question.task_id)
    with pytest.raises(ConflictError, match="its task is cancelled"):
        await client.questions.answer(question.id, {"amount": 3}, digest=question.digest)
    assert [one.state for one in (await client.questions.list(state=None)).rows] == ["ended"]
    assert (await client.questions.list()).rows == []
    await redrive(shared, question.task_id)
    assert await attempts.run(question.task_id) == "waiting"
    await client.questions.answer(question.id, {"amount": 3}, digest=question.digest)
    assert await attempts.run(question.task_id) == "succeeded"


async def test_a_reset_asks_again(attempts: Attempts, client: Client, shared: Database) -> None:
    question = await asked(attempts, client, max_attempts=1)
    await client.questions.answer(question.id, {"amount": 3}, digest=question.digest)
    FAILS.append(True)
    await attempts.run(question.task_id)
    await fetch(shared, "update grns.tasks set next_attempt_at = now()")
    await cancel(shared, question.task_id)
    assert await client.reset(question.task_id, to="ask refund") == "redriven"
    assert await attempts.run(question.task_id) == "waiting"
    assert (await client.questions.get(question.id)).state == "open"


async def test_an_approval_does_not_come_from_who_submitted_the_task(
    attempts: Attempts, client: Client, shared: Database
) -> None:
    task = await submit(shared, "pay", payload={"euro": 900})
    await fetch(shared, "update grns.events set actor = 'key:ann' where task_id = $1", task.id)
    await client.signal(task.id, "hello")
    assert await attempts.run(task.id) == "waiting"
    (found,) = (await client.questions.list()).rows
    question = await client.questions.get(found.id)
    with pytest.raises(PermissionDeniedError):
        await answers(client, "key:ann").answer(question.id, {"approved": True}, digest=question.digest)
    with pytest.raises(PermissionDeniedError):
        await answers(client, "key:ann").link(question.id, seconds=60)
    with pytest.raises(PermissionDeniedError):
        await answers(client, "link:key:ann").answer(question.id, {"approved": True}, digest=question.digest)
    await answers(client, "key:bob").answer(question.id, {"approved": False}, digest=question.digest)
    assert await attempts.run(task.id) == "succeeded"
    assert (await row_of(shared, task.id))["result"] == '[false, "key:bob"]'


async def test_a_signal_of_a_user_answers_no_question(attempts: Attempts, client: Client) -> None:
    question = await asked(attempts, client)
    with pytest.raises(InvalidInputError):
        await client.signal(question.task_id, f"question {question.id}", {"approved": True})


async def test_a_link_answers_once(attempts: Attempts, client: Client, shared: Database) -> None:
    question = await asked(attempts, client)
    first = await client.questions.link(question.id, seconds=60)
    second = await client.questions.link(question.id, seconds=60)
    assert first.secret != second.secret
    (row,) = await fetch(shared, "select link_hash::text as hash from grns.questions")
    assert second.secret not in row["hash"]
    await client.questions.answer(question.id, {"amount": 3}, digest=question.digest)
    with pytest.raises(ConflictError):
        await client.questions.link(question.id, seconds=60)


async def test_questions_come_page_by_page(attempts: Attempts, client: Client) -> None:
    made: list[UUID] = [(await asked(attempts, client)).id for _ in range(5)]
    found: list[UUID] = []
    after: str | None = None
    while True:
        page = await client.questions.list(limit=2, after=after)
        found += [one.id for one in page.rows]
        after = page.next_cursor
        if after is None:
            break
    assert found == made[::-1]
    with pytest.raises(InvalidInputError):
        await client.questions.list(state="closed")


async def test_a_handler_is_tested_with_answers() -> None:
    ctx = context(answers={"refund": {"amount": 5}})
    assert (await refund.function({}, ctx))["amount"] == 5
    with pytest.raises(InvalidInputError, match="answers="):
        await refund.function({}, context())
    TIMEOUT[0] = 1.0
    with pytest.raises(grns.WaitTimeoutError):
        await refund.function({}, context())
    assert (await pay.function({}, context(answers={"pay": True})))[0] is True


@pytest.mark.parametrize(
    "wrong",
    [
        {"title": ""},
        {"title": "a\nb"},
        {"body": 7},
        {"to": [""]},
        {"timeout": "soon"},
        {"evidence": object()},
    ],
)
async def test_a_question_is_checked(wrong: dict[str, Any]) -> None:
    said = {"title": "Really?", "timeout": timedelta(days=1), **wrong}
    with pytest.raises(InvalidInputError):
        await context().ask_person("x", Refund, **said)


async def test_an_attempt_that_has_lost_its_task_asks_nothing(shared: Database, client: Client) -> None:
    task = await submit(shared)
    taken = await claim(shared, task.id)
    await fetch(shared, "update grns.tasks set lease_id = gen_random_uuid()")
    with attempts_of(POOL, shared, client) as attempts:
        await attempts.executor.run(taken)
    assert not await fetch(shared, "select from grns.questions")
