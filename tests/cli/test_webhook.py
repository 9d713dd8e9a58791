"""`grns webhook …`, as somebody types it; no broker is needed for any of it."""

from __future__ import annotations

import asyncio
import re

import pytest

from grns.cli import run
from grns.postgres.database import Database
from tests.support.cli import Call
from tests.support.store import fetch
from tests.support.webhooks import Receiver, sending

URL = "https://hooks.example.org/services/s3cret"
UNKNOWN = "wh-nothing"


def made(cli: Call, url: str = URL, *more: str) -> tuple[str, str]:
    """Make a webhook; returns its secret and its id."""
    said = cli("webhook", "create", url, "--kind", "evt.task.*", *more, "-o", "json")
    assert said.code == 0, said.err
    return said.json["secret"], said.json["id"]


def test_from_its_making_to_its_end(cli: Call) -> None:
    kinds = ("--kind", "evt.task.dead", "--kind", "dlq.task.*")
    made = cli("webhook", "create", URL, *kinds, "--description", "pages us")
    assert made.code == 0
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{43}=\n", made.out)
    assert "not shown again" in made.err
    (row,) = cli("webhook", "list", "-o", "json").json["items"]
    assert (row["url"], row["kinds"], row["description"]) == (
        URL,
        ["evt.task.dead", "dlq.task.*"],
        "pages us",
    )
    assert row["created_by"].startswith("cli:")
    webhook_id = row["id"]
    for word in (webhook_id, "enabled", "evt.task.dead dlq.task.*"):
        assert word in cli("webhook", "list").out
        assert word in cli("webhook", "show", webhook_id).out

    assert cli("webhook", "edit", webhook_id).code == 2
    edited = cli("webhook", "edit", webhook_id, "--kind", "evt.task.*", "--disable", "-o", "json").json
    assert (edited["kinds"], edited["is_enabled"], edited["url"]) == (["evt.task.*"], False, URL)
    assert "disabled" in cli("webhook", "list").out
    refused = cli("webhook", "ping", webhook_id)
    assert (refused.code, "is disabled" in refused.err) == (4, True)
    assert cli("webhook", "edit", webhook_id, "--enable", "-o", "json").json["is_enabled"] is True

    turned = cli("webhook", "rotate-secret", webhook_id, "--overlap", "1h")
    assert turned.out.startswith("whsec_")
    assert turned.out != made.out
    assert "old secret until" in cli("webhook", "show", webhook_id).out
    for secret in (made.out, turned.out):
        for command in (("show", webhook_id), ("list", "-o", "json"), ("deliveries", webhook_id)):
            shown = cli("webhook", *command)
            assert secret.strip().removeprefix("whsec_") not in shown.out + shown.err

    assert cli("webhook", "delete", webhook_id).code == 2, "nobody can be asked"
    assert "would delete webhook" in cli("webhook", "delete", webhook_id, "--dry-run").err
    assert cli("webhook", "delete", webhook_id, "--yes").code == 0
    gone = cli("webhook", "show", webhook_id)
    assert (gone.code, "try: grns webhook list" in gone.err) == (3, True)
    assert "no webhooks" in cli("webhook", "list").err


def test_a_ping_that_comes_is_listed_and_sent_again(
    cli: Call, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRNS_WEBHOOK_ALLOW_HTTP", "true")
    monkeypatch.setenv("GRNS_WEBHOOK_ALLOW_NETWORKS", "127.0.0.0/8")

    async def receive(secret: str) -> str:
        """Be there once, and return the id of what comes."""
        server = Receiver()
        database = Database(url, name="test")
        async with server.listening(), database.opened():
            await fetch(database, "update grns.webhooks set url = $1", server.url)
            async with sending(database):
                (request,) = await server.has(1)
        assert request.is_signed_with(secret)
        return request.id

    secret, webhook_id = made(cli, "http://127.0.0.1:1/hook")
    number = cli("webhook", "ping", webhook_id).out.strip()
    assert "pending" in cli("webhook", "deliveries", webhook_id).out
    first = asyncio.run(receive(secret))
    (row,) = cli("webhook", "deliveries", webhook_id, "--state", "delivered", "-o", "json").json["items"]
    assert (str(row["seq"]), row["status_code"], row["kind"]) == (number, 200, "evt.webhook.pinged")
    again = cli("webhook", "resend", webhook_id, number, "-o", "json")
    assert [one["state"] for one in again.json["items"]] == ["pending"]
    assert asyncio.run(receive(secret)) == first
    missing = cli("webhook", "resend", webhook_id, "999999")
    assert (missing.code, "try: grns webhook list" in missing.err) == (3, True)


def test_what_is_not_there_is_said(cli: Call) -> None:
    for command in ("show", "ping", "rotate-secret", "deliveries"):
        assert cli("webhook", command, UNKNOWN).code == 3
    assert cli("webhook", "delete", UNKNOWN, "--yes").code == 3
    assert cli("webhook", "edit", UNKNOWN, "--enable").code == 3


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("create https://a.example/", "Missing option"),
        ("create https://a.example/ --kind evt.task.ded", "(bad_kind)"),
        ("create https://a.example/ --kind cmd.task.execute", "(bad_kind)"),
        ("create http://a.example/s3cret --kind evt.task.*", "(bad_url)"),
        ("create https://u:s3cret@a.example/ --kind evt.task.*", "(bad_url)"),
        ("create https://127.0.0.1/ --kind evt.task.*", "(forbidden_address)"),
        ("create https://a.example/ --kind evt.task.* --description \x1b[31m", "(bad_webhook)"),
        ("edit wh-1 --url ftp://a.example/", "(bad_url)"),
        ("edit wh-1 --kind evt.*", "(bad_kind)"),
        ("edit wh-1", "nothing changes"),
        ("rotate-secret wh-1 --overlap soon", "is not a duration"),
        ("rotate-secret wh-1 --overlap 40d", "(bad_overlap)"),
        ("show a.b", "webhook id must be"),
        ("resend wh-1 0", "(bad_number)"),
        ("resend wh-1 x", "(bad_number)"),
        ("deliveries wh-1 --state lost", "is not one of"),
        ("list --after a.b", "cursor must be"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_connected_to(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, says: str
) -> None:
    monkeypatch.setenv("GRNS_DATABASE_URL", "postgresql://127.0.0.1:1/nobody")
    assert run(["webhook", *command.split(" ")]) == 2
    out, err = capsys.readouterr()
    assert says in err
    assert "s3cret" not in err
    assert out == ""
