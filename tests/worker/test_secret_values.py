"""Secrets of steps and checkpoints: stored sealed, given back whole, and nowhere else."""

from __future__ import annotations

import asyncio
import json
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pydantic import BaseModel, Secret, SecretStr, TypeAdapter, field_serializer, model_serializer

import grns
from grns.api.route import PREFIX
from grns.client.client import Client
from grns.errors import InvalidInputError, SealedError
from grns.model.json import Limits
from grns.model.outcome import Claim
from grns.model.seal import Keyring, MasterKey
from grns.model.secret import MASK
from grns.model.vault import Vault
from grns.postgres.database import Database
from grns.tasks.rotate_secrets import count_sealed, rotate
from grns.webhooks import service as webhooks
from grns.worker.secret_value import SealedValues
from grns.worker.steps import MANY_IDS
from tests.support.api import OURS, Door, good, problem_of
from tests.support.attempts import attempts_of
from tests.support.harness import submit
from tests.support.store import ACTOR, fetch, row_of
from tests.support.webhooks import GUARD

OLD, NEW = MasterKey.new("old"), MasterKey.new("new")
TOKEN = "t0ken-of-the-canary"


class Session(BaseModel):
    user: str
    token: SecretStr


@dataclass
class Ticket:
    user: str
    token: SecretStr


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


def claim_of() -> Claim:
    return Claim("gr-1", "noop", 2, "{}", 1, 3, 0, uuid4(), "trace", None, 0.0, 0.0)


def log_in(user: str) -> Session:
    return Session(user=user, token=SecretStr(TOKEN))


def log_in_unsaid(user: str):  # type: ignore[no-untyped-def]  # the step has no annotation
    return Ticket(user, SecretStr(TOKEN))


BACKOFF = grns.Backoff(base_seconds=0.001, max_seconds=0.001)
pool = grns.Pool("worker", backoff=BACKOFF)
SEEN: list[Any] = []


@pool.task
async def work(ctx: grns.Context) -> None:
    log = ctx.log.bind(part="begin")
    session = await ctx.step("log in", log_in, "ann")
    ticket = await ctx.step("log in again", log_in_unsaid, "ann")
    SEEN.append((session, ticket, ctx.last_checkpoint))
    ctx.checkpoint(session)
    log.info("logged in with %s", TOKEN)
    if ctx.attempt == 1:
        raise RuntimeError(f"401 for {TOKEN}")


async def test_a_step_and_a_checkpoint_with_a_secret_are_sealed(client: Client, shared: Database) -> None:
    SEEN.clear()
    handle = await client.submit(work)
    with attempts_of(pool, shared, client) as attempts:
        assert await attempts.run(handle.id) == "retry_wait"
        rows = await fetch(shared, "select name, value::text from grns.steps order by recorded_at")
        for row in rows:
            value = json.loads(row["value"])
            assert (value["user"], set(value["token"])) == ("ann", {"$secret"})
        (row,) = await fetch(shared, "select checkpoint::text from grns.progress")
        assert set(json.loads(row["checkpoint"])["token"]) == {"$secret"}
        assert await attempts.run(handle.id) == "succeeded"
    (first, _, before), (second, again, checkpoint) = SEEN
    assert first == second == log_in("ann")
    assert again == {"user": "ann", "token": TOKEN}, "without an annotation it is what JSON says"
    assert (before, checkpoint) == (None, {"user": "ann", "token": TOKEN})
    assert "logged in with •••" in str(await fetch(shared, "select message from grns.task_lines"))
    everywhere = [
        str(await fetch(shared, f"select t::text from grns.{table} t"))
        for table in ("tasks", "events", "steps", "progress", "task_lines")
    ]
    assert TOKEN not in "".join(everywhere)
    assert "401 for •••" in str(await fetch(shared, "select payload::text from grns.events")), "it is said"


