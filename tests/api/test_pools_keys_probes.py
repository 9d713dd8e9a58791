"""Pools, workers, keys, workspaces, filters and probes over HTTP."""

from __future__ import annotations

from typing import Any

import httpx2

from grns.api.app import ROUTES, bare
from grns.api.route import PREFIX
from grns.postgres.database import Database
from grns.worker import registry as agent
from tests.support.api import OURS, THEIRS, Door, actor_of, good, problem_of
from tests.support.harness import submit_many
from tests.support.store import OTHER_WORKER, WORKER, fetch

# ---------------------------------------------------------------- pools


async def test_a_pool_is_paused_and_resumed(local: httpx2.AsyncClient, shared: Database) -> None:
    await submit_many(shared, 3)
    (pool,) = good(await local.get(f"{PREFIX}/pools"))["items"]
    assert (pool["agent_type"], pool["queued"], pool["pauses"]) == ("worker", 3, [])
    path = f"{PREFIX}/pools/worker"
    begun = good(await local.post(f"{path}/pause", json={"reason": "mending", "seconds": 60}))
    assert (begun["paused_by"], begun["reason"], begun["task_type"]) == (actor_of(local), "mending", None)
    assert 0 < begun["left_seconds"] <= 60
    (pool,) = good(await local.get(f"{PREFIX}/pools"))["items"]
    assert [pause["reason"] for pause in pool["pauses"]] == ["mending"]
    one = {"task_type": "noop"}
    assert good(await local.post(f"{path}/pause", json=one))["task_type"] == "noop"
    assert good(await local.post(f"{path}/resume"))["reason"] == "mending"
    assert problem_of(await local.post(f"{path}/resume"), 409) == "conflict"
    assert good(await local.post(f"{path}/resume", json=one))["task_type"] == "noop"
    events = await fetch(shared, "select kind from grns.events where kind like 'evt.pool.%' order by seq")
    assert [row["kind"] for row in events] == ["evt.pool.paused"] * 2 + ["evt.pool.resumed"] * 2
    for wrong, code in (
        ({"until": "2020-01-01T00:00:00Z"}, "bad_until"),
        ({"until": "2030-01-01T00:00:00Z", "seconds": 5}, "bad_until"),
        ({"seconds": 0}, "bad_pause"),
        ({"task_type": "a.b"}, "bad_pause"),
    ):
        assert problem_of(await local.post(f"{path}/pause", json=wrong), 400) == code
    assert problem_of(await local.post(f"{PREFIX}/pools/instance/pause"), 400) == "bad_name"


async def test_a_tenant_pauses_its_own_pool_alone(door: Door) -> None:
    async with door.visitor(await door.key("operate", "read")) as visitor:
        assert good(await visitor.post(f"{PREFIX}/pools/worker/pause"))["workspace"] == OURS
        assert [one["agent_type"] for one in good(await visitor.get(f"{PREFIX}/pools"))["items"]] == [
            "worker"
        ]
    async with door.visitor(await door.key("read", workspace=THEIRS)) as visitor:
        assert good(await visitor.get(f"{PREFIX}/pools"))["items"] == []


async def test_workers_are_listed_page_by_page(local: httpx2.AsyncClient, shared: Database) -> None:
    for claimant in (OTHER_WORKER, WORKER):
        await agent.register(shared, claimant, concurrency=5, version="1")
    await fetch(
        shared,
        "update grns.workers set last_seen_at = now() - interval '1 h' where agent_id = $1",
        OTHER_WORKER.agent_id,
    )
    page = good(await local.get(f"{PREFIX}/workers", params={"limit": "1"}))
    assert [(row["agent_id"], row["is_alive"]) for row in page["items"]] == [(WORKER.agent_id, True)]
    rest = good(await local.get(f"{PREFIX}/workers", params={"cursor": page["next_cursor"]}))
    assert [(row["agent_id"], row["is_alive"]) for row in rest["items"]] == [(OTHER_WORKER.agent_id, False)]
    assert rest["next_cursor"] is None
    await agent.stop(shared, WORKER.agent_id)
    assert len(good(await local.get(f"{PREFIX}/workers"))["items"]) == 1


# ---------------------------------------------------------------- keys, workspaces, filters


async def test_a_key_is_made_shown_once_and_revoked(door: Door) -> None:
    async with door.visitor(door.context.invitation.token) as visitor:
        wanted = {"name": "root", "scopes": ["admin"], "all_workspaces": True}
        root = good(await visitor.post(f"{PREFIX}/keys", json=wanted), [201])
    async with door.visitor(root["key"]) as visitor:
        wanted = {"name": "ci", "scopes": ["submit", "read"], "expires_seconds": 3600}
        headers = {"Grns-Workspace": OURS}
        made = good(await visitor.post(f"{PREFIX}/keys", json=wanted, headers=headers), [201])
        assert (made["workspace"], made["scopes"], made["state"]) == (OURS, ["read", "submit"], "valid")
        listed = good(await visitor.get(f"{PREFIX}/keys", params={"all_workspaces": "true"}))["items"]
        assert {row["id"] for row in listed} == {root["id"], made["id"]}
        assert not any("key" in row for row in listed)
        path = f"{PREFIX}/keys/{made['id']}"
        assert good(await visitor.get(path))["created_by"] == f"key:{root['id']}"
        async with door.visitor(made["key"]) as ci:
            good(await ci.get(f"{PREFIX}/counts"))
            assert good(await visitor.post(f"{path}/revoke"))["state"] == "revoked"
            assert problem_of(await ci.get(f"{PREFIX}/counts"), 401) == "denied"
        assert problem_of(await visitor.post(f"{path}/revoke"), 409) == "conflict"
        nowhere = await visitor.post(f"{PREFIX}/keys", json=wanted, headers={"Grns-Workspace": "nowhere"})
        assert problem_of(nowhere, 404) == "not_found"
        assert problem_of(await visitor.post(f"{PREFIX}/keys", json={**wanted, "scopes": ["all"]}), 400)


