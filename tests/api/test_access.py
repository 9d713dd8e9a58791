"""Who may come in, and what they may do: each route, each scope, one's own workspace and another's."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from starlette.routing import Route as Served

from grns.access.keys import create_key
from grns.access.principals import SCOPES, Scope
from grns.api.app import ROUTES, bare
from grns.api.invitation import Invitation
from grns.api.route import PREFIX, ApiRoute
from grns.dead_letters.store import RejectedMessage, store_rejected
from grns.limits.model import limit_spec
from grns.limits.service import put as put_limit
from grns.model.api_key import redacted
from grns.model.filter import parse
from grns.model.json import DEFAULT_LIMITS
from grns.model.url_policy import UrlPolicy
from grns.operations.model import request
from grns.operations.service import create_operation
from grns.postgres.database import Database
from grns.schedules.model import schedule_spec
from grns.schedules.service import put as put_schedule
from grns.tasks import saved_filters as saved_filter
from grns.tasks.agents import Agents
from grns.tasks.blobs import Blobs
from grns.tasks.budgets import Budgets
from grns.webhooks.service import create_webhook, ping_webhook
from tests.support.api import OURS, THEIRS, Door, good, problem_of
from tests.support.harness import submit
from tests.support.store import ACTOR, fetch

# What is not there, in any workspace.
NOTHING = {
    "task_id": "gr-nothing", "message_id": str(uuid4()), "fingerprint": "0f0f", "number": "999999",
    "agent_type": "worker", "key_id": "0" * 20, "name": "nothing", "webhook_id": "wh-nothing",
    "seq": "999999", "workflow_id": "wf-nothing", "schedule": "nothing", "question_id": str(uuid4()),
    "blob_id": f"sha256-{'0' * 64}",
}  # fmt: skip
# Whoever reads metrics or makes workspaces is bound to none.
OF_ALL = frozenset(
    {"read_metrics", "examine", "create_workspace", "read_coordinator_status", "recover_tasks"}
)
CANARY = "canary-of-the-rival"
CLOSED = [route for route in ROUTES if route.needs]
_ISSUE = """
    insert into grns.issues (workspace, fingerprint, error_class, message, sample_task_id, first_seen,
        last_seen, total, open_count)
    values ($1, 'beef', 'ValueError', 'no', 'gr-1', now(), now(), 1, 1)
"""


_QUESTION = """
    insert into grns.questions (id, workspace, task_id, step, kind, title, form, asked_of, digest, attempt)
    values (gen_random_uuid(), $1, $2, 'ask pay', 'question', 'Pay?',
        '{"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]}', '{}',
        repeat('0', 64), 1)
    returning id
"""


def named(route: ApiRoute) -> str:
    """Return a route's name, for the names of tests."""
    return route.name


async def asked(
    visitor: httpx2.AsyncClient, route: ApiRoute, names: dict[str, str], **more: Any
) -> httpx2.Response:
    """Ask a route for what is named so, with a body that says nothing."""
    path = re.sub(r"\{(\w+)\}", lambda found: names[found[1]], route.path)
    if route.takes is not None:
        more["json"] = {}
    return await visitor.request(route.method, path, **more)


def _reads_body_last(route: ApiRoute) -> bool:
    names = [dependency.call.__name__ for dependency in route.dependant.dependencies if dependency.call]
    return names == ["request_context", "read_body"]


def test_every_route_says_who_may_use_it() -> None:
    """Also those that somebody adds to the app besides."""
    declared = {(route.path, route.method) for route in ROUTES}
    served: Iterator[Served] = (one for one in bare().routes if isinstance(one, Served))
    assert {
        (one.path, method) for one in served for method in (one.methods or ()) if method != "HEAD"
    } == declared
    for route in ROUTES:
        assert route.takes is None or _reads_body_last(route), f"{route.name}: 403 comes before 422"
    assert {route.name for route in ROUTES if not route.needs} == {
        "is_alive", "is_ready", "read_openapi", "read_own_key",
    }  # fmt: skip
    assert len({route.name for route in ROUTES}) == len(ROUTES)


