"""How the log names who asks."""

from __future__ import annotations

import getpass
import socket

import pytest

import grns
from grns.errors import InvalidInputError
from grns.model.actor import check, of_process
from grns.postgres.database import Database
from tests.support.store import log_of


def test_of_a_process_it_is_its_user_and_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "ann")
    monkeypatch.setattr(socket, "gethostname", lambda: "desk.example.org")
    assert of_process("cli") == "cli:ann@desk.example.org"


def test_whatever_these_are_called_it_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("no such user id")

    monkeypatch.setattr(socket, "gethostname", lambda: "a b\nc\x1b[31m" + "x" * 300)
    for user in (nameless, lambda: "Ännchen von Tharau"):
        monkeypatch.setattr(getpass, "getuser", user)
        assert check(of_process("cli"))


@pytest.mark.parametrize("actor", ["", "a b", "a\n", "ä", "x" * 256, None, 5, b"ann"])
def test_what_the_log_may_not_have_is_refused(actor: object) -> None:
    with pytest.raises(InvalidInputError) as raised:
        check(actor)
    assert raised.value.code == "bad_actor"


async def test_a_client_says_who_asks(database: Database, database_url: str) -> None:
    unreachable = "nats://127.0.0.1:1"
    async with grns.connect(actor="billing", database_url=database_url, nats_url=unreachable) as client:
        task_id = (await client.submit("noop", pool="worker")).id
        await client.cancel(task_id)
        await client.redrive(task_id)
        (many,) = await client.submit_many([{"task": "noop", "pool": "worker"}])
        async with database.transaction() as connection:
            own = await client.submit("noop", pool="worker", connection=connection)
    told = [(row["kind"], row["actor"]) for row in await log_of(database, task_id)]
    assert told == [
        ("evt.task.queued", "billing"), ("cmd.task.execute", None), ("evt.task.cancelled", "billing"),
        ("evt.task.queued", "billing"), ("cmd.task.execute", None),
    ]  # fmt: skip
    assert isinstance(many, grns.TaskHandle)
    for other in (many.id, own.id):
        assert (await log_of(database, other))[0]["actor"] == "billing"
    async with grns.connect(database_url=database_url, nats_url=unreachable) as client:
        quiet = await client.submit("noop", pool="worker")
    assert (await log_of(database, quiet.id))[0]["actor"] is None
    with pytest.raises(InvalidInputError):
        async with grns.connect(actor="two words", database_url=database_url):
            raise AssertionError("it is not opened")