async def test_who_is_bound_to_a_workspace_makes_no_key_for_all(door: Door) -> None:
    async with door.visitor(await door.key("admin")) as visitor:
        wanted = {"name": "x", "scopes": ["admin"], "all_workspaces": True}
        assert problem_of(await visitor.post(f"{PREFIX}/keys", json=wanted), 403) == "forbidden"
        everywhere = await visitor.get(f"{PREFIX}/keys", params={"all_workspaces": "true"})
        assert problem_of(everywhere, 403) == "forbidden"
        ours = good(await visitor.post(f"{PREFIX}/keys", json={"name": "x", "scopes": ["read"]}), [201])
        assert ours["workspace"] == OURS


async def test_workspaces_are_made_and_listed(door: Door) -> None:
    async with door.visitor(await door.root()) as visitor:
        assert good(await visitor.post(f"{PREFIX}/workspaces", json={"workspace": "new"}), [201])
        again = await visitor.post(f"{PREFIX}/workspaces", json={"workspace": "new"})
        assert problem_of(again, 409) == "conflict"
        page = good(await visitor.get(f"{PREFIX}/workspaces", params={"limit": "2"}))
        assert [row["workspace"] for row in page["items"]] == [OURS, "default"]
        assert page["next_cursor"] == "default"
    async with door.visitor(await door.key("read")) as visitor:
        seen = good(await visitor.get(f"{PREFIX}/workspaces"))["items"]
        assert [row["workspace"] for row in seen] == [OURS]


async def test_filters_are_kept_listed_and_forgotten(local: httpx2.AsyncClient) -> None:
    path = f"{PREFIX}/filters"
    for name in ("b", "a"):
        good(await local.put(f"{path}/{name}", json={"text": "status:dead"}))
    listed = good(await local.get(path))["items"]
    assert [(row["name"], row["text"], row["saved_by"]) for row in listed] == [
        ("a", "status:dead", actor_of(local)),
        ("b", "status:dead", actor_of(local)),
    ]
    assert good(await local.delete(f"{path}/a"))["text"] == "status:dead"
    assert problem_of(await local.get(f"{path}/a"), 404) == "not_found"
    assert problem_of(await local.delete(f"{path}/a"), 404) == "not_found"
    for wrong in ({}, {"text": ""}, {"text": "status:lost"}):
        assert problem_of(await local.put(f"{path}/a", json=wrong), 400) == "bad_filter"


async def test_terms_are_told_and_completed(local: httpx2.AsyncClient) -> None:
    said = good(await local.get(f"{PREFIX}/terms", params={"beginning": "status:de"}))
    assert {"status", "type", "payload"} <= {row["name"] for row in said["items"]}
    assert [row["text"] for row in said["completions"]] == ["status:dead"]


# ---------------------------------------------------------------- probes and the document


async def test_metrics_are_for_whoever_may_see_all(door: Door) -> None:
    async with door.visitor(await door.root()) as visitor:
        answer = await visitor.get("/metrics")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain")


def _references(node: Any) -> set[str]:
    if isinstance(node, dict):
        found = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return found.union(*map(_references, node.values()))
    return set().union(*map(_references, node)) if isinstance(node, list) else set()


def test_the_document_tells_of_every_route_and_of_nothing_else() -> None:
    document = bare().openapi()
    assert document["openapi"].startswith("3.1")
    told = {
        operation["operationId"]: operation
        for path in document["paths"].values()
        for operation in path.values()
    }
    assert set(told) == {route.name for route in ROUTES}
    for route in ROUTES:
        operation = told[route.name]
        assert operation["security"] == [{"key": [scope]} for scope in route.needs]
        assert "application/problem+json" in operation["responses"]["default"]["content"]
        assert "422" not in operation["responses"]
        takes = route.takes is not None or route.name in ("post_blob", "put_blob")
        assert ("requestBody" in operation) == takes
    schemas = document["components"]["schemas"]
    assert _references(document) <= {f"#/components/schemas/{name}" for name in schemas}


async def test_the_document_is_there_for_everybody(door: Door) -> None:
    await door.key()
    async with door.visitor() as visitor:
        assert good(await visitor.get(f"{PREFIX}/openapi.json"))["info"]["title"] == "grns"
