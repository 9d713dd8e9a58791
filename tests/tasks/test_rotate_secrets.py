"""Rotation and counting of secrets, in pages smaller than the tables: each row is looked at once."""

from __future__ import annotations

import json
from hashlib import md5
from uuid import UUID

import pytest

from grns.model.seal import Keyring, MasterKey
from grns.postgres.database import Database
from grns.tasks import rotate_secrets
from grns.tasks.rotate_secrets import count_sealed, rotate
from tests.support.store import fetch

OLD, NEW = MasterKey.new("old"), MasterKey.new("new")
TOKEN = "t0ken-of-the-canary"
# In the order of texts, "acme-eu/…" is before "acme/…"; in that of (workspace, name) it is after.
WORKSPACES = ("acme", "acme-eu", "acme_2", "ACME")
PER_WORKSPACE = 7  # rows of each kind, of which every third has no secret

_TASK = """
    insert into grns.tasks (id, workspace, task_type, agent_type, priority, trace_id, last_message_id, status,
        payload, result, queued_at, finished_at)
    select 'gr-' || $2::int || $1, $1, 'x', 'worker', 1, 'trace', gen_random_uuid(), """
# How a row of each kind is made: $1 workspace, $2 a number, $3 its document as text.
INSERT = {
    "c": """
        insert into grns.progress (task_id, workspace, checkpoint)
        values ('gr-' || $2::int || $1, $1, $3::text::jsonb)""",
    "e": """
        insert into grns.steps (task_id, name, workspace, kind, value, attempt)
        values ('gr-' || $2::int % 3 || $1, 'step-' || $2 || '/' || $2, $1, 'step', $3::text::jsonb, 1)""",
    "m": """
        insert into grns.mail (id, workspace, to_agent, type, payload, expires_at)
        values (md5($1 || $2::int)::uuid, $1, 'coder-1', 'x', $3::text::json, now() + interval '1 day')""",
    "o": """
        insert into grns.operations (workspace, action, filter, canary, reason, patch, created_by, matched,
            is_exact)
        values ($1, 'redrive', '', false, 'reason ' || $2::int, $3::text::jsonb, 'me', 1, true)""",
    "r": _TASK + "'succeeded', '{}', $3::text::jsonb, null, now()",
    "s": """
        insert into grns.schedules (workspace, name, every_seconds, time_zone, task_type, agent_type, payload,
            priority, overlap, catch_up, window_seconds, jitter_seconds, anchor_at, next_at, updated_by)
        values ($1, 'nightly-' || $2::int, 60, 'UTC', 'x', 'worker', $3::text::jsonb,
            1, 'skip', 'none', 0, 0, now(), now(), 'me')""",
    "t": _TASK + "'queued', $3::text::jsonb, null, now(), null",
    "w": """
        insert into grns.webhook_secrets (webhook_id, workspace, secret)
        values ('wh-' || $2::int || $1, $1, convert_to($3, 'UTF8'))""",
}


@pytest.fixture(autouse=True)
def keys(shared: Database) -> None:
    """The key of the installation."""
    shared.vault.keys = Keyring([OLD])


def sealed_text(shared: Database, kind: str, workspace: str, number: int) -> str:
    """Return the document of a row of a kind, with a secret."""
    if kind == "w":
        return shared.vault.hide_key(TOKEN.encode(), workspace).decode()
    message_id = UUID(md5(f"{workspace}{number}".encode(), usedforsecurity=False).hexdigest())
    mail = (str(message_id), "coder-1") if kind == "m" else ()
    return json.dumps(shared.vault.hide({"token": TOKEN}, [("token",)], workspace, mail=mail))


async def fill(shared: Database, kind: str) -> int:
    """Insert rows of a kind in workspaces with a common prefix; return how many have a secret."""
    sealed = 0
    for number in range(PER_WORKSPACE):
        for workspace in WORKSPACES:
            is_sealed = number % 3 > 0
            text = sealed_text(shared, kind, workspace, number) if is_sealed else '{"n": 1}'
            await fetch(shared, INSERT[kind], workspace, number, text)
            sealed += is_sealed
    return sealed


@pytest.mark.parametrize("page_rows", [1, 5, 1000])
@pytest.mark.parametrize("kind", INSERT)
async def test_rotation_in_small_pages_misses_no_row(
    shared: Database, monkeypatch: pytest.MonkeyPatch, kind: str, page_rows: int
) -> None:
    monkeypatch.setattr(rotate_secrets, "PAGE_ROWS", page_rows)
    sealed = await fill(shared, kind)
    found = await count_sealed(shared)
    assert (found.total, found.by_key) == (sealed, {"old": sealed})
    shared.vault.keys = Keyring([NEW, OLD])
    assert await rotate(shared) == sealed
    monkeypatch.setattr(rotate_secrets, "PAGE_ROWS", 1000)
    assert (await count_sealed(shared)).by_key == {"new": sealed}


async def test_rotation_ends_where_no_page_has_a_secret(
    shared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotate_secrets, "PAGE_ROWS", 10)
    for n in range(35):
        await fetch(shared, INSERT["t"], "acme", n, '{"n": 1}')
    assert (await count_sealed(shared)).total == 0
    await fetch(shared, INSERT["t"], "zeta", 99, sealed_text(shared, "t", "zeta", 99))
    assert (await count_sealed(shared)).by_key == {"old": 1}
    shared.vault.keys = Keyring([NEW, OLD])
    assert await rotate(shared) == 1


async def test_step_of_another_kind_is_passed_over(shared: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal may bring what only looks like a secret: it stays as it is."""
    monkeypatch.setattr(rotate_secrets, "PAGE_ROWS", 2)
    forged = '{"token": {"$secret": "1.old.AAAA.BBBB"}}'
    for n in range(5):
        await fetch(shared, INSERT["e"].replace("'step',", "'signal',"), "acme", n, forged)
    await fetch(shared, INSERT["e"], "zeta", 1, sealed_text(shared, "e", "zeta", 1))
    shared.vault.keys = Keyring([NEW, OLD])
    assert (await count_sealed(shared)).total == 1
    assert await rotate(shared) == 1