def test_what_only_looks_takes_a_scope_to_look_and_nothing_else_does() -> None:
    looking = {route.name for route in CLOSED if route.method == "GET"}
    assert {route.name for route in CLOSED if "read" in route.needs} == looking - {
        "list_keys", "read_key", "list_published",
    }  # fmt: skip
    assert {route.name for route in CLOSED if "submit" in route.needs} == {
        "create_task", "create_tasks", "create_workflow", "extend_workflow", "seal_workflow", "put_schedule",
        "list_published", "post_blob", "put_blob",
    }  # fmt: skip


@pytest.mark.parametrize("route", CLOSED, ids=named)
async def test_nobody_comes_in_with_a_key_that_does_not_exist(door: Door, route: ApiRoute) -> None:
    await door.key()
    for key in ("grns_nonsense", door.context.invitation.token, f"grns_{'0' * 20}_{'0' * 64}"):
        async with door.visitor(key) as visitor:
            answer = await asked(visitor, route, NOTHING)
            assert problem_of(answer, 401) == "denied"
            assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("scope", SCOPES)
async def test_a_scope_opens_its_routes_and_no_other(door: Door, scope: Scope) -> None:
    of_one, of_all = await door.key(scope), await door.key(scope, workspace=None)
    for route in CLOSED:
        for key in (of_one, of_all):
            async with door.visitor(key) as visitor:
                answer = await asked(visitor, route, NOTHING)
            may = scope in (*route.needs, "admin") and (key == of_all or route.name not in OF_ALL)
            assert (answer.status_code == 403) is not may, (route.name, answer.text)
            assert answer.status_code != 401
            assert answer.status_code < 500, (route.name, answer.text)


async def _theirs(database: Database) -> dict[str, str]:
    """Let there be one of everything in another workspace, and return how each is named."""
    task_id = (await submit(database, workspace=THEIRS)).id
    await store_rejected(
        database,
        [RejectedMessage("bad_json", "no", f"cmd.task.execute.v1.{THEIRS}", "GRNS_CMD", 1, 1, {}, b"{")],
    )
    letters = await fetch(database, "select id from grns.dead_letters where workspace = $1", THEIRS)
    await fetch(database, _ISSUE, THEIRS)
    made = await create_operation(
        database, request(action="redrive", filter="type:none"), workspace=THEIRS, actor=ACTOR
    )
    key, _ = await create_key(database, workspace=THEIRS, name="theirs", scopes=["read"], actor=ACTOR)
    await saved_filter.save(
        database, workspace=THEIRS, name="theirs", wanted=parse("status:dead"), actor=ACTOR
    )
    _, webhook = await create_webhook(
        database,
        workspace=THEIRS,
        url="https://example.org/x",
        kinds=["evt.task.*"],
        guard=UrlPolicy(),
        actor=ACTOR,
    )
    seq = await ping_webhook(database, webhook.id, workspace=THEIRS, actor=ACTOR)
    spec = schedule_spec(name="theirs", cron="0 9 * * *", task_type="noop", agent_type="worker")
    await put_schedule(database, spec, workspace=THEIRS, actor=ACTOR, limits=DEFAULT_LIMITS)
    limit = limit_spec(name="theirs", agent_type="none", max_tasks=1)
    await put_limit(database, limit, workspace=THEIRS, actor=ACTOR)
    await Agents(database, THEIRS, ACTOR).put("theirs", pool="worker")
    await Budgets(database, THEIRS, ACTOR).put("theirs", pool="none", max_cost=10)
    graph = '[{"task_type": "noop"}]'
    await database.run("submit_graph", graph, THEIRS, ACTOR, '{"name": "theirs", "is_open": true}')
    blob = await Blobs(database, THEIRS).put(CANARY.encode())
    (question,) = await fetch(database, _QUESTION, THEIRS, task_id)
    (workflow,) = await fetch(database, "select id from grns.workflows where workspace = $1", THEIRS)
    return {
        "workflow_id": workflow["id"], "schedule": "theirs", "limit": "theirs", "budget": "theirs",
        "question_id": str(question["id"]),
        "task_id": task_id, "message_id": str(letters[0]["id"]), "fingerprint": "beef",
        "number": str(made.id), "agent_type": "worker", "key_id": key.id, "name": "theirs",
        "webhook_id": webhook.id, "seq": str(seq), "blob_id": blob.id,
    }  # fmt: skip


