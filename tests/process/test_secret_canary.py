"""Secrets of tasks and mail at every interface: a canary with quotes, a line end and an accent.

The handler tells its secret in the ways in which programs write it: as it is, as `repr`, JSON and base64, and
in an error that is long enough to be cut. It runs, in real processes, against every place of one table.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import nats
import pytest

from grns.access.keys import create_key
from grns.dev.servers import LocalNats
from grns.maintenance.retention import delete_tasks
from grns.model.seal import MasterKey
from grns.model.secret import MASK
from grns.postgres.database import Database
from grns.runtime.place import DirectoryPlace
from tests.mcp.host import host, text_of
from tests.process.test_api import ended, url_of
from tests.process.test_secrets import _command, _rows
from tests.support.api import good
from tests.support.harness import Fleet, all_in, eventually, read_stream, ready
from tests.support.store import ACTOR, fetch
from tests.support.webhooks import HERE, Receiver

pytestmark = pytest.mark.timeout(180)

CANARY = "xc4n4ry \"of\" the 'clé'\n\tand its xc4n4ry line end, which is long enough to be cut xc4n4ry"
# Also in base64, wherever it begins in it.
MARKS = (
    "c4n4ry",
    *(
        base64.b64encode(bytes(before) + b"c4n4ry").decode()[mixed : 8 + before]
        for before, mixed in enumerate((0, 2, 3))
    ),
)
POOL = """
import base64
import json

from pydantic import BaseModel, SecretStr

import grns

pool = grns.Pool("vaulted", max_attempts=1)


class Session(BaseModel):
    user: str
    token: SecretStr


class Order(BaseModel):
    host: str
    token: SecretStr
    fails: bool = True


def log_in(token: str) -> Session:
    return Session(user="ann", token=SecretStr("of a step: " + token))


@pool.task
async def tell(order: Order, ctx: grns.Context) -> Session:
    key = order.token.get_secret_value()
    session = await ctx.step("log in", log_in, key)
    ctx.checkpoint(session)
    basic = base64.b64encode(f"user:{key}".encode()).decode()
    for text in (key, repr(key), ascii(key), json.dumps(key), json.dumps([key], ensure_ascii=False), basic,
                 repr(ValueError(f"bad {key!r}")), session.token.get_secret_value()):
        ctx.log.warning(f"with {text}", text=text, error=ValueError(text), deep={"a": [text]})
        ctx.log.info("." * 1980 + text)
        ctx.progress(50, f"calls with {text}")
        ctx.stream(f"streams {text} ")
        ctx.stream({"body": text})
    if order.fails:
        try:
            raise ValueError(f"bad {key!r}")
        except ValueError as error:
            raise RuntimeError("." * 3985 + json.dumps({"key": key})) from error
    return Session(user="ann", token=order.token)
