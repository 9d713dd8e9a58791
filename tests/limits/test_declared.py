"""Limits of a pool, which its workers put in place, and of a client."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

import grns
from grns.errors import InvalidInputError, NotFoundError
from grns.limits import service
from grns.limits.model import limit_spec
from grns.postgres.database import Database
from grns.worker.declared import limit_specs, put_declared_limits
from tests.support.store import fetch


def pool_of(most: int = 5) -> grns.Pool:
    """Return a pool with two handlers that share a limit."""
    tasks, pool = grns.Pool(), grns.Pool("agents")

    @tasks.limit("model", rate="500/1m", burst=50)
    @tasks.limit("tenant", key="tenant_id", max=most)
    @tasks.task
    async def summarize(_: dict[str, str]) -> None: ...

    @pool.limit("model", rate="500/1m", burst=50)
    @pool.task
    async def translate(_: dict[str, str]) -> None: ...

    pool.include(tasks)
    return pool


async def test_worker_puts_the_limits_of_its_pool_in_place(shared: Database) -> None:
    for most in (5, 5, 7):
        await put_declared_limits(shared, pool_of(most).limits, workspace="default", actor="w")
    model, tenant = (await service.list_limits(shared, workspace="default", limit=10)).rows
    assert (model.name, model.rate, model.burst, model.version) == ("model", "500/1m", 50, 1)
    assert [(one.agent_type, one.task_types, one.key) for one in model.pools] == [
        ("agents", ["summarize", "translate"], None)
    ]
    assert (tenant.max_tasks, tenant.version, tenant.pools[0].key) == (7, 2, "tenant_id")
    rows = await fetch(shared, "select kind from grns.events where kind like 'evt.limit.%' order by seq")
    assert [row["kind"] for row in rows] == ["evt.limit.created"] * 2 + ["evt.limit.changed"]


async def test_paused_limit_stays_paused_when_a_worker_starts(shared: Database) -> None:
    await put_declared_limits(shared, pool_of().limits, workspace="default", actor="w")
    await service.pause(shared, "model", workspace="default", actor="ann")
    await put_declared_limits(shared, pool_of(8).limits, workspace="default", actor="w")
    assert (await service.read(shared, "model", workspace="default")).paused_at is not None


@dataclass
class Letter:
    """A payload."""

    tenant: str


def test_what_cannot_be_is_refused() -> None:
    pool = grns.Pool("agents")
    with pytest.raises(InvalidInputError, match="500/1m"):

        @pool.limit("model", rate="fast")
        @pool.task
        async def one() -> None: ...

    with pytest.raises(InvalidInputError, match=r"above @pool\.task"):

        @pool.task  # type: ignore[type-var]
        @pool.limit("model", max=1)
        async def two() -> None: ...

    with pytest.raises(InvalidInputError, match="pass a maximum, a rate, or both"):
        pool.limit("model")(pool.task("bounded_by_nothing")(lambda: None))
    with pytest.raises(InvalidInputError, match="the payload of letters has no field tenent"):

        @pool.limit("tenant", key="tenent", max=1)
        @pool.task("letters")
        async def letters(letter: Letter) -> None: ...

    for most in (1, 2):

        @pool.limit("model", max=most)
        @pool.task(f"three{most}")
        async def three() -> None: ...

    with pytest.raises(InvalidInputError, match="different values"):
        limit_specs(pool.limits)


async def test_task_falls_under_eight_limits_at_most(shared: Database) -> None:
    async with grns.connect(database_url=shared.url, nats_url="nats://127.0.0.1:1") as client:
        for number in range(8):
            await client.limits.put(f"limit{number}", pool="agents", tasks=["a", f"b{number}"], max=1)
        await client.limits.put("other", pool="agents", tasks=["c"], max=1)
        with pytest.raises(InvalidInputError, match="more than 8 limits"):
            await client.limits.put("ninth", pool="agents", tasks=["b1", "a"], max=1)
        with pytest.raises(InvalidInputError, match="more than 8 limits"):
            await client.limits.put("ninth", pool="agents", max=1)
        with pytest.raises(NotFoundError):
            await client.limits.get("ninth")


@pytest.mark.parametrize("rate", ["500", "500/", "/1m", "0/1m", "1.5/s", "10/0s"])
def test_rate_has_a_number_and_a_time(rate: str) -> None:
    with pytest.raises(InvalidInputError, match="500/1m"):
        limit_spec(name="api", agent_type="agents", rate=rate)


async def test_client_puts_reads_pauses_and_deletes(shared: Database) -> None:
    async with grns.connect(database_url=shared.url, nats_url="nats://127.0.0.1:1") as client:
        made = await client.limits.put("export", pool="agents", tasks=["export"], max=2)
        assert await client.limits.get("export") == made
        assert [one.name for one in (await client.limits.list()).rows] == ["export"]
        assert (await client.limits.pause("export", reason="full")).pause_reason == "full"
        assert (await client.limits.resume("export")).paused_at is None
        await client.submit("export", {}, pool="agents")
        (key,) = await client.limits.keys("export")
        assert (key.key, key.waiting) == ("", 1)
        await client.limits.delete("export")
        with pytest.raises(NotFoundError, match="export"):
            await client.limits.get("export")


@pytest.mark.parametrize(
    ("payload", "key"),
    [
        ({"customer": {"id": "a"}}, "c:a"), ({"customer": {"id": 7}}, "c:7"), ({}, "c:"),
        ({"customer": 1}, "c:"),
        ({"customer": {"id": None}}, "c:"), ({"customer": {"id": "a:b"}}, "c:a:b"),
        ({"customer": {"id": "é" * 65}}, "c:md5-"),
    ],
)  # fmt: skip
async def test_key_is_read_in_the_payload(shared: Database, payload: dict[str, object], key: str) -> None:
    async with grns.connect(database_url=shared.url, nats_url="nats://127.0.0.1:1") as client:
        await client.limits.put("c", pool="agents", key="customer.id", max=1)
        made = await client.submit("export", payload, pool="agents")
        (limit,) = (await client.get(made.id)).limits or []
        assert limit == key or (key.endswith("md5-") and limit.startswith(key))