async def test_they_are_shown_as_dots(client: Client, door: Door) -> None:
    door.database.vault.keys = door.context.database.vault.keys = Keyring([OLD])
    task_id = (await submit(door.database, workspace=OURS)).id
    hidden = door.database.vault.hide({"token": TOKEN}, [("token",)], OURS)
    async with door.visitor(await door.key("work", "read")) as agent:
        token = good(await agent.post(f"{PREFIX}/queue/claim", json={"task_types": ["noop"], "agent": "a"}))[
            "token"
        ]
        await fetch(
            door.database,
            "insert into grns.steps (task_id, name, workspace, kind, value, attempt)"
            " values ($1, 'log in', $2, 'step', $3::text::jsonb, 1)",
            task_id, OURS, json.dumps(hidden),
        )  # fmt: skip
        shown = await agent.get(f"{PREFIX}/tasks/{task_id}/steps")
        assert "•••" in shown.text
        assert TOKEN not in shown.text
        # The worker that has claimed the task gets the value.
        (step,) = good(await agent.post(f"{PREFIX}/queue/steps", json={"token": token}))["items"]
        assert step["value"] == {"token": TOKEN}
        for path, said in (
            ("step", {"name": "a", "value": hidden}),
            ("renew", {"checkpoint_data": hidden}),
        ):
            refused = await agent.post(f"{PREFIX}/queue/{path}", json={"token": token, **said})
            assert problem_of(refused, 400) == "sealed_value", path


@pytest.mark.parametrize("is_recorded", [False, True])
async def test_without_the_key_the_task_waits_for_a_worker_that_has_it(
    client: Client, shared: Database, is_recorded: bool
) -> None:
    keyless, calls = grns.Pool("worker", backoff=BACKOFF), []

    def sign_in() -> Session:
        calls.append(1)
        return log_in("ann")

    @keyless.task
    async def once(ctx: grns.Context) -> None:
        assert (await ctx.step("log in", sign_in)).token.get_secret_value() == TOKEN
        if is_recorded and ctx.attempt == 1:
            raise grns.Retry(after=0)

    handle = await client.submit(once, max_attempts=2)
    with attempts_of(keyless, shared, client) as attempts:
        if is_recorded:
            assert await attempts.run(handle.id) == "retry_wait"
        for _ in range(3):
            shared.vault.keys = None
            await fetch(shared, "update grns.tasks set next_attempt_at = now() where status = 'retry_wait'")
            assert await attempts.run(handle.id) == "retry_wait"
        shared.vault.keys = Keyring([OLD])
        await fetch(shared, "update grns.tasks set next_attempt_at = now()")
        assert await attempts.run(handle.id) == "succeeded"
    assert len(calls) == 1, "the function does not run where its value could not be kept"
    row = await row_of(shared, handle.id)
    # An attempt that has recorded a step does not count either.
    assert row["attempt"] - row["uncounted_attempts"] == 1


class Longer(Session):
    since: int


async def test_what_no_longer_fits_is_not_shown(client: Client, shared: Database) -> None:
    changed = grns.Pool("worker", backoff=BACKOFF)

    def sign_in() -> Longer:
        raise AssertionError("it is recorded")

    @changed.task
    async def deployed(ctx: grns.Context) -> None:
        await ctx.step(
            "log in", log_in if ctx.attempt == 1 else sign_in, *(["ann"] if ctx.attempt == 1 else [])
        )
        raise grns.Retry(after=0)

    handle = await client.submit(deployed)
    with attempts_of(changed, shared, client) as attempts:
        await attempts.run(handle.id)
        await fetch(shared, "update grns.tasks set next_attempt_at = now()")
        await attempts.run(handle.id)
    (error,) = await fetch(shared, "select last_error::text as error from grns.tasks")
    assert "does not fit its annotation any more: since" in error["error"]
    assert TOKEN[:6] not in error["error"]


