"""Keys and workspaces in the database: made, listed, revoked, and who it is that shows a key."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from grns.access.isolation import as_tenant
from grns.access.keys import authenticate, create_key, list_keys, read_key, revoke_key
from grns.access.principals import SCOPES, Principal
from grns.access.token_keys import TokenKeys, rotate
from grns.access.workspaces import create_workspace, list_workspaces
from grns.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnusableError,
)
from grns.model import api_key as words
from grns.model.api_key import ApiKey
from grns.model.claim_token import ShownClaimToken, SigningKey
from grns.postgres.database import Database
from tests.support.store import fetch, stranger

OURS, THEIRS = "acme", "rival"
ACTOR = "cli:ann@desk"


@pytest.fixture
async def peopled(shared: Database) -> Database:
    """A database with two workspaces besides the default one."""
    for workspace in (OURS, THEIRS):
        await create_workspace(shared, workspace, actor=ACTOR)
    return shared


async def make(database: Database, workspace: str | None = OURS, **said: Any) -> ApiKey:
    """Make a key to read with, unless something else is said."""
    fields = {"name": "ci", "scopes": ["read"], "actor": ACTOR} | said
    made, _ = await create_key(database, workspace=workspace, **fields)
    return made


async def told(database: Database, kinds: str) -> list[dict[str, Any]]:
    """Return what the log says of such kinds, payloads parsed."""
    rows = await fetch(
        database,
        "select workspace, kind, actor, payload from grns.events where kind like $1 order by seq",
        kinds,
    )
    return [{**row, "payload": json.loads(row["payload"])} for row in rows]


async def used_at(database: Database, key_id: str) -> Any:
    """Return when a key was used, as far as that was noted."""
    rows = await fetch(database, "select last_used_at from grns.api_keys where id = $1", key_id)
    return rows[0]["last_used_at"]


# ---------------------------------------------------------------- who it is


@pytest.mark.parametrize("workspace", [OURS, None])
async def test_who_shows_a_key_is_known_by_it(peopled: Database, workspace: str | None) -> None:
    made = await make(peopled, workspace, scopes=["submit", "read"])
    somebody = await authenticate(peopled, made.reveal())
    assert somebody == Principal(f"key:{made.id}", workspace, frozenset({"read", "submit"}))


async def test_a_scope_of_a_later_version_lets_nobody_do_anything(peopled: Database) -> None:
    made = await make(peopled)
    await fetch(peopled, "update grns.api_keys set scopes = '{read,foretell}'")
    assert (await authenticate(peopled, made.reveal())).scopes == {"read"}


REFUSED: dict[str, Callable[[ApiKey], str]] = {
    "no_key": lambda _: "let me in",
    "another_secret": lambda made: ApiKey(made.id, words.make(0).secret).reveal(),
    "another_id": lambda made: ApiKey(words.make(0).id, made.secret).reveal(),
    "its_digest": lambda made: ApiKey(made.id, words.digest(made.secret).hex()).reveal(),
    "zeros": lambda _: ApiKey("0" * 20, "0" * 64).reveal(),
}


@pytest.mark.parametrize("shown", REFUSED.values(), ids=REFUSED)
async def test_a_key_that_was_never_made_is_refused(
    peopled: Database, shown: Callable[[ApiKey], str]
) -> None:
    made = await make(peopled)
    with pytest.raises(UnauthenticatedError) as refused:
        await authenticate(peopled, shown(made))
    assert str(refused.value) == "this key is not known, has expired, or was revoked"
    assert await used_at(peopled, made.id) is None


async def test_a_key_that_has_expired_is_refused(peopled: Database) -> None:
    made = await make(peopled, expires_seconds=60.0)
    await authenticate(peopled, made.reveal())
    await fetch(peopled, "update grns.api_keys set expires_at = now()")
    with pytest.raises(UnauthenticatedError):
        await authenticate(peopled, made.reveal())
    assert (await read_key(peopled, made.id, workspace=OURS)).state == "expired"


async def test_a_key_that_was_revoked_is_refused(peopled: Database) -> None:
    made = await make(peopled)
    assert await revoke_key(peopled, made.id, workspace=OURS, actor=ACTOR)
    with pytest.raises(UnauthenticatedError):
        await authenticate(peopled, made.reveal())
    assert not await revoke_key(peopled, made.id, workspace=None, actor="key:other")
    shown = await read_key(peopled, made.id, workspace=None)
    assert (shown.state, shown.revoked_by) == ("revoked", ACTOR)


async def test_its_use_is_noted_once_a_minute(peopled: Database) -> None:
    made = await make(peopled)
    await authenticate(peopled, made.reveal())
    first = await used_at(peopled, made.id)
    assert first is not None
    await asyncio.gather(*(authenticate(peopled, made.reveal()) for _ in range(5)))
    assert await used_at(peopled, made.id) == first
    await fetch(peopled, "update grns.api_keys set last_used_at = now() - interval '61 s'")
    await authenticate(peopled, made.reveal())
    assert await used_at(peopled, made.id) > first


async def test_who_shows_a_key_waits_for_nobody_who_writes_it(peopled: Database) -> None:
    made = await make(peopled)
    async with stranger(peopled) as connection:
        await connection.execute("update grns.api_keys set name = 'another'")
        await authenticate(peopled, made.reveal())
    assert await used_at(peopled, made.id) is None


# ---------------------------------------------------------------- what is kept


async def test_a_secret_is_kept_nowhere(peopled: Database) -> None:
    made = await make(peopled)
    await authenticate(peopled, made.reveal())
    with pytest.raises(UnauthenticatedError) as refused:
        await authenticate(peopled, made.reveal() + "0")
    await revoke_key(peopled, made.id, workspace=None, actor=ACTOR)
    assert made.secret not in f"{made} {refused.value!r} {refused.value.__cause__!r}"
    kept = await fetch(peopled, "select secret_sha256 from grns.api_keys")
    assert [row["secret_sha256"] for row in kept] == [words.digest(made.secret)]
    for table in ("api_keys", "events"):
        rows = await fetch(peopled, f"select t::text as row from grns.{table} t")
        assert any(made.id in row["row"] for row in rows)
        assert not [row["row"] for row in rows if made.secret in row["row"]]


async def test_each_change_is_told_of_with_who_made_it(peopled: Database) -> None:
    """L16: a key bound to `default` could read what became of keys of all workspaces."""
    bound = await make(peopled, expires_seconds=60.0, scopes=["submit", "read"])
    free = await make(peopled, None, scopes=SCOPES, name="root")
    for made in (bound, free):
        await revoke_key(peopled, made.id, workspace=None, actor="key:other")
    found = await told(peopled, "evt.key.%")
    assert [(row["kind"], row["workspace"], row["actor"]) for row in found] == [
        ("evt.key.created", OURS, ACTOR), ("evt.key.created", "_installation", ACTOR),
        ("evt.key.revoked", OURS, "key:other"), ("evt.key.revoked", "_installation", "key:other"),
    ]  # fmt: skip
    said = found[0]["payload"]
    assert (said["key_id"], said["key_workspace"], said["name"]) == (bound.id, OURS, "ci")
    assert said["scopes"] == ["read", "submit"]
    assert said["expires_at"].endswith("Z")
    assert (found[1]["payload"]["key_workspace"], found[1]["payload"]["expires_at"]) == (None, None)
    assert found[3]["payload"]["key_id"] == free.id
    made_known = await told(peopled, "evt.workspace.created")
    assert [(row["workspace"], row["payload"]["workspace"]) for row in made_known] == [
        (OURS,) * 2,
        (THEIRS,) * 2,
    ]


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"workspace": "nowhere"}, NotFoundError),
        ({"scopes": []}, InvalidInputError),
        ({"scopes": ["root"]}, InvalidInputError),
        ({"name": ""}, InvalidInputError),
        ({"expires_seconds": 0.0}, InvalidInputError),
    ],
    ids=["no_workspace", "no_scope", "unknown_scope", "no_name", "expired_at_once"],
)
async def test_a_key_that_cannot_be_made_leaves_nothing(
    shared: Database, said: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await make(shared, **({"workspace": None} | said))
    assert not await fetch(shared, "select from grns.api_keys")
    assert not await told(shared, "evt.key.%")


# ---------------------------------------------------------------- lists


async def test_keys_are_listed_page_by_page_the_latest_first(peopled: Database) -> None:
    ids = [(await make(peopled, workspace)).id for workspace in (OURS, THEIRS, None, OURS, OURS)]
    newest_first = sorted(ids, reverse=True)
    for workspace, wanted in (
        (None, newest_first),
        (OURS, [id for id in newest_first if id in (ids[0], *ids[3:])]),
    ):
        seen: list[str] = []
        after: str | None = None
        while True:
            page = await list_keys(peopled, workspace=workspace, limit=2, after=after)
            assert len(page.rows) <= 2
            seen += [row.id for row in page.rows]
            after = page.next_cursor
            if after is None:
                break
        assert seen == wanted
    (row,) = (await list_keys(peopled, workspace=THEIRS, limit=2)).rows
    assert (row.id, row.state, row.created_by) == (ids[1], "valid", ACTOR)


async def test_a_key_of_another_workspace_is_not_there(peopled: Database) -> None:
    theirs, everybodys = await make(peopled, THEIRS), await make(peopled, None)
    for made in (theirs, everybodys):
        with pytest.raises(NotFoundError):
            await read_key(peopled, made.id, workspace=OURS)
        with pytest.raises(NotFoundError):
            await revoke_key(peopled, made.id, workspace=OURS, actor=ACTOR)
        await authenticate(peopled, made.reveal())


async def test_a_workspace_is_made_once(peopled: Database) -> None:
    with pytest.raises(ConflictError):
        await create_workspace(peopled, OURS, actor=ACTOR)
    with pytest.raises(ConflictError):
        await create_workspace(peopled, "default", actor=ACTOR)
    with pytest.raises(InvalidInputError):
        await create_workspace(peopled, "a.b", actor=ACTOR)
    assert len(await told(peopled, "evt.workspace.created")) == 2


async def test_workspaces_are_listed_page_by_page(peopled: Database) -> None:
    first = await list_workspaces(peopled, limit=2)
    assert [(row.workspace, row.created_by) for row in first.rows] == [(OURS, ACTOR), ("default", None)]
    rest = await list_workspaces(peopled, limit=2, after=first.next_cursor)
    assert [row.workspace for row in rest.rows] == [THEIRS]
    assert rest.next_cursor is None


# ---------------------------------------------------------------- as a tenant


async def test_a_tenant_deals_with_its_own_keys(peopled: Database) -> None:
    theirs, everybodys = await make(peopled, THEIRS), await make(peopled, None)
    async with as_tenant(peopled, OURS) as session:
        made, _ = await create_key(session, workspace=OURS, name="mine", scopes=["read"], actor="key:1")
        listed = await list_keys(session, workspace=None, limit=10)
        assert [row.id for row in listed.rows] == [made.id]
        for other in (theirs, everybodys):
            with pytest.raises(NotFoundError):
                await revoke_key(session, other.id, workspace=None, actor="key:1")
        with pytest.raises(NotFoundError):
            await create_key(session, workspace=THEIRS, name="theirs", scopes=["read"], actor="key:1")
        assert [row.workspace for row in (await list_workspaces(session, limit=10)).rows] == [OURS]
    assert (await authenticate(peopled, made.reveal())).workspace == OURS
    async with as_tenant(peopled, OURS) as session:
        assert await revoke_key(session, made.id, workspace=OURS, actor="key:1")
    assert [row["workspace"] for row in await told(peopled, "evt.key.%")][-2:] == [OURS, OURS]


@pytest.mark.parametrize("workspace", [None, THEIRS])
async def test_a_tenant_makes_no_key_that_reaches_beyond_it(peopled: Database, workspace: str | None) -> None:
    with pytest.raises(NotFoundError if workspace else UnusableError):
        async with as_tenant(peopled, OURS) as session:
            await create_key(session, workspace=workspace, name="all", scopes=["admin"], actor="key:1")
    assert not await fetch(peopled, "select from grns.api_keys")


# ---------------------------------------------------------------- pools


async def test_key_bound_to_pools_works_for_these_alone(peopled: Database) -> None:
    """L15: a key of one pool is none of another."""
    bound = await make(peopled, scopes=["work"], pools=["summarizer", "embedder", "summarizer"])
    who = await authenticate(peopled, bound.reveal())
    assert who.pools == frozenset({"summarizer", "embedder"})
    assert [who.may_work_for(name) for name in ("summarizer", "embedder", "charge")] == [True, True, False]
    assert (await authenticate(peopled, (await make(peopled)).reveal())).may_work_for("charge")
    (row, *_) = (await list_keys(peopled, workspace=OURS, limit=2)).rows
    assert row.pools is None
    assert (await read_key(peopled, bound.id, workspace=OURS)).pools == ["embedder", "summarizer"]
    assert (await told(peopled, "evt.key.created"))[0]["payload"]["pools"] == ["embedder", "summarizer"]


@pytest.mark.parametrize("pools", [[], ["a.b"], [""], ["*"], [f"p{number}" for number in range(101)]])
async def test_key_bound_to_no_pool_or_a_bad_one_is_refused(peopled: Database, pools: list[str]) -> None:
    """L15: an empty list does not mean all."""
    with pytest.raises(InvalidInputError):
        await make(peopled, scopes=["work"], pools=pools)


async def test_key_bound_to_agents_is_these_alone(peopled: Database) -> None:
    bound = await make(peopled, scopes=["work"], agents=["coder-2", "coder-1"])
    who = await authenticate(peopled, bound.reveal())
    assert [who.may_be(name) for name in ("coder-1", "coder-2", "boss")] == [True, True, False]
    assert who.as_agent("coder-1") == "coder-1"
    for name in (None, "boss"):
        with pytest.raises(PermissionDeniedError, match="coder-1, coder-2"):
            who.as_agent(name)
    single = await authenticate(peopled, (await make(peopled, scopes=["work"], agents=["boss"])).reveal())
    assert single.as_agent(None) == "boss"
    free = await authenticate(peopled, (await make(peopled)).reveal())
    assert (free.as_agent(None), free.as_agent("any"), free.may_be("any")) == (None, "any", True)
    assert (await read_key(peopled, bound.id, workspace=OURS)).agents == ["coder-1", "coder-2"]
    assert (await told(peopled, "evt.key.created"))[0]["payload"]["agents"] == ["coder-1", "coder-2"]
    with pytest.raises(InvalidInputError):
        await make(peopled, scopes=["work"], agents=[])


# ---------------------------------------------------------------- secrets of claim tokens


def shown(key: SigningKey) -> ShownClaimToken:
    """Return a token of nothing, signed with a key."""
    return ShownClaimToken(key.id, key.sign(b"{}"), b"{}")


async def test_token_keys_rotated_verify_the_previous_secret_and_no_older(
    database: Database,
) -> None:
    """M3: rotated once, tokens that are out stay valid; rotated twice, they end."""
    keys, others = TokenKeys(database), TokenKeys(database)
    first = await keys.latest()
    assert await others.latest() == first
    assert len(first.secret) == 32
    await rotate(database, actor=ACTOR)
    fresh = TokenKeys(database)
    second = await fresh.latest()
    assert (second.id, second.secret != first.secret) == (first.id + 1, True)
    for one in (first, second):
        with pytest.raises(InvalidInputError):  # the signature is right, and then it is no ticket
            await fresh.verify(shown(one))
    await rotate(database, actor=ACTOR)
    assert [row["id"] for row in await fetch(database, "select id from grns.token_keys order by id")] == [
        second.id,
        second.id + 1,
    ]
    assert [one["payload"]["number"] for one in await told(database, "evt.token_key.rotated")] == [2, 3]


async def test_token_keys_unknown_number_reads_again_and_garbage_does_not_hammer(database: Database) -> None:
    """M3: a process that has not heard of a rotation reads the new secret when it meets it."""
    asked = 0

    class Counting(Database):
        async def run(self, name: str, *arguments: object) -> Any:
            nonlocal asked
            asked += name == "read_token_keys"
            return await super().run(name, *arguments)

    counting = Counting(database.url, name="test", size=1)
    await counting.connect()
    try:
        keys = TokenKeys(counting)
        first = await keys.latest()
        await rotate(database, actor=ACTOR)
        keys._read_at -= 1.0
        with pytest.raises(InvalidInputError):
            await keys.verify(ShownClaimToken(first.id + 1, bytes(32), b"{}"))
        assert (await keys.latest()).id == first.id + 1
        before = asked
        for number in range(100):
            with pytest.raises(InvalidInputError):
                await keys.verify(ShownClaimToken(1000 + number, bytes(32), b"{}"))
        assert asked - before <= 2
    finally:
        await counting.close()


async def test_token_keys_are_not_readable_by_a_tenant(peopled: Database) -> None:
    """M3: whoever works for one workspace could sign for another."""
    async with as_tenant(peopled, OURS) as session:
        with pytest.raises(UnusableError):
            await session.run("read_token_keys")
