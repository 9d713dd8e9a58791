"""Secrets of payloads in real processes: only the handler sees them, wherever else one looks.

A worker without the key gives the task back, unspent, until one has it. The handler tells its secret in every
way that it can: it logs, reports, streams and raises it.
"""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from grns.access.keys import create_key
from grns.dev.servers import LocalNats
from grns.model.seal import MasterKey
from grns.postgres.database import Database
from tests.process.test_api import ended, url_of
from tests.process.test_secrets import _command, _rows
from tests.support.api import good
from tests.support.harness import Fleet, all_in, eventually, read_stream, ready
from tests.support.store import ACTOR, fetch

pytestmark = pytest.mark.timeout(120)

CANARY, OTHER = "canary-of-a-payload", "canary-of-an-agent"
POOL = """
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, SecretStr

import grns

pool = grns.Pool("vaulted", max_attempts=2, backoff=grns.Backoff(base_seconds=0.1))


@dataclass
class Plain:
    token: str


class Odd:
    def __init__(self, token: str) -> None:
        self.token = token

    def __repr__(self) -> str:
        return f"odd {self.token}"


class Order(BaseModel):
    host: str
    token: SecretStr


@pool.task
async def tell(order: Order, ctx: grns.Context) -> dict:
    token = order.token.get_secret_value()
    assert token == "canary-of-a-payload"
    ctx.log.warning("with %s", token, token=token, deep={"a": [token]})
    ctx.log.info("has %s of %d", Plain(token), 1, plain=Plain(token), odd=Odd(token))
    ctx.log.info("and", pair=(token, {1: token}))
    ctx.stream(Plain(token))
    ctx.log.bind(token=token).info(f"has {token}")
    ctx.progress(50, f"calls with {token}")
    ctx.stream(f"streams {token}")
    ctx.stream({"token": token})
    if not Path("told").exists():
        Path("told").touch()
        try:
            raise ValueError(f"401 for {token}")
        except ValueError as error:
            ctx.log.exception("failed")
            raise RuntimeError(f"no way with {token}") from error
    return {"host": order.host}


@pool.task(secret=["token"])
async def call(order: dict) -> None: ...
"""


async def test_only_the_handler_sees_a_secret(
    fleet: Fleet, database: Database, broker: LocalNats, tmp_path: Path
) -> None:
    (tmp_path / "vaulted.py").write_text(POOL)
    (tmp_path / "keys").write_text(MasterKey.new("one").line())
    (tmp_path / "other").write_text(MasterKey.new("other").line())
    has_key = {"GRNS_KEYS_FILE": str(tmp_path / "keys")}
    environment = {
        "GRNS_DATABASE_URL": database.url, "GRNS_NATS_URL": broker.url, "GRNS_LOG_LEVEL": "debug",
        "GRNS_API_PORT": "0", "GRNS_TASK_LOG_LEVEL": "debug",
    }  # fmt: skip
    made, _ = await create_key(database, workspace=None, name="root", scopes=["admin"], actor=ACTOR)
    shown = {"Authorization": f"Bearer {made.reveal()}"}
    server = fleet.start("server", "--api", **environment, **has_key)
    poor = fleet.start(
        "worker", "start", "vaulted:pool", **environment, GRNS_KEYS_FILE=str(tmp_path / "other")
    )
    await ready(database, poor)
    url = await url_of(fleet, server)
    order = {"task_type": "tell", "agent_type": "vaulted", "payload": {"host": "a", "token": CANARY}}
    told: list[str] = []
    async with httpx2.AsyncClient(base_url=url, timeout=20.0, headers=shown) as visitor:
        task_id = good(await visitor.post("/api/v1/tasks", json=order))["id"]

        async def is_given_back() -> bool:
            rows = await fetch(
                database,
                "select from grns.events where task_id = $1 and kind = 'evt.task.released'"
                " and payload ->> 'reason' = 'no_key'",
                task_id,
            )
            return len(rows) >= 2

        await eventually(is_given_back, within_seconds=30)
        rich = fleet.start("worker", "start", "vaulted:pool", **environment, **has_key)
        await ready(database, rich)
        assert await ended(poor) == 0
        await all_in(database, [task_id], within_seconds=40)
        (row,) = await fetch(
            database,
            "select status, attempt - uncounted_attempts as counted from grns.tasks where id = $1",
            task_id,
        )
        assert (row["status"], row["counted"]) == ("succeeded", 2)
        assert await ended(rich) == 0
        order = {"task_type": "call", "agent_type": "vaulted", "payload": {"token": OTHER}}
        other_id = good(await visitor.post("/api/v1/tasks", json=order))["id"]
        wanted = {"agent_type": "vaulted", "task_types": ["call"], "wait_seconds": 10}
        claimed = good(await visitor.post("/api/v1/queue/claim", json=wanted))
        assert claimed["task"]["payload"] == {"token": OTHER}
        good(await visitor.post("/api/v1/queue/complete", json={"token": claimed["token"], "result": None}))
        for path in ("", "/events", "/attempts", "/logs"):
            told += [(await visitor.get(f"/api/v1/tasks/{one}{path}")).text for one in (task_id, other_id)]
        told.append((await visitor.get("/api/v1/events")).text)
        told += await _pages(visitor, made.reveal(), task_id)
        revealed = await visitor.post(f"/api/v1/tasks/{task_id}/reveal", json={})
        assert good(revealed)["payload"]["token"] == CANARY
    assert sum("•••" in text for text in told) >= 6, "secrets are shown as dots"
    for command in (
        f"task show {task_id}", f"task show {task_id} -o json", f"task events {task_id}",
        f"task logs {task_id}",
        f"task explain {task_id}", "events export --since 1h", "task list -o json", "admin verify",
    ):  # fmt: skip
        told.append(await _command(command, environment | has_key, tmp_path))
    assert CANARY in await _command(f"task reveal {task_id}", environment | has_key, tmp_path)
    refused = await _command(f"task reveal {task_id}", environment, tmp_path)
    assert "GRNS_KEYS_FILE" in refused
    assert await ended(server) == 0
    told += [fleet.log_of(process) for process in fleet.processes]
    told += await _rows(database)
    for stream in ("GRNS_CMD", "GRNS_EVT", "GRNS_DLQ", "GRNS_OUT"):
        told += [repr(message) for message in await read_stream(broker.url, stream)]
    assert sum(map(len, told)) > 50_000, "there is something to look through"
    for canary in (CANARY, OTHER):
        assert not [text[max(0, text.find(canary) - 200) :][:400] for text in told if canary in text], canary


async def _pages(visitor: httpx2.AsyncClient, key: str, task_id: str) -> list[str]:
    """Return what the dashboard shows of a task."""
    entered = await visitor.post("/login", data={"key": key})
    assert entered.status_code == 303, entered.text
    return [(await visitor.get(path)).text for path in (f"/tasks/{task_id}", "/tasks", "/issues", "/events")]