class Spoken(BaseModel):
    token: SecretStr

    @field_serializer("token", when_used="json")
    def in_clear(self, token: SecretStr) -> str:
        """Write it as a user's clients want it."""
        return token.get_secret_value()


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Spoken, Spoken(token=SecretStr(TOKEN))), (SecretStr, SecretStr(TOKEN)),
        (list[SecretStr], [SecretStr(TOKEN)]), (dict[str, SecretStr], {"a.b": SecretStr(TOKEN)}),
        (Session | None, log_in("ann")), (list[Session], [log_in("ann"), log_in("bob")]),
        (Session, {"user": "ann", "token": TOKEN}), (Ticket, Ticket("ann", SecretStr(TOKEN))),
    ],
)  # fmt: skip
def test_secrets_are_sealed_wherever_a_type_shows_them(annotation: Any, value: Any) -> None:
    adapter, taken = TypeAdapter(annotation), claim_of()
    values = SealedValues(taken, Vault(Keyring([OLD])))
    text = values.text(value, Limits(), adapter)
    assert TOKEN not in text
    assert "***" not in text
    assert '"$secret"' in text
    assert TOKEN not in taken.scrubbed(f"401 for {TOKEN}")
    reader = claim_of()
    again = adapter.validate_python(SealedValues(reader, Vault(Keyring([OLD]))).value(text))
    assert again == (adapter.validate_python(value) if isinstance(value, dict) else value)
    assert TOKEN not in reader.scrubbed(f"401 for {TOKEN}")
    assert TOKEN in SealedValues(claim_of(), None).text(value, Limits(), adapter), "as in tests of users"
    keyless = SealedValues(claim_of(), Vault())
    with pytest.raises(SealedError):
        keyless.check(adapter)
    with pytest.raises(InvalidInputError) as refused:
        keyless.text(value, Limits(), adapter)
    assert refused.value.code == "no_keys"


def test_what_could_not_be_sealed_is_refused() -> None:
    values = SealedValues(claim_of(), Vault(Keyring([OLD])))
    for value, annotation in (
        ({SecretStr(TOKEN)}, set[SecretStr]), ({"session": log_in("ann")}, dict[str, Any]),
        ([log_in("ann")], None), ({"a": {"$secret": "1.old.a.b"}}, None),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError) as refused:
            values.text(value, Limits(), None if annotation is None else TypeAdapter(annotation))
        assert refused.value.code in ("undeclared_secret", "sealed_value")
    with pytest.raises(InvalidInputError) as refused:
        values.text(Session(user="a", token=SecretStr("x" * 5000)), Limits(document_bytes=1000))
    assert refused.value.code == "too_large"
    assert values.text("*" * 12, Limits()) == '"************"'


class Renamed(BaseModel):
    token: SecretStr

    @model_serializer
    def short(self) -> dict[str, str]:
        """Write it under another name."""
        return {"t": self.token.get_secret_value()}


def test_a_value_that_its_serializer_writes_elsewhere_is_refused() -> None:
    values = SealedValues(claim_of(), Vault(Keyring([OLD])))
    with pytest.raises(InvalidInputError, match="nothing would seal"):
        values.text(Renamed(token=SecretStr(TOKEN)), Limits())
    with pytest.raises(InvalidInputError):
        values.text(Secret[str](TOKEN), Limits(), TypeAdapter(Secret[str]))


@dataclass
class Base:
    x: int


@dataclass
class Derived(Base):
    y: int


@dataclass
class Held:
    item: Base
    when: str


def test_what_has_no_secrets_is_written_as_before() -> None:
    values = SealedValues(claim_of(), Vault(Keyring([OLD])))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = values.text(Held(Derived(1, 2), 5), Limits())  # type: ignore[arg-type]
    assert json.loads(text) == {"item": {"x": 1, "y": 2}, "when": 5}
    ids = [f"gr-{number:026}" for number in range(10_000)]
    assert json.loads(values.text(ids, MANY_IDS)) == ids
    many = TypeAdapter(list[SecretStr])
    text = values.text([SecretStr(f"secret-{number}") for number in range(6000)], MANY_IDS, many)
    assert len(values.value(text)) == 6000
    assert values.text({"code": "echo $secret"}, Limits()) == '{"code":"echo $secret"}'


async def test_steps_side_by_side_wait_for_the_key_too(client: Client, shared: Database) -> None:
    keyless = grns.Pool("worker", backoff=BACKOFF)

    @keyless.task
    async def both(ctx: grns.Context) -> None:
        async with asyncio.TaskGroup() as group:
            for name in ("a", "b"):
                group.create_task(ctx.step(name, log_in, "ann"))

    handle = await client.submit(both, max_attempts=1)
    shared.vault.keys = None
    with attempts_of(keyless, shared, client) as attempts:
        assert await attempts.run(handle.id) == "retry_wait"


