"""Secrets of payloads: stored sealed, shown as dots, given to handlers, sealed again by another key."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from pydantic import BaseModel, SecretStr

import grns
from grns.client.client import Client
from grns.errors import ConflictError, InvalidInputError, NotFoundError, SealedError
from grns.gateway.claim_secrets import ClaimSecrets
from grns.model.claim_token import ClaimToken
from grns.model.failure import clean
from grns.model.filter import parse
from grns.model.json import Limits, dumps
from grns.model.seal import Keyring, MasterKey
from grns.model.secret import MASK
from grns.model.submission import edit
from grns.model.vault import Vault
from grns.operations.model import Action, request
from grns.operations.service import create_operation
from grns.postgres.database import Database
from grns.tasks import read, search
from grns.tasks.rotate_secrets import count_sealed, rotate
from grns.tasks.secrets import reveal
from grns.worker.declared import publish_task_types
from tests.support.api import Door, good, problem_of
from tests.support.attempts import attempts_of
from tests.support.harness import submit
from tests.support.store import ACTOR, fetch, locked, log_of, row_of

OLD, NEW = MasterKey.new("old"), MasterKey.new("new")
TOKEN = "t0ken-of-the-canary"


class Account(BaseModel):
    name: str
    password: SecretStr


class Deploy(BaseModel):
    host: str
    account: Account


pool = grns.Pool("worker")


@pool.task
async def deploy(order: Deploy) -> None: ...


@pool.task(secret=["token", "spare.*"])
async def call(order: dict[str, Any]) -> None: ...


@pytest.fixture
def shared_url(shared_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The shared database, of an installation with a key."""
    (tmp_path / "keys").write_text(OLD.line())
    monkeypatch.setenv("GRNS_KEYS_FILE", str(tmp_path / "keys"))
    return shared_url


@pytest.fixture(autouse=True)
def keys(shared: Database) -> None:
    """The key of the installation, for the database of the test."""
    shared.vault.keys = Keyring([OLD])


async def declare(shared: Database) -> None:
    """Do what a worker of the pool does when it starts."""
    await publish_task_types(shared, pool.handlers.values(), workspace="default", agent_type="worker")
    shared.vault.known_paths.clear()


