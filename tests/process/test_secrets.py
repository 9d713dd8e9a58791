"""No secret in any log, error, event, message, metric or page: canaries that everything here has flown past.

Passwords in URLs, a key, a mistyped one, a webhook's secret and path, sessions' secret, a claim's token: each
is used, rightly and wrongly, while the broker goes away and comes back, and connections to Postgres are cut.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from grns.access.keys import create_key
from grns.dev.servers import LocalNats
from grns.postgres.database import Database
from tests.process.test_api import ended, url_of
from tests.support.api import good
from tests.support.harness import ROOT, Fleet, all_in, eventually, read_stream, ready
from tests.support.store import fetch

pytestmark = pytest.mark.timeout(180)

WORD, SIGNING = "canary-of-nats", "canary-of-sessions-" + "x" * 32
HOOK = "canary-of-hook"
# Tables that keep what has to be used again, and are read by nobody who may not.
KEPT = {"webhooks", "webhook_secrets"}
COMMANDS = (
    "config show --origin -o json", "doctor --all -o json", "broker info",
    "key list --all-workspaces -o json", "key revoke {wrong}", "events export --since 1h",
    "task list -o json", "dlq list -o json",
)  # fmt: skip


@pytest.fixture
def guarded(directory: Path) -> Iterator[LocalNats]:
    """A broker that wants a password."""
    config = f"authorization {{ user: grns, password: {WORD} }}\n"
    with LocalNats(directory / f"nats-{os.urandom(8).hex()}", extra_config=config, has_token=False) as server:
        yield server


def with_password(url: str, password: str, user: str = "grns") -> str:
    """Return a URL with a user and a password."""
    parts = urlsplit(url)
    return parts._replace(netloc=f"{user}:{password}@{parts.hostname}:{parts.port}").geturl()


async def test_no_secret_is_told(
    fleet: Fleet, database: Database, guarded: LocalNats, tmp_path: Path
) -> None:
    broker = with_password(guarded.url, WORD)
    environment = {
        "GRNS_DATABASE_URL": database.url,
        "GRNS_NATS_URL": broker,
        "GRNS_SESSION_SECRET": SIGNING,
        "GRNS_LOG_LEVEL": "debug",
        "GRNS_API_PORT": "0",
        "GRNS_WEBHOOK_ALLOW_HTTP": "true",
        "GRNS_WEBHOOK_ALLOW_NETWORKS": "127.0.0.0/8",
    }
    made, _ = await create_key(database, workspace=None, name="root", scopes=["admin"], actor="cli:ann@desk")
    key = made.reveal()
    wrong = key[:-1] + ("0" if key[-1] != "0" else "1")
    server = fleet.start("server", "--api", **environment)
    worker = fleet.start("worker", "start", "tests.support.pools:pool", **environment)
    refused = fleet.start(
        "daemon", "relay", **environment | {"GRNS_NATS_URL": with_password(guarded.url, WORD + "-wrong")}
    )
    await ready(database, worker)
    url = await url_of(fleet, server)
    told: list[str] = []
    password = urlsplit(database.url).password or ""
    canaries = [password, WORD, SIGNING, HOOK, made.secret, wrong.rpartition("_")[2]]
    async with httpx2.AsyncClient(base_url=url, timeout=20.0) as visitor:
        canaries += await _use(visitor, key, wrong, told)
        guarded.kill()
        await visitor.post("/api/v1/tasks", json={"task_type": "noop"}, headers=_shown(key))
        await fetch(
            database,
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where pid <> pg_backend_pid() and datname = current_database()",
        )
        await asyncio.sleep(1.0)
        guarded.start()
        late = await _until_made(visitor, key)
        await all_in(database, [late], within_seconds=60)
        told.append((await visitor.get("/metrics", headers=_shown(key))).text)
        told += await _pages(visitor, key)
    for command in COMMANDS:
        told.append(await _command(command.format(wrong=wrong), environment, tmp_path))
    await eventually(lambda: _has_failed(database), within_seconds=60)
    for process in (server, worker):
        assert await ended(process) == 0, fleet.log_of(process)
    refused.send_signal(signal.SIGTERM)
    await asyncio.to_thread(refused.wait, 30)
    told += [fleet.log_of(process) for process in fleet.processes]
    told += await _rows(database)
    for stream in ("GRNS_CMD", "GRNS_EVT", "GRNS_DLQ"):
        told += [repr(message) for message in await read_stream(broker, stream)]
    assert sum(map(len, told)) > 50_000, "there is something to look through"
    for canary in canaries:
        assert len(canary) >= len(WORD)
        assert not [text[max(0, text.find(canary) - 200) :][:400] for text in told if canary in text], canary


def _shown(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def _use(visitor: httpx2.AsyncClient, key: str, wrong: str, told: list[str]) -> list[str]:
    """Use every secret, rightly and wrongly; returns those that came of it, and notes what was answered."""
    shown = _shown(key)
    order = {"url": f"http://127.0.0.1:9/{HOOK}?token={HOOK}", "kinds": ["evt.task.*", "evt.key.*"]}
    hook = good(await visitor.post("/api/v1/webhooks", json=order, headers=shown))
    ci = {"name": "ci", "scopes": ["read"]}
    other = good(await visitor.post("/api/v1/keys", json=ci, headers=shown))
    far = {"task_type": "elsewhere", "agent_type": "far"}
    good(await visitor.post("/api/v1/tasks", json=far, headers=shown))
    wanted = {"agent_type": "far", "task_types": ["elsewhere"]}
    token = good(await visitor.post("/api/v1/queue/claim", json=wanted, headers=shown))["token"]
    doors: tuple[dict[str, str], ...] = (
        {},
        shown,
        _shown(wrong),
        {"Authorization": f"Basic {key}"},
        {"Cookie": f"grns={key}"},
    )
    said = [
        *(
            ("tasks", body)
            for body in ({key: 1}, {"task_type": key}, {"task_type": "noop", "trace_id": key * 2})
        ),
        ("queue/complete", {"token": token[:-2], "result": {}}),
        ("queue/complete", {"token": key}),
    ]
    for headers in doors:
        for path in (f"tasks/{key}", f"tasks?filter={key}:1", f"tasks?cursor={key}", key, f"counts?{key}=1"):
            answer = await visitor.get(f"/api/v1/{path}", headers=headers)
            assert answer.status_code in range(400, 500), answer.text
            told.append(answer.text)
        for path, body in said:
            answer = await visitor.post(f"/api/v1/{path}", json=body, headers=headers)
            assert answer.status_code in range(400, 500), answer.text
            told.append(answer.text)
    failure = {"token": token, "error": {"class": "Odd", "message": "no"}}
    told.append((await visitor.post("/api/v1/queue/fail", json=failure, headers=shown)).text)
    return [hook["secret"].removeprefix("whsec_"), other["key"].rpartition("_")[2], token]


async def _until_made(visitor: httpx2.AsyncClient, key: str) -> str:
    async def create() -> str:
        answer = await visitor.post("/api/v1/tasks", json={"task_type": "noop"}, headers=_shown(key))
        return str(answer.json()["id"]) if answer.is_success else ""

    return await eventually(create, within_seconds=60)


async def _pages(visitor: httpx2.AsyncClient, key: str) -> list[str]:
    """Return what the dashboard shows whoever has logged in."""
    entered = await visitor.post("/login", data={"key": key})
    assert entered.status_code == 303, entered.text
    return [
        (await visitor.get(path)).text
        for path in (
            "/",
            "/tasks",
            "/issues",
            "/operations",
            "/workers",
            "/pools",
            "/events",
            "/keys",
            "/messages",
        )
    ]


async def _command(command: str, environment: dict[str, str], directory: Path) -> str:
    """Run one command of grns, and return all that it says."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "grns", *command.split(),
        env=os.environ | environment | {"PYTHONPATH": str(ROOT)}, cwd=directory, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await asyncio.wait_for(process.communicate(), 30)
    return said.decode()


async def _has_failed(database: Database) -> bool:
    """Say whether a delivery was attempted, in vain: nobody is there."""
    return bool(await fetch(database, "select from grns.webhook_deliveries where attempts > 0"))


async def _rows(database: Database) -> list[str]:
    """Return every row of every table, as text."""
    names: list[Any] = await fetch(
        database,
        "select relname from pg_class where relkind = 'r' and relnamespace = 'grns'::regnamespace",
    )
    tables = sorted({row["relname"] for row in names} - KEPT)
    assert "tasks" in tables
    return [
        row["text"]
        for name in tables
        for row in await fetch(database, f"select r::text as text from grns.{name} r")
    ]