# Routes that make what they name, of whatever workspace others of that name are.
_PUT = ("save_filter", "put_agent", "put_blob", "put_budget")


class _Never:
    """A database that keeps no workspaces apart: what grns itself checks has to be enough."""

    async def is_there(self) -> bool:
        return False


@pytest.mark.parametrize("is_isolated", [True, False])
async def test_what_is_of_another_workspace_does_not_exist(door: Door, is_isolated: bool) -> None:
    names = await _theirs(door.database)
    if not is_isolated:
        door.context.isolation = _Never()  # type: ignore[assignment]
    async with door.visitor(await door.key("admin")) as visitor:
        for route in CLOSED:
            if "{" in route.path and "{agent_type}" not in route.path and route.name not in _PUT:
                answer = await asked(visitor, route, names)
                if route.name == "list_issue_tasks":
                    assert good(answer)["items"] == []
                elif (
                    answer.status_code != 400
                ):  # a body that says nothing may be wrong before anything is looked for
                    assert problem_of(answer, 404) == "not_found", route.name
            elif route.method == "GET" and route.name not in OF_ALL:
                assert THEIRS not in (await asked(visitor, route, names)).text, route.name


_WAYS: dict[str, dict[str, Any]] = {
    "path": {},
    "query": {"params": {"workspace": THEIRS}},
    "header": {"headers": {"Grns-Workspace": THEIRS}},
}


# What a request names is looked at before what its key may do: the least and the most are enough.
_SCOPES_OF_WAYS = (None, "read", "admin")


@pytest.mark.timeout(180)
@pytest.mark.parametrize("is_isolated", [True, False])
async def test_every_operation_with_every_key_and_every_way_to_name_another_workspace(
    door: Door, is_isolated: bool
) -> None:
    """M3: every operation, key and way; what a key may do in its own workspace is left out."""
    names = await _theirs(door.database)
    await fetch(
        door.database, "update grns.tasks set payload = $1 where id = $2", f'"{CANARY}"', names["task_id"]
    )
    if not is_isolated:
        door.context.isolation = _Never()  # type: ignore[assignment]
    keys: list[tuple[str | None, Scope | None, str | None]] = [
        (None, None, OURS),
        ("grns_garbage", None, OURS),
    ]
    for workspace in (OURS, THEIRS, "default", None):
        keys += [(await door.key(scope, workspace=workspace), scope, workspace) for scope in SCOPES]
    wrong, count = [], 0
    for key, scope, workspace in keys:
        async with door.visitor(key) as visitor:
            for way, more in _WAYS.items():
                for route in CLOSED:
                    reaches = workspace is None or workspace == THEIRS
                    may = scope is not None and scope in (*route.needs, "admin")
                    if (reaches and may) or (way != "path" and scope not in _SCOPES_OF_WAYS):
                        continue
                    answer = await asked(visitor, route, names, **more)
                    count += 1
                    expected = _refusals(route, way, is_known=scope is not None, reaches=reaches, may=may)
                    if answer.status_code not in expected or CANARY in answer.text:
                        wrong.append(
                            (route.name, scope, workspace, way, answer.status_code, answer.text[:100])
                        )
    assert wrong == []
    assert count > 2_500


def _refusals(route: ApiRoute, way: str, *, is_known: bool, reaches: bool, may: bool) -> set[int]:
    """Return which answers are right."""
    if not is_known:
        return {401}
    if way != "path" and not reaches:
        return {404}
    if not may:
        return {403}
    # In its own workspace it may: the object of another one does not exist there. What names none is its own.
    is_of_an_object = "{" in route.path and "{agent_type}" not in route.path
    if not is_of_an_object or route.name in ("save_filter", "put_blob"):
        return set(range(200, 500)) - {401}
    return {200, 404} if route.name == "list_issue_tasks" else {400, 404}  # a list, and it is empty


