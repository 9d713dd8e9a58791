"""Full-text search: what is said of tasks is indexed behind the log, and found by `text:`."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from grns.access.isolation import as_tenant
from grns.client.client import Client
from grns.errors import InvalidInputError, OutcomeUnknownError
from grns.model.filter import parse
from grns.model.outcome import Verb
from grns.model.submission import edit
from grns.postgres.database import Database, Session
from grns.stats.text_indexer import TextIndexer
from grns.tasks import edit as store
from grns.tasks import mail, search
from grns.tasks.index_scan import LABELLED, plans
from tests.support.harness import submit
from tests.support.store import claim, fetch, finish, place, redrive


def indexer(database: Database, **fields: Any) -> TextIndexer:
    """Return an indexer."""
    return TextIndexer(database=database, emit=lambda _: None, **fields)


async def index(database: Database, **fields: Any) -> None:
    """Index all that the log has."""
    await fetch(
        database, "update grns.count_cursor set low = (select coalesce(max(e.seq), 0) from grns.events e)"
    )
    while await indexer(database, **fields).step():
        pass


async def found(database: Database | Session, text: str, workspace: str = "default") -> list[str]:
    """Return the ids of a filter, and hold that as many are counted."""
    page = await search.list_tasks(database, workspace=workspace, wanted=parse(text), limit=50)
    counted = await search.count(database, workspace=workspace, wanted=parse(text))
    assert counted.number == len(page.rows)
    return [row.id for row in page.rows]


async def test_text_words_of_labels_and_errors_are_found(client: Client, shared: Database) -> None:
    titled = await client.submit("noop", {}, pool="worker", title="Quarterly report", tags=["site:main"])
    told = await client.submit("noop", {}, pool="worker", description="The report of the\nimprint, no. 4711")
    plain = await client.submit("noop", {"report": "report"}, pool="worker")
    dead = await place(shared, "dead")
    await index(shared)
    assert await found(shared, "text:report") == sorted([titled.id, told.id], reverse=True)
    assert await found(shared, 'text:"report QUARTERLY"') == [titled.id]
    assert await found(shared, "text:quart*") == [titled.id]
    assert await found(shared, 'text:"report imp*"') == [told.id]
    assert await found(shared, "text:report -text:4711") == [titled.id]
    assert await found(shared, "text:quarterly,4711") == sorted([titled.id, told.id], reverse=True)
    assert await found(shared, "text:site:main") == [titled.id]
    assert await found(shared, "text:ValueError") == [dead.id]
    assert await found(shared, 'text:"no such thing" status:dead') == [dead.id]
    assert await found(shared, "text:report status:running") == []
    assert await found(shared, "text:none") == []
    assert await found(shared, "-text:*") == [plain.id]
    assert await found(shared, "text:*") == sorted([titled.id, told.id, dead.id], reverse=True)


async def test_text_words_of_payloads_are_indexed_if_asked_for(client: Client, shared: Database) -> None:
    one = await client.submit("noop", {"customer": {"name": "Ada", "number": 17}}, pool="worker")
    await submit(shared, payload={"name": "x" * 70_000})
    await index(shared, has_payloads=True)
    assert await found(shared, "text:ada") == [one.id]
    assert await found(shared, 'text:"ada 17"') == [one.id]
    assert await found(shared, "text:customer") == []
    assert len(await fetch(shared, "select from grns.texts")) == 1


async def test_text_of_a_change_replaces_what_was_said(client: Client, shared: Database) -> None:
    handle = await client.submit("noop", {}, pool="worker", title="An old title")
    await index(shared)
    for changes, there, gone in (({"title": "A new title"}, "new", "old"), ({"title": ""}, None, "title")):
        async with shared.transaction() as connection:
            await store.label_task(
                connection, handle.id, edit(**changes).labels, workspace="default", actor="t", reason="r"
            )
        await index(shared)
        assert await found(shared, f"text:{gone}") == []
        assert there is None or await found(shared, f"text:{there}") == [handle.id]
    assert await fetch(shared, "select from grns.texts") == []
    assert await fetch(shared, "select from grns.words") == []


async def test_text_of_an_error_goes_with_a_redrive(shared: Database) -> None:
    dead = await place(shared, "dead")
    await index(shared)
    assert await found(shared, "text:thing") == [dead.id]
    await redrive(shared, dead.id)
    await finish(shared, await claim(shared, dead.id), Verb.SUCCEED)
    await index(shared)
    assert await found(shared, "text:thing") == []


async def test_text_of_a_patched_payload_replaces_the_old_one(client: Client, shared: Database) -> None:
    handle = await client.submit("noop", {"name": "Ada"}, pool="worker")
    await handle.cancel()
    await index(shared, has_payloads=True)
    assert await found(shared, "text:ada") == [handle.id]
    await fetch(shared, 'update grns.tasks set payload = \'{"name": "Bob"}\'')
    await redrive(shared, handle.id)
    await index(shared, has_payloads=True)
    assert await found(shared, "text:ada") == []
    assert await found(shared, "text:bob") == [handle.id]


async def test_text_that_takes_too_long_is_indexed_in_smaller_batches(
    client: Client, shared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [(await client.submit("noop", {}, pool="worker", title=f"Report {n}")).id for n in range(5)]
    refused = await client.submit("noop", {}, pool="worker", title="Refused")
    await fetch(shared, "update grns.count_cursor set low = (select max(e.seq) from grns.events e)")
    run, sizes, failures = shared.run, list[int](), list[object]()
    is_away = True

    async def narrow(name: str, *arguments: Any) -> Any:
        if name == "write_texts" and (is_away or len(arguments[2]) > 2):
            raise OutcomeUnknownError("no answer")
        if name == "write_texts" and refused.id in arguments[2]:
            raise InvalidInputError("bad_text", "refused")
        sizes.append(len(arguments[2]) if name == "write_texts" else 0)
        return await run(name, *arguments)

    monkeypatch.setattr(shared, "run", narrow)
    texts = TextIndexer(database=shared, emit=failures.append)
    for _ in range(20):  # an outage, however long, has no row passed over
        with pytest.raises(OutcomeUnknownError):
            await texts.step()
    is_away, has_more = False, True
    while has_more:
        with suppress(OutcomeUnknownError, InvalidInputError):
            has_more = await texts.step()
    assert max(sizes) <= 2
    assert await found(shared, "text:report") == sorted(made, reverse=True)
    assert len(failures) == 1
    assert await found(shared, "text:refused") == []


async def test_text_of_a_message_that_is_too_deep_is_passed_over(client: Client, shared: Database) -> None:
    await client.agents.put("coder", pool="code")
    deep = '{"a": ' + "[" * 1800 + "]" * 1800 + "}"
    await fetch(shared, "select grns.send_mail('hello', $1::text::jsonb, to_agent => 'coder')", deep)
    await client.mail.send("hello", {"text": "later"}, to="coder")
    await index(shared)
    assert len((await client.mail.list(text="later")).rows) == 1


async def test_text_of_mail_is_searched_in_parts(
    client: Client, shared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mail, "MOST_LOOKED_AT", 4)
    for name in ("coder", "tester"):
        await client.agents.put(name, pool="code")
    for number in range(10):
        await client.mail.send("hello", {"number": number}, to="tester" if number in (1, 9) else "coder")
    task = await client.submit("noop", {}, pool="worker", title="Hello")
    await index(shared)
    pages, cursor = list[list[int]](), None
    while True:
        page = await client.mail.list(text="hello", to="tester", after=cursor)
        pages.append([one.payload["number"] for one in page.rows])
        cursor = page.next_cursor
        assert page.is_partial == (cursor is not None)
        if cursor is None:
            break
    assert pages == [[1], [], [9]]
    assert await found(shared, "text:hello") == [task.id]


async def test_text_goes_with_its_task(client: Client, shared: Database) -> None:
    handle = await client.submit("noop", {}, pool="worker", title="Old report")
    other = await client.submit("noop", {}, pool="worker", title="New report")
    await index(shared)
    await handle.cancel()
    await fetch(
        shared, "update grns.tasks set finished_at = now() - interval '9 days' where id = $1", handle.id
    )
    await shared.run("delete_tasks", "", 100, 3600.0, 3600.0, None, False)
    assert [row["owner"] for row in await fetch(shared, "select owner from grns.texts")] == [other.id]
    assert {row["owner"] for row in await fetch(shared, "select owner from grns.words")} == {other.id}


async def test_text_of_a_task_that_is_deleted_meanwhile_is_not_kept(client: Client, shared: Database) -> None:
    await client.submit("noop", {}, pool="worker", title="Short")
    await fetch(shared, "update grns.count_cursor set low = (select max(e.seq) from grns.events e)")
    (row,) = await shared.run("read_texts", 100, None)
    await fetch(shared, "delete from grns.tasks")
    assert await shared.run("write_texts", row["low"], row["high"], [row["owner"]], ["short"])
    assert await fetch(shared, "select from grns.texts") == []
    assert await fetch(shared, "select from grns.words") == []


async def test_text_of_a_second_indexer_that_was_slower_is_not_written(
    client: Client, shared: Database
) -> None:
    handle = await client.submit("noop", {}, pool="worker", title="First")
    await fetch(shared, "update grns.count_cursor set low = (select max(e.seq) from grns.events e)")
    (row,) = await shared.run("read_texts", 100, None)
    await index(shared)
    assert await shared.run("write_texts", row["low"], row["high"], [handle.id], ["stale"]) == []
    assert await found(shared, "text:stale") == []
    assert await found(shared, "text:first") == [handle.id]


async def test_text_of_many_is_indexed_in_batches_and_listed_in_pages(shared: Database) -> None:
    made = [(await submit(shared, title=f"Report number {number}")).id for number in range(30)]
    await fetch(shared, "update grns.count_cursor set low = (select max(e.seq) from grns.events e)")
    (row, *_) = await shared.run("read_texts", 7, None)
    assert row["has_more"]
    await index(shared)
    ids, cursor = list[str](), None
    while True:
        page = await search.list_tasks(
            shared, workspace="default", wanted=parse("text:report"), limit=7, after=cursor
        )
        ids += [row.id for row in page.rows]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert ids == sorted(made, reverse=True)
    assert await found(shared, 'text:"report 7"') == [made[7]]


async def test_text_is_found_by_tenants_in_their_workspace(shared: Database) -> None:
    ours = (await submit(shared, workspace="acme", title="Secret report")).id
    await submit(shared, workspace="rival", title="Secret report")
    await index(shared)
    async with as_tenant(shared, "acme") as session:
        assert await found(session, "text:report", "acme") == [ours]
        assert await found(session, "text:repo*", "acme") == [ours]


async def test_text_of_mail_is_found_in_its_order(client: Client, shared: Database) -> None:
    for name in ("coder", "tester"):
        await client.agents.put(name, pool="code")
    for number in range(3):
        await client.mail.send("review_request", {"branch": f"fix-{number}"}, to="coder", about="gr-1")
    await client.mail.send("hello", {"text": "Please review"}, pool="code")
    await client.submit("noop", {}, pool="worker", title="Review this")
    await index(shared)

    async def listed(text: str, **fields: Any) -> list[tuple[str, str | None]]:
        page = await client.mail.list(text=text, **fields)
        return [(str(one.payload.get("branch", "")), one.to_agent) for one in page.rows]

    fixes = [(f"fix-{number}", "coder") for number in range(3)]
    assert await listed("review") == [*fixes, ("", "coder"), ("", "tester")]
    assert await listed("REVIEW req*") == fixes
    assert await listed("fix 2") == fixes[2:]
    assert await listed("review", about="gr-1") == fixes
    assert await listed("review", to="tester") == [("", "tester")]
    assert await listed("none") == []
    first = await client.mail.list(text="review", limit=2)
    rest = await client.mail.list(text="review", limit=9, after=first.next_cursor)
    assert [one.seq for one in (*first.rows, *rest.rows)] == sorted(
        one.seq for one in (await client.mail.list()).rows
    )
    await client.mail.poll("coder")
    await client.mail.ack("coder", [one.id for one in first.rows])
    assert await listed("review", is_open=True) == [("fix-2", "coder"), ("", "coder"), ("", "tester")]
    for wrong in ("", "--", "rev*", "a*b"):
        with pytest.raises(InvalidInputError, match="words"):
            await client.mail.list(text=wrong)


async def test_text_of_mail_goes_with_it(client: Client, shared: Database) -> None:
    await client.agents.put("coder", pool="code")
    await client.mail.send("hello", {"text": "first"}, to="coder")
    await client.mail.send("hello", {"text": "second"}, to="coder")
    await index(shared)
    await fetch(shared, "delete from grns.mail where payload ->> 'text' = 'first'")
    assert (await client.mail.list(text="first")).rows == []
    assert len((await client.mail.list(text="hello")).rows) == 1
    assert len(await fetch(shared, "select from grns.texts")) == 1
    assert len(await fetch(shared, "select from grns.words")) == 2


@pytest.mark.parametrize(
    ("text", "driver"),
    [
        ("text:report", "report"),
        ('text:"a report of"', "report"),
        ('text:"payment 17"', "payment"),
        ('text:"payment 4711a"', "4711a"),
        ('text:"report fo*"', "report"),
        ("text:repo*", None),
        ("text:one,two", None),
        ("-text:report", None),
    ],
)
def test_text_is_read_from_the_index_of_its_rarest_word(text: str, driver: str | None) -> None:
    wanted = parse(text)
    (scan, *_), *_ = plans(wanted, wanted.states, "default")
    assert (scan.name == LABELLED) == (driver is not None)
    if driver is not None:
        assert [clause.right.value for clause in scan.branches[0]] == ["default", driver, "gr."]