"""


@dataclass
class Scene:
    """What has happened, and what looks at it."""

    visitor: httpx2.AsyncClient
    url: str
    key: str
    database: Database
    broker: LocalNats
    fleet: Fleet
    environment: dict[str, str]
    directory: Path
    receiver: Receiver
    streamed: list[str] = field(default_factory=list)
    dead: str = ""
    done: str = ""
    remote: str = ""
    """Id of the task of an HTTP worker."""
    message: str = ""
    """Id of the rejected message."""

    async def gets(self, *paths: str) -> list[str]:
        """Return the answers of paths, which may name `{dead}`, `{done}` and `{message}`."""
        return [(await self._get(path)) for path in paths]

    async def _get(self, path: str) -> str:
        answer = await self.visitor.get(path.format(**vars(self)))
        assert answer.is_success, f"{path}: {answer.text}"
        return answer.text

    async def runs(self, *commands: str) -> list[str]:
        """Return what commands print."""
        return [
            await _command(command.format(**vars(self)), self.environment, self.directory)
            for command in commands
        ]


async def _pages(scene: Scene) -> list[str]:
    entered = await scene.visitor.post("/login", data={"key": scene.key})
    assert entered.status_code == 303, entered.text
    return await scene.gets(
        "/tasks/{dead}",
        "/tasks/{done}",
        "/tasks/{remote}",
        "/tasks",
        "/issues",
        "/events",
        "/messages",
        "/messages/{message}",
    )


async def _tools(scene: Scene) -> list[str]:
    async with host(scene.url, scene.key) as client:
        return [
            text_of(await client.call_tool(name, arguments))
            for task_id in (scene.dead, scene.done, scene.remote)
            for name, arguments in (
                ("task_show", {"task_id": task_id}), ("task_wait", {"task_id": task_id, "wait_seconds": 0}),
                ("task_explain", {"task_id": task_id}), ("task_list", {}), ("agent_list", {}),
                ("message_read", {"agent": "other"}),
            )
        ]  # fmt: skip


async def _archive(scene: Scene) -> list[str]:
    """Archive the tasks, and read them: it is the last place, as they are deleted."""
    await fetch(scene.database, "update grns.tasks set finished_at = now() - interval '10 days'")
    place = scene.directory / "archive"
    page = await delete_tasks(scene.database, "", 100, 86_400.0, 86_400.0, DirectoryPlace(place))
    assert page.deleted == 3
    (file,) = place.glob("tasks/**/*.jsonl.gz")
    name = str(file.relative_to(place)).removesuffix(".jsonl.gz")
    shown = await scene.runs(
        "archive list -o json",
        "archive show {dead}",
        "archive show {done}",
        "archive show {remote}",
        f"archive show {name}",
    )
    ids = (scene.dead, scene.done, scene.remote)
    assert all(any(one in text for one in ids) for text in shown[1:]), shown
    return [*shown, gzip.decompress(file.read_bytes()).decode()]


async def _written(scene: Scene) -> list[str]:
    streams = ("GRNS_CMD", "GRNS_EVT", "GRNS_DLQ", "GRNS_OUT")
    return [repr(one) for name in streams for one in await read_stream(scene.broker.url, name)]


PLACES: dict[str, Callable[[Scene], Awaitable[list[str]]]] = {
    "API": lambda scene: scene.gets(
        *(
            f"/api/v1/tasks/{task}{path}"
            for task in ("{dead}", "{done}", "{remote}")
            for path in ("", "/events", "/attempts", "/logs", "/steps", "/explain")
        ),
        "/api/v1/tasks", "/api/v1/events", "/api/v1/issues", "/api/v1/mail",
    ),
    "dead letters": lambda scene: scene.gets(
        "/api/v1/dead-letters", "/api/v1/dead-letters/export", "/api/v1/dead-letters/export?what=message",
        "/api/v1/messages/{message}",
    ),
    "streams of a task and of events": lambda scene: asyncio.sleep(0, scene.streamed),
    "webhooks": lambda scene: asyncio.sleep(0, [one.body.decode() for one in scene.receiver.requests]),
    "pages": _pages,
    "MCP": _tools,
    "CLI": lambda scene: scene.runs(
        *(
            f"task {command} {task}"
            for task in ("{dead}", "{done}")
            for command in ("show", "show -o json", "events", "logs", "steps", "explain", "tail")
        ),
        "task logs {remote}", "task list -o json",
        "events export --since 1h", "issue list -o json", "agent mail list -o json",
        "admin verify",
    ),
    "dead letters in the CLI": lambda scene: scene.runs(
        "dlq list", "dlq list -o json", "dlq show {dead}", "dlq show {remote}", "dlq show {message}",
        "dlq show {message} --raw", "dlq export", "dlq export --messages",
    ),
    "rows": lambda scene: _rows(scene.database),
    "messages of NATS": _written,
    "logs": lambda scene: asyncio.sleep(0, [scene.fleet.log_of(one) for one in scene.fleet.processes]),
    "archive": _archive,
}  # fmt: skip
AS_STORED = {"rows", "messages of NATS", "archive"}


async def test_a_secret_is_at_no_interface(
    fleet: Fleet, database: Database, broker: LocalNats, tmp_path: Path
) -> None:
    (tmp_path / "vaulted.py").write_text(POOL)
    (tmp_path / "keys").write_text(MasterKey.new("one").line())
    (tmp_path / "archive").mkdir()
    environment = {
        "GRNS_DATABASE_URL": database.url, "GRNS_NATS_URL": broker.url, "GRNS_LOG_LEVEL": "debug",
        "GRNS_API_PORT": "0", "GRNS_TASK_LOG_LEVEL": "debug", "GRNS_WEBHOOK_ALLOW_HTTP": "true",
        "GRNS_WEBHOOK_ALLOW_NETWORKS": HERE, "GRNS_ARCHIVE": str(tmp_path / "archive"),
        "GRNS_KEYS_FILE": str(tmp_path / "keys"),
    }  # fmt: skip
    made, _ = await create_key(database, workspace=None, name="root", scopes=["admin"], actor=ACTOR)
    server = fleet.start("server", "--api", **environment)
    worker = fleet.start("worker", "start", "vaulted:pool", **environment)
    await ready(database, worker)
    url = await url_of(fleet, server)
    headers = {"Authorization": f"Bearer {made.reveal()}"}
    async with (
        httpx2.AsyncClient(base_url=url, timeout=30.0, headers=headers) as visitor,
        Receiver().listening() as receiver,
    ):
        scene = Scene(visitor, url, made.reveal(), database, broker, fleet, environment, tmp_path, receiver)
        following = asyncio.create_task(_follow(scene, "/api/v1/events"))
        try:
            await _use(scene)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        told = {place: await look(scene) for place, look in PLACES.items()}
    assert [await ended(process) for process in (worker, server)] == [0, 0]
    told["logs"] += [fleet.log_of(one) for one in fleet.processes]
    for place, texts in told.items():
        marked = [text for text in texts if MASK in text or "\\u2022" in text or '\\"$secret' in text]
        assert marked or any('"$secret"' in text for text in texts if place in AS_STORED), (
            f"{place}: a secret is there as it is shown"
        )
    found = [
        f"{place}: {text[max(0, text.find(mark) - 100) :][:200]}"
        for place, texts in told.items()
        for text in texts
        for mark in MARKS
        if mark in text
    ]
    assert not found, "\n".join(found)


async def _use(scene: Scene) -> None:
    """Run a task that fails and one that succeeds, send mail, and have a message rejected."""
    visitor = scene.visitor
    hook = {"url": scene.receiver.url, "kinds": ["evt.task.*"]}
    good(await visitor.post("/api/v1/webhooks", json=hook))
    ids = []
    for fails in (True, False):
        payload = {"host": "a", "token": CANARY, "fails": fails}
        order = {"task_type": "tell", "agent_type": "vaulted", "payload": payload}
        ids.append(good(await visitor.post("/api/v1/tasks", json=order))["id"])
        await _follow(scene, f"/api/v1/tasks/{ids[-1]}/stream")
    scene.dead, scene.done = ids
    scene.remote = await _use_http(scene)
    await all_in(scene.database, [scene.dead], "dead", within_seconds=60)
    await all_in(scene.database, [scene.done], within_seconds=60)
    rows = await fetch(scene.database, "select id, status, payload::text from grns.tasks")
    assert {row["id"]: row["status"] for row in rows} == {
        scene.dead: "dead", scene.done: "succeeded", scene.remote: "dead",
    }  # fmt: skip
    for name in ("coder", "other"):
        good(await visitor.put(f"/api/v1/agents/{name}", json={"agent_type": "vaulted"}))
    mail = {"type": "login", "to": "coder", "payload": {"user": "ann", "token": CANARY}, "secret": ["token"]}
    good(await visitor.post("/api/v1/mail", json=mail))
    polled = good(await visitor.post("/api/v1/agents/coder/mail/poll", json={}))
    assert polled["items"][0]["payload"]["token"] == CANARY, "whoever reads the mail of the agent gets it"
    client = await nats.connect(scene.broker.url)
    body = {"payload": json.loads(rows[0]["payload"])}  # as it is stored, in what is no envelope
    await client.jetstream().publish("cmd.task.submit.v1", json.dumps(body).encode())
    await client.close()

    async def is_rejected() -> str:
        page = good(await visitor.get("/api/v1/dead-letters", params={"what": "message"}))
        return next((str(one["id"]) for one in page["items"]), "")

    scene.message = await eventually(is_rejected, within_seconds=30)
    kinds = {"evt.task.completed", "evt.task.dead"}

    async def is_told() -> bool:
        return kinds <= {one.document["kind"] for one in scene.receiver.requests} and all(
            any(f"event: {kind}" in line or f'"{kind}"' in line for line in scene.streamed) for kind in kinds
        )

    await eventually(is_told, within_seconds=30)


async def _use_http(scene: Scene) -> str:
    """Let an HTTP worker tell the secret of a task in all that it says of it; return the id."""
    visitor, told = (
        scene.visitor,
        [CANARY, repr(CANARY), json.dumps(CANARY), repr(ValueError(f"bad {CANARY!r}"))],
    )
    order = {"task_type": "tell", "agent_type": "remote", "payload": {"host": "a", "token": CANARY}}
    task_id = str(good(await visitor.post("/api/v1/tasks", json=order | {"max_attempts": 1}))["id"])
    watching = asyncio.create_task(_follow(scene, f"/api/v1/tasks/{task_id}/stream"))
    seeking = {"agent_type": "remote", "task_types": ["tell"]}
    claimed = good(await visitor.post("/api/v1/queue/claim", json=seeking))
    released = {"token": claimed["token"], "reason": "\n".join(told)}
    good(await visitor.post("/api/v1/queue/release", json=released))
    claimed = good(await visitor.post("/api/v1/queue/claim", json=seeking))
    assert claimed["task"]["payload"]["token"] == CANARY, "whoever works on it gets it"
    token = {"token": claimed["token"]}
    told += [f"cut {text}"[:45] for text in told]
    lines = [{"message": f"with {text}", "fields": {"text": text, text: 1, "deep": [text]}} for text in told]
    said = {"current_step": f"calls with {told[-1]}", "log": lines}
    good(await visitor.post("/api/v1/queue/renew", json=token | said))
    chunks: list[dict[str, Any]] = [{"data": f"streams {text}"} for text in told]
    chunks += [{"data": {"body": text}} for text in told]
    chunks += [{"data": part} for text in told for part in (f"streams {text[:40]}", text[40:])]
    stream = {"first": 1, "chunks": chunks, "has_ended": True}
    good(await visitor.post("/api/v1/queue/stream", json=token | stream))
    error = {
        "class": "ValueError",
        "message": "\n".join((*told[:4], told[-1])),
        "frames": [f"f.py:1 in {told[1]}"],
    }
    good(await visitor.post("/api/v1/queue/fail", json=token | {"error": error}))
    await watching
    return task_id


async def _follow(scene: Scene, path: str) -> None:
    """Keep what a stream of server-sent events tells, until its end."""
    accept: dict[str, Any] = {"Accept": "text/event-stream"}
    async with scene.visitor.stream("GET", path, headers=accept) as told:
        assert told.status_code == 200, path
        async for line in told.aiter_lines():
            scene.streamed.append(line)
            if line == "event: end":
                return