@pytest.mark.parametrize("route", CLOSED, ids=named)
async def test_another_workspace_cannot_be_named(door: Door, route: ApiRoute) -> None:
    async with door.visitor(await door.key("admin")) as visitor:
        for more in ({"params": {"workspace": THEIRS}}, {"headers": {"Grns-Workspace": THEIRS}}):
            assert problem_of(await asked(visitor, route, NOTHING, **more), 404) == "not_found"


async def test_a_key_of_all_workspaces_names_the_one_that_is_meant(door: Door) -> None:
    made = (await submit(door.database, workspace=THEIRS)).id
    async with door.visitor(await door.key("read", workspace=None)) as visitor:
        path = f"{PREFIX}/tasks/{made}"
        assert problem_of(await visitor.get(path), 404) == "not_found"
        assert good(await visitor.get(path, params={"workspace": THEIRS}))["id"] == made
        assert good(await visitor.get(path, headers={"Grns-Workspace": THEIRS}))["id"] == made
        both = await visitor.get(path, params={"workspace": THEIRS}, headers={"Grns-Workspace": OURS})
        assert problem_of(both, 400) == "bad_workspace"
        assert problem_of(await visitor.get(path, params={"workspace": "a.b"}), 400) == "bad_name"


async def test_a_revoked_key_is_worth_nothing(door: Door) -> None:
    key = await door.key("read")
    async with door.visitor(key) as visitor:
        good(await visitor.get(f"{PREFIX}/counts"))
        await fetch(door.database, "update grns.api_keys set revoked_at = now()")
        assert problem_of(await visitor.get(f"{PREFIX}/counts"), 401) == "denied"


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "10.0.0.7"])
@pytest.mark.parametrize(
    "headers",
    [{}, {"Host": "127.0.0.1:8080"}, {"X_Forwarded_For": "127.0.0.1"}, {"Origin": "http://localhost"}],
)
async def test_request_without_a_key_is_denied_from_every_address(
    door: Door, address: str, headers: dict[str, str]
) -> None:
    """H3: without a key, the peer's address and the Host decided; a proxy's visitors have a local address."""
    async with door.visitor(address=(address, 1), **headers) as visitor:
        for route in CLOSED:
            assert problem_of(await asked(visitor, route, NOTHING), 401) == "denied", route.name


# ---------------------------------------------------------------- the first key

FIRST = {"name": "root", "scopes": ["admin"], "all_workspaces": True}


async def test_bootstrap_token_creates_the_first_key_and_expires_with_it(door: Door) -> None:
    """H3: the token that the API prints is the only way in without a key, and good for one key."""
    async with door.visitor(door.context.invitation.token) as visitor:
        made = good(await visitor.post(f"{PREFIX}/keys", json=FIRST), [201])
        assert (made["scopes"], made["workspace"], made["created_by"]) == (["admin"], None, "bootstrap")
        assert problem_of(await visitor.post(f"{PREFIX}/keys", json=FIRST), 401) == "denied"
        assert problem_of(await visitor.get(f"{PREFIX}/counts"), 401) == "denied"
        await fetch(door.database, "update grns.api_keys set revoked_at = now()")
        assert problem_of(await visitor.post(f"{PREFIX}/keys", json=FIRST), 401) == "denied"
    assert len(await fetch(door.database, "select from grns.api_keys")) == 1


@pytest.mark.parametrize(
    "changed", [{"scopes": ["read"]}, {"all_workspaces": False}, {"scopes": ["submit", "operate"]}]
)
async def test_bootstrap_token_creates_no_other_key(door: Door, changed: dict[str, Any]) -> None:
    async with door.visitor(door.context.invitation.token) as visitor:
        answer = await visitor.post(f"{PREFIX}/keys", json=FIRST | changed)
    assert problem_of(answer, 403) == "forbidden"
    assert not await fetch(door.database, "select from grns.api_keys")


async def test_bootstrap_token_opens_no_other_route(door: Door) -> None:
    async with door.visitor(door.context.invitation.token) as visitor:
        for route in CLOSED:
            if route.name != "create_key":
                assert problem_of(await asked(visitor, route, NOTHING), 403) == "forbidden", route.name