async def test_a_value_that_does_not_fit_is_not_shown(client: Client, shared: Database) -> None:
    wrong = grns.Pool("worker")

    def sign_in() -> Session:
        return {"usr": "ann", "token": TOKEN}  # type: ignore[return-value]

    @wrong.task
    async def fail(ctx: grns.Context) -> None:
        await ctx.step("log in", sign_in)

    handle = await client.submit(fail)
    with attempts_of(wrong, shared, client) as attempts:
        assert await attempts.run(handle.id) == "failed"
    (row,) = await fetch(shared, "select last_error::text as error from grns.tasks")
    assert "does not fit its annotation" in row["error"]
    assert TOKEN[:6] not in row["error"]


def test_threads_that_find_secrets_lose_none() -> None:
    taken = claim_of()
    values = SealedValues(taken, Vault(Keyring([OLD])))
    with ThreadPoolExecutor(8) as threads:
        for number in range(200):
            threads.submit(values.text, Session(user="a", token=SecretStr(f"secret-{number:04}")), Limits())
    said = " ".join(f"secret-{number:04}" for number in range(200))
    assert "secret-" not in taken.scrubbed(said)


async def test_a_signal_is_never_opened(client: Client, door: Door) -> None:
    """Who may send a signal could have anything opened, and stop rotation."""
    door.database.vault.keys = door.context.database.vault.keys = Keyring([OLD])
    task_id = (await submit(door.database, workspace=OURS)).id
    hidden = door.database.vault.hide({"token": TOKEN}, [("token",)], OURS)
    async with door.visitor(await door.key("work", "read")) as agent:
        claimed = {"task_types": ["noop"], "agent": "a"}
        token = good(await agent.post(f"{PREFIX}/queue/claim", json=claimed))["token"]
        await fetch(
            door.database,
            "insert into grns.steps (task_id, name, workspace, kind, value, attempt)"
            " values ($1, 'signal s', $2, 'signal', $3::text::jsonb, 1)",
            task_id, OURS, json.dumps({"value": hidden}),
        )  # fmt: skip
        (step,) = good(await agent.post(f"{PREFIX}/queue/steps", json={"token": token}))["items"]
        assert step["value"] == {"value": {"token": MASK}}
        said = {"token": token, "name": "signal s", "value": 1}
        assert problem_of(await agent.post(f"{PREFIX}/queue/step", json=said), 409) == "conflict"
        shell = {"token": token, "name": "shell", "value": {"code": "echo $secret"}}
        for _ in range(2):
            kept = good(await agent.post(f"{PREFIX}/queue/step", json=shell))
            assert kept["value"] == {"code": "echo $secret"}
    assert (await count_sealed(door.database)).total == 0


async def test_rotation_seals_them_and_the_secrets_of_webhooks_again(
    client: Client, shared: Database
) -> None:
    SEEN.clear()
    secret, webhook = await webhooks.create_webhook(
        shared, workspace="default", url="https://example.org/x", kinds=["evt.task.*"], guard=GUARD,
        actor=ACTOR,
    )  # fmt: skip
    await webhooks.rotate_secret(shared, webhook.id, workspace="default", actor=ACTOR)
    handle = await client.submit(work)
    with attempts_of(pool, shared, client) as attempts:
        assert await attempts.run(handle.id) == "retry_wait"
    assert (await count_sealed(shared)).by_key == {"old": 5}
    both = Database(shared.url, name="rotate", vault=Vault(Keyring([NEW, OLD])))
    async with both.opened():
        assert await rotate(both) == 5
        assert (await count_sealed(both)).by_key == {"new": 5}
        assert await rotate(both) == 0
    shared.vault.keys = Keyring([NEW])
    (row, *_) = await fetch(shared, "select secret from grns.webhook_secrets order by id")
    assert secret.value not in row["secret"]
    assert shared.vault.open_key(row["secret"], "default") == secret.value
    await fetch(shared, "update grns.tasks set next_attempt_at = now()")
    with attempts_of(pool, shared, client) as attempts:
        assert await attempts.run(handle.id) == "succeeded"
    assert SEEN[-1][0] == log_in("ann")
    assert (await row_of(shared, handle.id))["status"] == "succeeded"


async def test_in_tests_of_users_steps_have_secrets_too() -> None:
    ctx = grns.testing.context(steps={})
    assert await ctx.step("log in", log_in, "ann") == log_in("ann")
    ctx.checkpoint(log_in("ann"))
    assert json.loads(ctx.reported.checkpoint or "") == {"user": "ann", "token": TOKEN}
