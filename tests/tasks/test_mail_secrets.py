"""Secrets of mail: sealed where they are stored, given to the agent, shown to no one else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from grns.client.client import Client
from grns.errors import InvalidInputError, SealedError
from grns.model.mail import Mail
from grns.model.seal import Keyring, MasterKey
from grns.postgres.database import Database
from grns.tasks.mail import Mailbox
from grns.tasks.rotate_secrets import count_sealed, rotate
from tests.support.api import Door, good, problem_of
from tests.support.store import fetch

OLD, NEW = MasterKey.new("old"), MasterKey.new("new")
TOKEN = "t0ken-of-the-canary"
PAYLOAD = {"user": "ann", "token": TOKEN, "spare": [{"pin": "canary-4711"}]}
SECRET = ["token", "spare.*.pin"]


@pytest.fixture
def shared_url(shared_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The shared database, of an installation with a key."""
    (tmp_path / "keys").write_text(OLD.line())
    monkeypatch.setenv("GRNS_KEYS_FILE", str(tmp_path / "keys"))
    return shared_url


@pytest.fixture(autouse=True)
async def agents(shared: Database, client: Client) -> None:
    """The key of the installation, and two agents."""
    shared.vault.keys = Keyring([OLD])
    for name in ("coder-1", "coder-2"):
        await client.agents.put(name, pool="worker")


async def stored(database: Database) -> str:
    """Return all of what is stored of messages."""
    rows = await fetch(
        database,
        "select m.payload::text as said from grns.mail m union all select e.payload::text from grns.events e",
    )
    return " ".join(row["said"] or "" for row in rows)


async def test_only_the_agent_gets_the_values(shared: Database, client: Client) -> None:
    sent = await client.mail.send("login", PAYLOAD, to="coder-1", secret=SECRET)
    assert TOKEN not in (said := await stored(shared))
    assert "canary" not in said
    (listed,) = (await client.mail.list(to="coder-1")).rows
    assert listed.payload == {"user": "ann", "token": "•••", "spare": [{"pin": "•••"}]}
    (mail,) = await client.mail.poll("coder-1")
    assert (mail.id, mail.payload) == (sent, PAYLOAD)


async def test_sent_twice_is_sent_once(client: Client) -> None:
    message_id = uuid4()
    for _ in range(2):
        await client.mail.send("login", PAYLOAD, to="coder-1", secret=SECRET, message_id=message_id)
    assert len(await client.mail.poll("coder-1")) == 1


@pytest.mark.parametrize("is_same_id", [True, False])
async def test_sealed_text_opens_for_no_one_else(shared: Database, client: Client, is_same_id: bool) -> None:
    sent = await client.mail.send("login", PAYLOAD, to="coder-1", secret=SECRET)
    (row,) = await fetch(shared, "select m.payload::text as said from grns.mail m")
    with pytest.raises(InvalidInputError) as refused:
        await client.mail.send("login", json.loads(row["said"]), to="coder-2")
    assert refused.value.code == "sealed_value"
    await client.mail.send("hello", {"n": 1}, to="coder-2")
    await fetch(
        shared,
        "select grns.send_mail('login', $1::text::jsonb, to_agent => 'coder-2', message_id => $2)",
        row["said"],
        sent if is_same_id else uuid4(),
    )
    await client.mail.send("hello", {"n": 2}, to="coder-2")
    forged = {"user": "ann", "token": "•••", "spare": [{"pin": "•••"}]}
    assert [mail.payload for mail in await client.mail.poll("coder-2")] == [{"n": 1}, forged, {"n": 2}]
    unknown = '{"a": {"$secret": "1.nokey.AAAA.BBBB"}}'
    await fetch(shared, "select grns.send_mail('x', $1::text::jsonb, to_agent => 'coder-2')", unknown)
    shared.vault.keys = Keyring([NEW, OLD])
    assert await rotate(shared) == 1, "what is forged holds up no rotation"


async def test_the_same_secret_is_another_text_each_time(shared: Database, client: Client) -> None:
    for _ in range(2):
        await client.mail.send("login", PAYLOAD, to="coder-1", secret=SECRET)
    rows = await fetch(shared, "select m.payload ->> 'token' as said from grns.mail m")
    assert len({row["said"] for row in rows}) == 2


async def test_id_of_a_message_may_be_text(client: Client) -> None:
    message_id: Any = str(uuid4()).upper()
    await client.mail.send("login", PAYLOAD, to="coder-1", secret=SECRET, message_id=message_id)
    assert [mail.payload for mail in await client.mail.poll("coder-1")] == [PAYLOAD]


async def test_without_a_key_nothing_is_sealed_or_opened(client: Client) -> None:
    sent = await client.mail.send("login", PAYLOAD, to="coder-1", secret=SECRET)
    mail = client.mail
    mail._database.vault.keys = None
    with pytest.raises(InvalidInputError) as refused:
        await mail.send("login", PAYLOAD, to="coder-1", secret=SECRET)
    assert refused.value.code == "no_keys"
    with pytest.raises(SealedError, match=str(sent)):
        await mail.poll("coder-1")
    await mail.send("hello", {"n": 1}, to="coder-1")
    for limit in (1, 100):
        found = [one.payload for one in await mail.poll("coder-1", limit=limit)]
        assert found == [{"n": 1}], "it holds up no others"
    mail._database.vault.keys = Keyring([OLD])
    assert [one.payload for one in await mail.poll("coder-1")] == [PAYLOAD, {"n": 1}]