async def stored(shared: Database, task_id: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((await row_of(shared, task_id))["payload"])
    return found


async def test_secrets_of_a_model_are_stored_sealed(client: Client, shared: Database) -> None:
    order = Deploy(host="a", account=Account(name="ann", password=SecretStr(TOKEN)))
    task = await client.submit(deploy, order, idempotency_key="one")
    row = await stored(shared, task.id)
    assert (row["host"], row["account"]["name"]) == ("a", "ann")
    assert set(row["account"]["password"]) == {"$secret"}
    assert TOKEN not in str(await log_of(shared, task.id))
    again = await client.submit(deploy, order, idempotency_key="one")
    assert (again.id, again.created) == (task.id, False)
    other = Deploy(host="a", account=Account(name="ann", password=SecretStr("another")))
    with pytest.raises(ConflictError):
        await client.submit(deploy, other, idempotency_key="one")


@pytest.mark.parametrize("way", ["one", "many", "transaction", "workflow", "needs"])
async def test_each_way_to_submit_seals_them(client: Client, shared: Database, way: str) -> None:
    await declare(shared)
    payload = {"token": TOKEN, "spare": [TOKEN, 7], "host": "a"}
    fields: dict[str, Any] = {"task": "call", "pool": "worker", "payload": payload}
    if way == "one":
        task_id = (await client.submit("call", payload, pool="worker")).id
    elif way == "many":
        (made,) = await client.submit_many([fields])
        assert not isinstance(made, ConflictError)
        task_id = made.id
    elif way == "transaction":
        async with shared.transaction() as connection:
            task_id = (await client.submit("call", payload, pool="worker", connection=connection)).id
    elif way == "workflow":
        flow = client.workflow("w")
        flow.task("call", payload, pool="worker")
        (task_id,) = [one.id for one in (await flow.submit()).tasks.values()]
    else:
        first = await client.submit("call", {}, pool="worker")
        task_id = (await client.submit("call", payload, pool="worker", needs=[first])).id
    row = await stored(shared, task_id)
    assert row["host"] == "a"
    assert TOKEN not in json.dumps(row)
    assert shared.vault.open(row, "default") == payload


async def test_what_a_schedule_submits_is_sealed(client: Client, shared: Database) -> None:
    made = await client.schedules.put("s", call, {"token": TOKEN}, every=60)
    assert set(made.payload["token"]) == {"$secret"}
    again = await client.schedules.put("s", call, {"token": TOKEN}, every=60)
    assert again.version == made.version, "nothing has changed"


async def test_without_keys_a_secret_is_refused(client: Client, shared: Database) -> None:
    client._database.vault.keys = None
    with pytest.raises(InvalidInputError) as refused:
        await client.submit(call, {"token": TOKEN})
    assert refused.value.code == "no_keys"
    assert (await client.submit(call, {"host": "a"})).created


async def test_sql_refuses_a_secret_that_it_cannot_seal(shared: Database) -> None:
    await declare(shared)
    with pytest.raises(asyncpg.InvalidParameterValueError, match="which SQL cannot seal"):
        await fetch(shared, "select grns.submit_task('call', jsonb_build_object('token', $1::text))", TOKEN)
    assert await fetch(shared, """select grns.submit_task('call', '{"host": "a"}')""")


@pytest.mark.parametrize(
    "statement",
    [
        "select grns.submit_task('{type}', '{payload}')",
        'select * from grns.submit_graph(\'[{{"task_type": "{type}", "payload": {payload}}}]\')',
        'select * from grns.submit_graph(\'[{{"task_type": "noop"}}]\', workflow => \'{{"name": "w",'
        ' "fail_after": {{"count": 1, "then": {{"task_type": "{type}", "payload": {payload}}}}}}}\')',
        "select * from grns.put_schedule('daily', '{type}', '{payload}', every_seconds => 3600)",
    ],
)
async def test_each_function_of_sql_refuses_secrets_in_clear(shared: Database, statement: str) -> None:
    await declare(shared)
    for payload in (
        '{"token": "t"}',
        '{"token": {"$secret": "in clear"}}',
        '{"spare": [null, {"a": "b"}]}',
        '{"spare": {"x": 1}}',
    ):
        with pytest.raises(asyncpg.InvalidParameterValueError, match=r"which SQL cannot seal|and `\$secret`"):
            await fetch(shared, statement.format(type="call", payload=payload))
    with pytest.raises(asyncpg.InvalidParameterValueError, match="which SQL cannot seal"):
        await fetch(shared, statement.format(type="deploy", payload='{"account": {"password": 1}}'))
    for task_type, payload in (
        ("call", '{"spare": [], "token": null, "other": {"token": "t"}}'),
        ("deploy", '{"account": {"name": "ann"}}'),
        ("noop", '{"token": "t"}'),
    ):
        assert await fetch(shared, statement.format(type=task_type, payload=payload))


@pytest.mark.parametrize("payload", [{"token": {"$secret": "1.old.a.b"}}, {"x": [{"$secret": "1.old.a.b"}]}])
async def test_a_stored_secret_cannot_be_submitted(client: Client, payload: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError) as refused:
        await client.submit(call, payload)
    assert refused.value.code == "sealed_value"


async def test_the_api_shows_dots_and_reveals_with_the_scope(door: Door, shared: Database) -> None:
    await declare(shared)
    async with await door.administrator() as visitor:
        made = good(
            await visitor.post(
                "/api/v1/tasks",
                json={"task_type": "call", "agent_type": "worker", "payload": {"token": TOKEN, "host": "a"}},
            )
        )
        url = f"/api/v1/tasks/{made['id']}"
        assert good(await visitor.get(url))["payload"] == {"token": MASK, "host": "a"}
        changed = await visitor.patch(url, json={"payload": {"token": MASK, "host": "b"}})
        assert good(changed)["payload"] == {"token": MASK, "host": "b"}
        assert shared.vault.open(await stored(shared, made["id"]), "default")["token"] == TOKEN
        good(await visitor.patch(url, json={"patch": {"host": "c"}}))
        good(await visitor.patch(url, json={"patch": {"token": "another-one"}}))
        assert "another-one" not in json.dumps(await stored(shared, made["id"]))
        forged = await visitor.patch(url, json={"patch": {"x": {"$secret": "1.old.a.b"}}})
        assert problem_of(forged, 400) == "sealed_value"
        events = (await visitor.get(f"{url}/events")).text
        assert "$secret" not in events
        assert "another-one" not in events
        shown = good(await visitor.post(f"{url}/reveal", json={"reason": "ticket 4711"}))
        assert shown["payload"] == {"token": "another-one", "host": "c"}
    (event,) = [one for one in await log_of(shared, made["id"]) if one["kind"] == "evt.secret.revealed"]
    assert "ticket 4711" in str(event["payload"])
    for scope in ("read", "submit", "operate", "work"):
        async with door.visitor(await door.key(scope, workspace="default")) as visitor:
            assert (await visitor.post(f"{url}/reveal", json={})).status_code == 403
    async with door.visitor(await door.key("reveal")) as stranger:
        assert (await stranger.post(f"{url}/reveal", json={})).status_code == 404


async def test_who_reveals_needs_the_task_and_the_key(client: Client, shared: Database) -> None:
    task = await client.submit(call, {"token": TOKEN})
    assert await reveal(shared, task.id, workspace="default", actor=ACTOR) == {"token": TOKEN}
    with pytest.raises(NotFoundError):
        await reveal(shared, task.id, workspace="other", actor=ACTOR)
    shared.vault.keys = Keyring([NEW])
    with pytest.raises(SealedError):
        await reveal(shared, task.id, workspace="default", actor=ACTOR)


async def test_a_patch_of_many_is_sealed(client: Client, shared: Database) -> None:
    await declare(shared)
    wanted = request(action=Action.REDRIVE, filter="status:dead", patch={"token": TOKEN, "host": "b"})
    made = await create_operation(shared, wanted, workspace="default", actor=ACTOR)
    (row,) = await fetch(shared, "select patch::text as patch from grns.operations where id = $1", made.id)
    assert TOKEN not in row["patch"]
    assert shared.vault.open(json.loads(row["patch"]), "default") == {"token": TOKEN, "host": "b"}


@pytest.mark.parametrize(
    "tasks", [450, pytest.param(100_000, marks=[pytest.mark.nightly, pytest.mark.timeout(900)])]
)
async def test_rotation_goes_on_under_load_and_leaves_none(
    client: Client, shared: Database, tasks: int
) -> None:
    await declare(shared)
    await client.schedules.put("s", call, {"token": TOKEN}, every=60)
    ids: list[str] = []
    for start in range(0, tasks, 1000):
        handles = await client.submit_many(
            {"task": call, "payload": {"token": f"{TOKEN}-{n}", "n": n}}
            for n in range(start, min(start + 1000, tasks))
        )
        ids += [one.id for one in handles if not isinstance(one, ConflictError)]
    await client.submit_many({"task": call, "payload": {"n": -1}} for _ in range(50))
    assert (await count_sealed(shared)).by_key == {"old": tasks + 1}
    both = Database(shared.url, name="rotate", vault=Vault(Keyring([NEW, OLD])))
    changed = ids[:: max(7, tasks // 1000)]
    async with both.opened():

        async def change() -> None:
            for n, task_id in enumerate(changed, start=tasks):
                await fetch(shared, "update grns.tasks set updated_at = now() where id = $1", task_id)
                (task,) = (
                    await read.tasks(shared, [task_id], "default", shows_secrets_as_stored=True)
                ).values()
                patched = edit(patch={"changed": True}).payload_of(task, Limits())
                await fetch(
                    shared, "update grns.tasks set payload = $2::text::jsonb where id = $1", task_id, patched
                )
                ids.append((await client.submit(call, {"token": f"{TOKEN}-{n}", "n": n})).id)

        changing = asyncio.create_task(change())
        assert await rotate(both) > tasks
        await changing
        await rotate(both)
        assert (await count_sealed(both)).by_key == {"new": len(ids) + 1}
    assert len(ids) == tasks + len(changed)
    vault, was_changed = Vault(Keyring([NEW])), set(changed)
    rows = await fetch(shared, "select id, payload::text from grns.tasks")
    opened = {row["id"]: vault.open(json.loads(row["payload"]), "default") for row in rows}
    for place, task_id in enumerate(ids):
        payload = opened[task_id]
        assert (payload["token"], payload["n"]) == (f"{TOKEN}-{place}", place)
        assert payload.get("changed", False) is (task_id in was_changed)


async def test_filters_find_what_is_in_clear(client: Client, shared: Database) -> None:
    task = await client.submit(call, {"token": TOKEN, "host": "a"})
    for text, ids in (("payload.host:a", [task.id]), (f"payload.token:{TOKEN}", [])):
        page = await search.list_tasks(shared, workspace="default", wanted=parse(text), limit=5)
        assert [row.id for row in page.rows] == ids


@pytest.mark.parametrize("secret", ["token", ["*"], [""], [7]])
def test_what_is_no_path_is_refused(secret: Any) -> None:
    with pytest.raises(InvalidInputError) as refused:
        grns.Pool("p").task("x", secret=secret)(lambda payload: None)
    assert refused.value.code == "bad_handler"


def test_a_path_that_the_model_lacks_is_refused() -> None:
    async def handle(order: Deploy) -> None: ...

    with pytest.raises(InvalidInputError, match="no field passwort"):
        grns.Pool("p").task("x", secret=["passwort"])(handle)


class Login(BaseModel):
    user: str
    token: SecretStr


async def test_secrets_of_results_are_sealed_and_opened_for_who_waits(
    client: Client, shared: Database
) -> None:
    tasks = grns.Pool("worker")

    @tasks.task
    async def log_in(order: dict[str, Any]) -> Login:
        return Login(user="ann", token=SecretStr(TOKEN))

    @tasks.task(secret_result=["keys.*"])
    async def make_keys(order: dict[str, Any]) -> dict[str, Any]:
        return {"keys": [TOKEN, TOKEN + "2"], "n": 2}

    @tasks.task(secret_result=["key"])
    async def make_key(order: dict[str, Any], ctx: grns.Context) -> None:
        async with ctx.transaction() as tx:
            tx.complete({"key": TOKEN})

    @tasks.task
    async def use(ctx: grns.Context) -> int:
        results = await ctx.results()
        (joined,) = await ctx.join([client.handle(login.id, log_in)])
        assert joined.token.get_secret_value() == TOKEN
        return len(str(results).split(TOKEN)) - 1

    login, keys, key = [await client.submit(one, {}) for one in (log_in, make_keys, make_key)]
    then = await client.submit(use, needs=[login, keys, key])
    with attempts_of(tasks, shared, client) as attempts:
        for handle in (login, keys, key):
            assert await attempts.run(handle.id) == "succeeded"
        await fetch(
            shared,
            "update grns.tasks set status = 'queued', waits_for = null, queued_at = now() where id = $1",
            then.id,
        )
        assert await attempts.run(then.id) == "succeeded"
    assert (await login.result(timeout=1)).token.get_secret_value() == TOKEN
    assert await keys.result(timeout=1) == {"keys": [TOKEN, TOKEN + "2"], "n": 2}
    assert await key.result(timeout=1) == {"key": TOKEN}
    assert await then.result(timeout=1) == 4
    for handle in (login, keys, key):
        row = await row_of(shared, handle.id)
        assert TOKEN not in str(row)
        assert TOKEN not in str(await log_of(shared, handle.id))
        assert TOKEN not in str(await handle.get())
    shared.vault.keys = Keyring([NEW, OLD])
    found = await count_sealed(shared)
    assert (found.total, found.by_key["old"]) == (3, 3)
    assert await rotate(shared) == 3
    assert (await count_sealed(shared)).by_key == {"new": 3}
    client._database.vault.keys = Keyring([NEW])
    assert (await login.result(timeout=1)).user == "ann"


class Open(BaseModel):
    token: SecretStr
    extra: Any = None


class Node(BaseModel):
    token: SecretStr
    inner: Node | None = None


async def test_a_secret_that_its_annotation_does_not_show_is_refused(
    client: Client, shared: Database
) -> None:
    tasks = grns.Pool("worker")

    @tasks.task
    async def hide(order: dict[str, Any]) -> Open:
        return Open(token=SecretStr(TOKEN), extra={"k": SecretStr(TOKEN)})

    handle = await client.submit(hide, {}, max_attempts=1)
    with attempts_of(tasks, shared, client) as attempts:
        assert await attempts.run(handle.id) == "failed"
    assert TOKEN not in str(await row_of(shared, handle.id))

    @tasks.task
    async def take(order: Node) -> None: ...

    nested = Node(token=SecretStr("a"), inner=Node(token=SecretStr("b"), inner=Node(token=SecretStr("c"))))
    with pytest.raises(InvalidInputError) as refused:
        await client.submit(take, nested)
    assert refused.value.code == "undeclared_secret"


async def test_a_long_result_with_a_secret_is_refused(client: Client, shared: Database) -> None:
    tasks = grns.Pool("worker")

    @tasks.task(secret_result=["token"])
    async def write(order: dict[str, Any]) -> dict[str, Any]:
        return {"token": TOKEN, "text": "x" * 300_000}

    handle = await client.submit(write, {}, max_attempts=1)
    with attempts_of(tasks, shared, client) as attempts:
        assert await attempts.run(handle.id) in ("failed", "dead")
    assert await fetch(shared, "select from grns.blobs") == []


async def test_a_worker_without_a_key_does_not_run_what_returns_a_secret(
    client: Client, shared: Database
) -> None:
    tasks, runs = grns.Pool("worker"), []

    @tasks.task
    async def log_in(order: dict[str, Any]) -> Login:
        runs.append(1)
        return Login(user="ann", token=SecretStr(TOKEN))

    handle = await client.submit(log_in, {})
    shared.vault.keys = None
    with attempts_of(tasks, shared, client) as attempts:
        assert await attempts.run(handle.id) == "queued"
    assert runs == []


async def test_a_result_cannot_play_a_stored_secret(client: Client, shared: Database) -> None:
    tasks = grns.Pool("worker")

    @tasks.task
    async def play(order: dict[str, Any]) -> dict[str, Any]:
        return {"token": {"$secret": "1.old.x.y"}}

    handle = await client.submit(play, {}, max_attempts=1)
    with attempts_of(tasks, shared, client) as attempts:
        assert await attempts.run(handle.id) in ("failed", "dead")
    assert (await handle.get()).result is None


async def test_a_result_is_shown_with_dots(door: Door) -> None:
    door.context.database.vault.keys = Keyring([OLD])
    sealed = door.context.database.vault.hide({"token": TOKEN}, [("token",)], "default")
    task_id = (await submit(door.database)).id
    await fetch(
        door.database,
        "update grns.tasks set result = $1::text::jsonb where id = $2",
        json.dumps(sealed),
        task_id,
    )
    async with door.visitor(await door.key("read", workspace="default")) as reader:
        assert good(await reader.get(f"/api/v1/tasks/{task_id}"))["result"] == {"token": MASK}


async def test_what_an_http_worker_says_is_searched_for_the_secrets_it_was_handed(
    client: Client, shared: Database
) -> None:
    """Also for those of steps that a worker has recorded before; without the key, nothing of it is kept."""
    await declare(shared)
    handle = await client.submit("call", {"token": TOKEN}, pool="worker")
    await fetch(
        shared,
        "insert into grns.steps (task_id, name, workspace, kind, value, attempt)"
        " values ($1, 'log in', 'default', 'step', $2::text::jsonb, 1)",
        handle.id,
        dumps(shared.vault.hide({"key": "of-a-step"}, [("key",)], "default")),
    )
    token = ClaimToken(
        workspace="default", agent_type="worker", agent_id="worker-1", task_id=handle.id, task_type="call",
        priority=1, attempt=2, attempt_limit=3, uncounted_attempts=0, lease_id=uuid4(), lease_seconds=30.0,
        trace_id=handle.trace_id, causation_id=None, claimed_at=0.0,
    )  # fmt: skip

    @asynccontextmanager
    async def opened() -> AsyncIterator[Database]:
        yield shared

    known = ClaimSecrets()
    for _ in range(2):
        scrubber = await known.scrubber(opened, token)
        assert scrubber is not None
        assert scrubber.text(f"{TOKEN} and of-a-step") == f"{MASK} and {MASK}"
        assert scrubber.text(f"{TOKEN[-7:]} and {TOKEN[:6]}") == f"{MASK} and {MASK}", (
            "as its sender has cut it"
        )
        shared.vault.keys = None  # it was read once
    closed = await ClaimSecrets().scrubber(opened, token)
    assert closed is not None
    assert clean(f"with {TOKEN}", closed) == closed.value({"with": TOKEN}) == MASK
    plain = await client.submit("call", {}, pool="worker")
    known.forget(token)
    again = await known.scrubber(opened, token)
    assert again is not None
    assert again.text("some text") == MASK, "it is read again"
    other = token.model_copy(update={"task_id": plain.id, "lease_id": uuid4()})
    assert await known.scrubber(opened, other) is None


async def test_an_end_that_was_not_written_is_searched_again_for_the_same_secrets(
    client: Client, door: Door, shared: Database
) -> None:
    """The worker has replaced the checkpoint that had one of them."""
    task = await client.submit("call", {}, pool="worker")
    await fetch(
        shared,
        "insert into grns.progress (task_id, workspace, checkpoint) values ($1, 'default', $2::text::jsonb)",
        task.id,
        dumps(shared.vault.hide({"key": TOKEN}, [("key",)], "default")),
    )
    async with door.visitor(await door.key("work", workspace="default")) as visitor:
        given = good(await visitor.post("/api/v1/queue/claim", json={"task_types": ["call"]}))
        token = {"token": given["token"]}
        good(await visitor.post("/api/v1/queue/renew", json=token | {"checkpoint_data": {"page": 3}}))
        failure = token | {"error": {"class": "ValueError", "message": f"no {TOKEN}"}, "retry": False}
        async with locked(shared, task.id):
            answer = await visitor.post("/api/v1/queue/fail", json=failure)
            assert answer.status_code == 503, answer.text
        assert good(await visitor.post("/api/v1/queue/fail", json=failure)) == {"status": "failed"}
    assert json.loads((await row_of(shared, task.id))["last_error"])["message"] == f"no {MASK}"
