"""Unique tasks: what is submitted is merged into a task that waits or runs, and nothing is lost by it."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from grns import ConflictError, InvalidInputError, Pool, Unique
from grns.client.arguments import submission_of
from grns.errors import ContendedError
from grns.maintenance.retention import delete_tasks
from grns.model.outcome import Verb
from grns.model.unique import Uniqueness
from grns.postgres.database import Database
from grns.tasks.submit import Submissions, submit_in
from grns.worker.step_store import StepStore
from tests.support.store import (
    claim,
    fetch,
    finish,
    log_of,
    refusal,
    row_of,
    stranger,
)
from tests.tasks.test_submit import count_of, made, new, submit, submit_many

_REPLACE = Unique("doc_id", on_conflict="replace")
_DAY_SECONDS = 86_400.0


def doc(unique: Uniqueness | None = None, **payload: Any) -> dict[str, Any]:
    """Return the fields of a task for a document."""
    return {"unique": unique or Unique("doc_id"), "payload": {"doc_id": 7} | payload}


async def payload_of(database: Database, task_id: str) -> Any:
    """Return the payload of a task."""
    return json.loads((await row_of(database, task_id))["payload"])


async def test_a_task_that_waits_to_begin_is_the_only_one_of_its_key(shared: Database) -> None:
    first = await submit(shared, **doc())
    again = await submit(shared, **doc(page=2))
    assert (again.created, again.id, again.trace_id) == (False, first.id, first.trace_id)
    assert await payload_of(shared, first.id) == {"doc_id": 7}
    others = [
        await submit(shared, **doc(doc_id=8)),
        await submit(shared, **doc() | {"workspace": "other"}),
        await submit(shared, **doc() | {"task_type": "other"}),
        await submit(shared, **doc() | {"agent_type": "other"}),
        await submit(shared, payload={"doc_id": 7}),
    ]
    assert all(one.created for one in others)


async def test_once_it_has_begun_there_is_another_one(shared: Database) -> None:
    first = await submit(shared, **doc())
    taken = await claim(shared, first.id)
    second = await submit(shared, **doc())
    assert second.created
    await finish(shared, taken)
    assert (await submit(shared, **doc())).id == second.id


async def test_a_task_that_waits_for_its_retry_waits_to_begin(shared: Database) -> None:
    first = await submit(shared, **doc())
    await finish(shared, await claim(shared, first.id), Verb.RETRY)
    assert (await submit(shared, **doc())).id == first.id


async def test_a_task_that_has_recorded_a_step_has_begun(shared: Database) -> None:
    """What it has read there it does not read again."""
    first = await submit(shared, **doc())
    taken = await claim(shared, first.id)
    await StepStore(shared, batch_limit=1).record(taken, "read", "step", "1")
    await finish(shared, taken, Verb.RETRY)
    assert (await submit(shared, **doc())).created


async def test_a_task_that_lost_to_its_idempotency_key_hosts_no_other(shared: Database) -> None:
    batch = [
        made(**doc(doc_id=1) | {"idempotency_key": "k"}),
        made(**doc(doc_id=2) | {"idempotency_key": "k"}),
        made(**doc(doc_id=2)),
    ]
    with pytest.raises(ContendedError):
        await submit_many(shared, *batch)
    submissions = Submissions(shared, batch_limit=10)
    answers = await asyncio.gather(*(submissions.submit(one) for one in batch), return_exceptions=True)
    assert isinstance(answers[1], ConflictError)
    there = {row["id"] for row in await fetch(shared, "select id from grns.tasks")}
    assert {one.id for one in answers if not isinstance(one, BaseException)} == there


async def test_until_it_ends(shared: Database) -> None:
    rule = Unique("doc_id", during="unfinished")
    first = await submit(shared, **doc(rule))
    taken = await claim(shared, first.id)
    assert (await submit(shared, **doc(rule))).id == first.id
    await finish(shared, taken)
    assert (await submit(shared, **doc(rule))).created


async def test_for_a_time_after_its_creation(shared: Database) -> None:
    rule = Unique("doc_id", during=timedelta(hours=1))
    first = await submit(shared, **doc(rule))
    await finish(shared, await claim(shared, first.id))
    assert (await submit(shared, **doc(rule))).id == first.id
    await fetch(shared, "update grns.tasks set created_at = now() - interval '61 minutes'")
    assert (await submit(shared, **doc(rule))).created


async def test_the_latest_payload_replaces_that_of_a_task_that_waits(shared: Database) -> None:
    first = await submit(shared, **doc(_REPLACE, page=1))
    again = await submit(shared, **doc(_REPLACE, page=2))
    assert (again.created, again.id) == (False, first.id)
    changed = (await log_of(shared, first.id))[-1]
    assert changed["kind"] == "evt.task.changed"
    told = json.loads(changed["payload"]) if isinstance(changed["payload"], str) else changed["payload"]
    assert told["before"] == {"payload": {"doc_id": 7, "page": 1}}
    assert told["fields"] == ["payload"]
    assert json.loads((await claim(shared, first.id)).payload) == {"doc_id": 7, "page": 2}


async def test_each_submission_puts_off_a_debounced_task_up_to_a_bound(shared: Database) -> None:
    rule = Unique("doc_id", on_conflict="replace", debounce=60, debounce_max=timedelta(seconds=90))
    first = await submit(shared, **doc(rule))
    row = await row_of(shared, first.id)
    assert (row["status"], row["waits_for"]) == ("waiting", "time")
    assert 59 < (row["next_attempt_at"] - row["created_at"]).total_seconds() < 61
    for seconds, expected in ((20, 80), (40, 90)):
        await fetch(
            shared,
            f"update grns.tasks set created_at = now() - interval '{seconds} seconds',"
            " next_attempt_at = now() + interval '1 second'",
        )
        await submit(shared, **doc(rule, after=seconds))
        row = await row_of(shared, first.id)
        assert abs((row["next_attempt_at"] - row["created_at"]).total_seconds() - expected) < 1
        assert json.loads(row["payload"]) == {"doc_id": 7, "after": seconds}
    assert (await log_of(shared, first.id))[-1]["kind"] == "evt.task.changed"
    assert await count_of(shared) == 1


async def test_a_submission_never_brings_a_task_forward(shared: Database) -> None:
    first = await submit(
        shared, **doc(Unique("doc_id", on_conflict="replace", debounce=5)) | {"delay_seconds": 3600}
    )
    before = await row_of(shared, first.id)
    await submit(shared, **doc(Unique("doc_id", on_conflict="replace", debounce=5)))
    assert (await row_of(shared, first.id))["next_attempt_at"] == before["next_attempt_at"]


async def test_a_second_one_can_be_refused(shared: Database) -> None:
    rule = Unique("doc_id", on_conflict="refuse")
    first = await submit(shared, **doc(rule))
    with pytest.raises(ConflictError, match=f"task {first.id} has the same unique key"):
        await submit(shared, **doc(rule))


async def test_several_of_one_key_in_one_call(shared: Database) -> None:
    answers = await submit_many(shared, *(made(**doc(page=page)) for page in range(3)))
    assert new(answers) == [True, False, False]
    assert len({one.id for one in answers if not isinstance(one, ConflictError)}) == 1
    answers = await submit_many(shared, *(made(**doc(_REPLACE, doc_id=8, page=page)) for page in range(3)))
    assert new(answers) == [False, False, True]
    rows = await fetch(shared, "select payload ->> 'page' as page from grns.tasks order by id")
    assert [row["page"] for row in rows] == ["0", "2"]
    refusing = Unique("doc_id", on_conflict="refuse")
    answers = await submit_many(shared, *(made(**doc(refusing, doc_id=9)) for _ in range(2)))
    assert new(answers) == [True, None]
    mixed = [made(payload={"n": n}) if n % 2 else made(**doc(doc_id=8)) for n in range(4)]
    assert new(await submit_many(shared, *mixed)) == [False, True, False, True]


async def test_long_keys_and_values_of_every_kind(shared: Database) -> None:
    for value in ("x" * 10_000, "ü" * 100, 1.5, True, [1, {"a": 2}], {"a": {"b": 1}}):
        first = await submit(shared, **doc(doc_id=value))
        assert first.created
        assert (await submit(shared, **doc(doc_id=value))).id == first.id
    nested = {"unique": Unique("customer.id"), "payload": {"customer": {"id": 3}}}
    assert (await submit(shared, **nested)).id == (await submit(shared, **nested)).id
    without = {"unique": Unique(), "payload": {}}
    assert (await submit(shared, **without)).id == (
        await submit(shared, **without | {"payload": {"a": 1}})
    ).id


async def test_an_idempotency_key_comes_first(shared: Database) -> None:
    said = doc(_REPLACE, page=1) | {"idempotency_key": "k"}
    first = await submit(shared, **said)
    await submit(shared, **doc(_REPLACE, page=2))
    with pytest.raises(ConflictError):  # another payload by now
        await submit(shared, **said)
    assert await payload_of(shared, first.id) == {"doc_id": 7, "page": 2}
    taken = await claim(shared, first.id)
    assert (await submit(shared, **doc(page=2) | {"idempotency_key": "k"})).id == first.id
    await finish(shared, taken)


async def test_a_submission_that_is_sent_again_finds_its_own_task(shared: Database) -> None:
    prepared = made(**doc())
    assert new(await submit_many(shared, prepared)) == [True]
    assert new(await submit_many(shared, prepared)) == [False]
    assert await count_of(shared) == 1


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"unique": Unique("doc_id"), "payload": {}}, "unique: the payload has no value at doc_id"),
        ({"unique": Unique("a.b"), "payload": {"a": {"b": None}}}, "unique: the payload has no value at a.b"),
        ({"unique": {"key": "doc_id", "during": "ever"}, "payload": {}}, "unique"),
        ({"unique": {"key": "doc_id", "extra": 1}, "payload": {}}, "unique"),
    ],
)
def test_what_cannot_be_unique_is_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidInputError, match=why):
        made(**fields)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"key": ""}, "key"),
        ({"key": "a..b"}, "key"),
        ({"during": "ever"}, "during"),
        ({"during": 0}, "during"),
        ({"during": True}, "during"),
        ({"during": 3600, "on_conflict": "replace"}, "on_conflict"),
        ({"on_conflict": "drop"}, "on_conflict"),
        ({"debounce": 5}, "debounce"),
        ({"debounce_max": 5, "on_conflict": "replace"}, "debounce_max"),
        ({"debounce": 5, "debounce_max": 4, "on_conflict": "replace"}, "debounce_max"),
        ({"debounce": "5s", "on_conflict": "replace"}, "debounce"),
        ({"debounce": float("nan"), "on_conflict": "replace"}, "debounce"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidInputError, match=f"unique: .*{why}"):
        Unique(**arguments)


async def test_a_task_does_not_begin_before_what_is_merged_into_it_is_committed(
    shared: Database,
) -> None:
    first = await submit(shared, **doc())
    async with stranger(shared) as connection:
        (answer,) = await submit_in(connection, [made(**doc())])
        assert not isinstance(answer, ConflictError)
        assert (answer.id, answer.created) == (first.id, False)
        assert await refusal(shared, first.id) == "locked"
    assert (await claim(shared, first.id)).attempt == 1


async def test_every_submission_is_seen_by_a_run_that_begins_after_it(shared: Database) -> None:
    await fetch(shared, "create table if not exists public.marks (n bigserial, doc_id integer)")
    keys, each, seen = 3, 60, set[int]()
    is_over = False

    async def write(number: int) -> None:
        chance = random.Random(number)
        async with shared.connection() as connection:
            for _ in range(each):
                doc_id = chance.randrange(keys)
                async with connection.transaction():
                    await connection.execute("insert into public.marks (doc_id) values ($1)", doc_id)
                    rule = _REPLACE if chance.random() < 0.5 else Unique("doc_id")
                    await submit_in(connection, [made(**doc(rule, doc_id=doc_id))])
                    await asyncio.sleep(chance.random() * 0.002)

    async def work() -> None:
        while True:
            last = is_over
            rows = await fetch(shared, "select id, payload from grns.tasks where status = 'queued'")
            for row in rows:
                try:
                    taken = await claim(shared, row["id"])
                except AssertionError:  # another worker has it, or a submission holds it
                    continue
                doc_id = json.loads(taken.payload)["doc_id"]
                marks = await fetch(shared, "select n from public.marks where doc_id = $1", doc_id)
                seen.update(mark["n"] for mark in marks)
                while True:
                    with suppress(ContendedError):  # a submission holds it: try again, as workers do
                        await finish(shared, taken)
                        break
            if last and not rows:
                return

    workers = [asyncio.create_task(work()) for _ in range(2)]
    await asyncio.gather(*(write(number) for number in range(4)))
    is_over = True
    await asyncio.gather(*workers)
    marks = {mark["n"] for mark in await fetch(shared, "select n from public.marks")}
    await fetch(shared, "drop table public.marks")
    assert len(marks) == 4 * each
    assert seen == marks
    assert await count_of(shared) < 4 * each


async def test_another_transaction_with_the_same_key_is_waited_for(shared: Database) -> None:
    async with stranger(shared) as connection:
        await submit_in(connection, [made(**doc())])
        other = asyncio.create_task(submit(shared, **doc()))
        await asyncio.sleep(0.2)
        assert not other.done()
    assert (await other).created  # the other one was undone


async def test_the_sql_function_has_the_same_rules(shared: Database) -> None:
    sql = """select grns.submit_task('noop', $1, uniqueness => $2) as id"""
    rule = '{"key": "doc_id", "on_conflict": "replace", "debounce_seconds": 60}'
    first = (await fetch(shared, sql, '{"doc_id": 7}', rule))[0]["id"]
    assert (await row_of(shared, first))["status"] == "waiting"
    assert (await fetch(shared, sql, '{"doc_id": 7, "page": 2}', rule))[0]["id"] == first
    assert await payload_of(shared, first) == {"doc_id": 7, "page": 2}
    refusing = '{"key": "doc_id", "on_conflict": "refuse"}'
    with pytest.raises(asyncpg.UniqueViolationError, match="has the same unique key"):
        await fetch(shared, sql, '{"doc_id": 7}', refusing)
    with pytest.raises(asyncpg.InvalidParameterValueError, match="no value at doc_id"):
        await fetch(shared, sql, "{}", rule)
    for wrong in (
        "[]",
        '{"during": "ever"}',
        '{"during": 0}',
        '{"keys": "a"}',
        '{"debounce_seconds": 5}',
        '{"on_conflict": "replace", "during": 5}',
    ):
        with pytest.raises(asyncpg.InvalidParameterValueError, match="uniqueness is an object"):
            await fetch(shared, sql, '{"doc_id": 7}', wrong)


async def test_the_key_goes_with_its_task(shared: Database) -> None:
    first = await submit(shared, **doc())
    await finish(shared, await claim(shared, first.id))
    await fetch(shared, "update grns.tasks set finished_at = now() - interval '3 days'")
    assert (await delete_tasks(shared, "", 10, _DAY_SECONDS, _DAY_SECONDS)).deleted == 1
    assert await count_of(shared, "unique_keys") == 0


def test_a_handler_says_it_for_all_of_its_tasks() -> None:
    pool = Pool("worker")

    @pool.task(unique=Unique("doc_id"))
    async def index(payload: dict[str, Any]) -> None: ...

    def read(**fields: Any) -> Uniqueness | None:
        return submission_of(
            {"task": index, "payload": {"doc_id": 7}} | fields, workspace="w", trace_id=None
        ).unique

    assert read() == Unique("doc_id")
    assert read(unique=_REPLACE) == _REPLACE
    assert read(unique=None) is None
    assert read(needs=["gr-1"]) is None
    with pytest.raises(InvalidInputError, match="unique must be a grns"):
        pool.task("other", unique={"key": "doc_id"})(index.function)  # type: ignore[call-overload]


def test_a_handler_whose_payload_lacks_the_field_is_refused() -> None:
    @dataclass
    class Document:
        name: str

    async def index(document: Document) -> None: ...

    index.__annotations__["document"] = Document
    with pytest.raises(InvalidInputError, match="unique: the payload of index has no field doc_id"):
        Pool("worker").task(unique=Unique("doc_id"))(index)


async def test_tasks_that_need_others_are_never_merged(shared: Database) -> None:
    needed = await submit(shared)
    with pytest.raises(InvalidInputError, match="unique: tasks of workflows, and those that need others"):
        await submit(shared, **doc() | {"needs": [{"task": needed.id}]})