async def test_poll_without_the_key_marks_no_message_as_delivered(client: Client) -> None:
    mail = client.mail
    vault = mail._database.vault
    sealed = await mail.send("login", PAYLOAD, to="coder-1", secret=SECRET)
    vault.keys = None
    for wait in (0, 5):
        with pytest.raises(SealedError, match=str(sealed)):
            await mail.poll("coder-1", wait=wait)
    hello = await mail.send("hello", {"n": 1}, to="coder-1")
    (got,) = await mail.poll("coder-1", wait=5)
    assert (got.id, got.deliveries, got.delivered_at is not None) == (hello, 1, True)
    assert await mail.ack("coder-1", [sealed, hello]) == 1, "only what was handed out is acknowledged"
    (left,) = (await mail.list(to="coder-1", is_open=True)).rows
    assert (left.id, left.deliveries, left.delivered_at) == (sealed, 0, None)
    vault.keys = Keyring([OLD])
    (got,) = await mail.poll("coder-1")
    assert (got.id, got.payload, got.deliveries) == (sealed, PAYLOAD, 1)


async def test_poll_with_another_key_passes_over_many_sealed_messages(
    shared: Database, client: Client
) -> None:
    for n in range(12):
        await client.mail.send("login", PAYLOAD, to="coder-1", secret=SECRET)
        if n % 3 == 0:
            await client.mail.send("hello", {"n": n}, to="coder-1")
    client.mail._database.vault.keys = Keyring([NEW])
    assert [one.payload["n"] for one in await client.mail.poll("coder-1", limit=2)] == [0, 3]
    assert [one.payload["n"] for one in await client.mail.poll("coder-1", limit=9)] == [0, 3, 6, 9]
    rows = await fetch(shared, "select m.type, m.deliveries from grns.mail m order by m.seq")
    counts = [row["deliveries"] for row in rows if row["type"] == "hello"]
    assert (counts, sum(row["deliveries"] for row in rows)) == ([2, 2, 1, 1], 6)


async def test_poll_leaves_out_what_is_acknowledged_before_it_is_noted(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = [await client.mail.send("hello", {"n": n}, to="coder-1") for n in range(3)]
    assert len(await client.mail.poll("coder-1")) == 3
    deliver = Mailbox._delivered

    async def acknowledge_first(self: Mailbox, found: Sequence[Mail]) -> Sequence[Mail]:
        await self.ack("coder-1", sent[1])
        return await deliver(self, found)

    monkeypatch.setattr(Mailbox, "_delivered", acknowledge_first)
    assert [one.id for one in await client.mail.poll("coder-1")] == [sent[0], sent[2]]


async def test_rotation_seals_mail_again(shared: Database, client: Client) -> None:
    for _ in range(3):
        await client.mail.send("login", PAYLOAD, to="coder-1", secret=SECRET)
    await client.mail.send("hello", {"text": "$secret"}, to="coder-1")
    shared.vault.keys = Keyring([NEW, OLD])
    assert (await count_sealed(shared)).by_key["old"] == 3
    assert await rotate(shared) == 3
    counted = await count_sealed(shared)
    assert (counted.by_key["old"], counted.by_key["new"]) == (0, 3)
    mail = client.mail
    mail._database.vault.keys = Keyring([NEW])
    assert [one.payload for one in await mail.poll("coder-1")][:3] == [PAYLOAD] * 3


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"secret": "token"}, "bad_message"),
        ({"secret": ["a..b"]}, "bad_message"),
        ({"secret": [1]}, "bad_message"),
        ({"secret": ["tokn"]}, "bad_message"),
        ({"secret": ["token"], "reply_to": uuid4()}, "bad_message"),
        ({"secret": ["token"], "to": None, "pool": "worker"}, "bad_message"),
        ({"secret": ["token"], "payload": {"token": "x" * 4000}}, "too_large"),
        ({"secret": ["token"], "payload": {"token": "•••"}}, "masked_value"),
    ],
)
async def test_wrong_secrets_are_refused(client: Client, fields: dict[str, Any], code: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        await client.mail.send("login", **({"payload": PAYLOAD, "to": "coder-1"} | fields))
    assert refused.value.code == code


async def test_over_http(shared: Database, door: Door) -> None:
    door.context.database.vault.keys = Keyring([OLD])
    body = {"type": "login", "to": "coder-1", "payload": PAYLOAD, "secret": SECRET}
    async with await door.administrator() as visitor:
        good(await visitor.post("/api/v1/mail", json=body))
        assert TOKEN not in await stored(shared)
        listed = good(await visitor.get("/api/v1/mail", params={"to": "coder-1"}))
        assert TOKEN not in json.dumps(listed)
        assert "•••" in json.dumps(listed, ensure_ascii=False)
        polled = good(await visitor.post("/api/v1/agents/coder-1/mail/poll", json={}))
        assert [mail["payload"] for mail in polled["items"]] == [PAYLOAD]
        refused = await visitor.post("/api/v1/mail", json=body | {"secret": ["a..b"]})
        assert problem_of(refused, 400) == "bad_message"
