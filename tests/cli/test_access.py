"""`grns admin key …` and `grns admin workspace …`: none of them needs a broker."""

from __future__ import annotations

import asyncio

import pytest

from grns.access.keys import authenticate
from grns.access.principals import Principal
from grns.cli import run
from grns.postgres.database import Database
from tests.support.cli import Call

UNKNOWN = "0" * 20


def known(url: str, key: str) -> Principal:
    """Return who it is that shows a key."""

    async def ask() -> Principal:
        database = Database(url, name="test")
        async with database.opened():
            return await authenticate(database, key)

    return asyncio.run(ask())


def test_a_key_is_printed_once_and_alone(cli: Call, url: str) -> None:
    made = cli(
        "admin", "key", "create", "ci of the shop", "--scope", "read", "--scope", "submit", "--expires", "30d"
    )
    assert made.code == 0
    key = made.out.strip()
    assert len(made.out.split()) == 1
    assert "not shown again" in made.err
    somebody = known(url, key)
    assert (somebody.workspace, set(somebody.scopes)) == ("default", {"read", "submit"})
    secret = key.rpartition("_")[2]
    listed = cli("admin", "key", "list")
    assert "ci of the shop" in listed.out
    assert secret not in listed.out + listed.err + cli("admin", "key", "list", "-o", "json").out
    (row,) = cli("admin", "key", "list", "-o", "json").json["items"]
    assert (row["id"], row["workspace"], row["scopes"]) == (somebody.actor[4:], "default", ["read", "submit"])
    assert row["created_by"].startswith("cli:")
    assert row["last_used_at"] is not None


def test_a_key_is_bound_to_a_workspace_or_to_none(cli: Call, url: str) -> None:
    missing = cli("admin", "key", "create", "ci", "--scope", "read", "--workspace", "acme")
    assert missing.code == 3
    assert "try: grns admin workspace create acme" in missing.err
    assert cli("admin", "workspace", "create", "acme").code == 0
    again = cli("admin", "workspace", "create", "acme")
    assert (again.code, "grns admin workspace list" in again.err) == (4, True)
    bound = cli("admin", "key", "create", "ci", "--scope", "read", "--workspace", "acme", "-o", "json").json
    free = cli("admin", "key", "create", "root", "--scope", "admin", "--all-workspaces", "-o", "json").json
    assert (bound["workspace"], free["workspace"]) == ("acme", None)
    assert known(url, free["key"]).may("submit", "acme")
    assert not known(url, bound["key"]).reaches("default")
    in_acme = cli("admin", "key", "list", "--workspace", "acme", "-o", "json").json["items"]
    everywhere = cli("admin", "key", "list", "--all-workspaces", "-o", "json").json["items"]
    assert [row["id"] for row in in_acme] == [bound["id"]]
    assert {row["id"] for row in everywhere} == {bound["id"], free["id"]}
    names = [row["workspace"] for row in cli("admin", "workspace", "list", "-o", "json").json["items"]]
    assert names == ["acme", "default"]


def revoked(cli: Call) -> set[str]:
    """Return the ids of the keys that are listed as revoked."""
    return {
        row["id"]
        for row in cli("admin", "key", "list", "-o", "json").json["items"]
        if row["state"] == "revoked"
    }


def test_a_key_is_revoked_by_its_id_or_by_itself(cli: Call) -> None:
    keys = [cli("admin", "key", "create", "ci", "--scope", "read", "-o", "json").json for _ in range(2)]
    for said, made in ((keys[0]["id"], keys[0]), (keys[1]["key"], keys[1])):
        assert cli("admin", "key", "revoke", said).code == 2, "nobody can be asked"
        assert "would revoke key" in cli("admin", "key", "revoke", said, "--dry-run").err
        assert made["id"] not in revoked(cli)
        done = cli("admin", "key", "revoke", said, "--yes")
        assert (done.code, made["id"] in done.err) == (0, True)
        again = cli("admin", "key", "revoke", said, "--yes")
        assert again.code == 4
        assert made["key"] not in done.err + again.err
    assert revoked(cli) == {made["id"] for made in keys}
    assert cli("admin", "key", "revoke", UNKNOWN, "--yes").code == 3


def test_a_key_in_a_wrong_place_is_not_repeated_whole(cli: Call) -> None:
    made = cli("admin", "key", "create", "ci", "--scope", "read", "-o", "json").json
    for command in (("task", "show"), ("task", "list", "--workspace"), ("admin", "workspace", "create")):
        refused = cli(*command, made["key"])
        assert refused.code == 2
        assert f"grns_{made['id']}_***" in refused.err
        assert made["key"] not in refused.err


def test_workspaces_are_kept_apart_and_it_is_told(cli: Call) -> None:
    for _ in range(2):
        done = cli("admin", "workspace", "isolate")
        assert (done.code, "the database isolates workspaces" in done.err) == (0, True)
    assert "isolate" not in cli("admin", "db", "upgrade").err


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("admin key create ci", "Missing option"),
        ("admin key create ci --scope root", "is not one of"),
        ("admin key create ci --scope read --expires soon", "is not a duration"),
        ("admin key create ci --scope read --expires 0s", "expires after"),
        ("admin key create ci --scope read --expires 9999d", "expires after"),
        ("admin key create \x1b[31m --scope read", "printable"),
        ("admin key revoke gr-1 --yes", "a key's id is"),
        ("admin key list --limit 0", "is not in the range"),
        ("admin workspace create a.b", "workspace must be"),
        ("admin workspace create ../x", "workspace must be"),
        ("admin workspace list --after a.b", "cursor must be"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_connected_to(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, says: str
) -> None:
    monkeypatch.setenv("GRNS_DATABASE_URL", "postgresql://127.0.0.1:1/nobody")
    assert run(command.split(" ")) == 2
    out, err = capsys.readouterr()
    assert says in err
    assert out == ""


@pytest.mark.parametrize(
    "command", ["key create", "key list", "key revoke", "workspace create", "workspace isolate"]
)
def test_help_is_there(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert run(["admin", *command.split(), "--help"]) == 0
    assert f"grns admin {command}" in capsys.readouterr().out