async def test_first_key_is_created_once_however_many_ask(door: Door) -> None:
    async with door.visitor(door.context.invitation.token) as visitor:
        asking = (visitor.post(f"{PREFIX}/keys", json=FIRST) for _ in range(8))
        answers = [answer.status_code for answer in await asyncio.gather(*asking)]
    assert sorted(answers) == [201] + [401] * 7


async def test_invitation_with_a_key_creates_no_key(door: Door) -> None:
    """The token of `grns dev` opens the dashboard alone, even where somebody has deleted all keys."""
    door.context.invitation = Invitation(key=f"grns_{'0' * 20}_{'0' * 64}")
    async with door.visitor(door.context.invitation.token) as visitor:
        assert problem_of(await visitor.post(f"{PREFIX}/keys", json=FIRST), 401) == "denied"


def test_invitation_shows_its_token_in_no_log() -> None:
    invitation = Invitation()
    assert invitation.token not in repr(invitation)
    assert invitation.token not in redacted(f"at {invitation.path()} of somebody")
    assert Invitation().token != invitation.token


async def test_whoever_asks_stands_in_the_log(door: Door) -> None:
    key = await door.key("submit", "operate")
    async with door.visitor(key) as visitor:
        made = good(await visitor.post(f"{PREFIX}/tasks", json={"task_type": "noop"}))
        good(await visitor.post(f"{PREFIX}/tasks/{made['id']}/cancel"))
    rows = await fetch(
        door.database,
        "select kind, actor, workspace from grns.events where task_id = $1 and kind like 'evt%' order by seq",
        made["id"],
    )
    actor = f"key:{key.split('_')[1]}"
    assert [tuple(row) for row in rows] == [
        ("evt.task.queued", actor, OURS),
        ("evt.task.cancelled", actor, OURS),
    ]


async def test_a_secret_is_in_the_answer_that_makes_it_and_nowhere_else(door: Door) -> None:
    """Wherever its holder puts it by mistake, and whatever goes wrong meanwhile."""
    async with door.visitor(door.context.invitation.token) as visitor:
        key: str = good(await visitor.post(f"{PREFIX}/keys", json=FIRST), [201])["key"]
    secret = key.rpartition("_")[2]
    wrong = f"{key[:-1]}{'0' if key[-1] != '0' else '1'}"
    async with door.visitor(key) as known, door.visitor(wrong) as unknown:
        answers = [
            await unknown.get(f"{PREFIX}/counts"),
            await unknown.get(f"{PREFIX}/counts", headers={"Authorization": f"Basic {key}"}),
            await known.get(f"{PREFIX}/keys", params={"all_workspaces": "true"}),
            await known.get(f"{PREFIX}/keys/{key.split('_')[1]}"),
            await known.get(f"{PREFIX}/keys/{key}"),
            await known.get(f"{PREFIX}/tasks/{key}"),
            await known.get(f"{PREFIX}/tasks", params={"filter": f"{key}:1"}),
            await known.get(f"{PREFIX}/tasks", params={"cursor": key}),
            await known.get(f"{PREFIX}/counts", params={key: "1"}),
            await known.get(f"{PREFIX}/counts", params={"workspace": key}),
            await known.post(f"{PREFIX}/tasks", json={key: 1}),
            await known.post(f"{PREFIX}/tasks", json={"task_type": key}),
            await known.get(f"{PREFIX}/{key}"),
            await known.get(f"{PREFIX}/events"),
            await known.post(f"{PREFIX}/keys/{key.split('_')[1]}/revoke"),
        ]
    for answer in answers:
        assert secret[:16] not in f"{answer.text} {answer.headers}", answer.request.url
    kept = await fetch(
        door.database,
        "select to_jsonb(e)::text as row from grns.events e"
        " union all select to_jsonb(k)::text from grns.api_keys k",
    )
    assert len(kept) >= 3
    for said in (*(str(row["row"]) for row in kept), *map(repr, door.emitted.seen)):
        assert secret[:16] not in said
