"""What is asked of the dashboard: every page of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from grns.web.app import PAGES
from tests.bench.interfaces.furniture import Things
from tests.bench.interfaces.question import STREAMS, Question


def web_questions(things: Things) -> list[Question]:
    """Return every page, some of them with what people look for there."""
    biggest = {"filter": f"status:dead fingerprint:{things.biggest}"}
    asked: list[tuple[str, str, Sequence[str]]] = [
        ("overview", "", ["/"]),
        ("issues", "", ["/issues"]),
        ("issues", "all", ["/issues?state=all"]),
        ("issue", "common", [f"/issues/{things.biggest}"]),
        ("issue", "each in turn", [f"/issues/{one}" for one in things.fingerprints]),
        ("operations", "", ["/operations"]),
        ("operation", "", [f"/operations/{one}" for one in things.operations]),
        ("new_operation", "all that are dead", [_path("/operations/new", {"filter": "status:dead"})]),
        ("new_operation", "of an issue", [_path("/operations/new", biggest)]),
        ("completions", "", [_path("/tasks/completions", {"filter": "status:dead typ"})]),
        ("edit_form", "", [f"/tasks/{one}/edit" for one in things.tasks["dead"]]),
        ("pools", "", ["/pools"]),
        ("pool", "", [f"/pools/{one}" for one in things.agent_types]),
        ("workers", "", ["/workers"]),
        ("events", "", ["/events"]),
        ("events", "dead", [_path("/events", {"kind": "evt.task.dead"})]),
        ("messages", "", ["/messages"]),
        ("message", "", [f"/messages/{one}" for one in things.messages]),
        ("webhooks", "", ["/webhooks"]),
        ("workflows", "", ["/workflows", "/workflows?status=running"]),
        ("workflow", "", [f"/workflows/{things.workflow}"]),
        ("schedules", "", ["/schedules"]),
        ("schedule", "", [f"/schedules/{things.schedule}"]),
        ("limits", "", ["/limits"]),
        ("limit", "", [f"/limits/{things.limit}"]),
        ("agents", "", ["/agents"]),
        ("agent", "", [f"/agents/{things.agent}"]),
        ("mail", "", ["/mail"]),
        ("usage", "", ["/usage"]),
        ("blob", "", [f"/blobs/{things.blob}"]),
        ("questions", "", ["/questions", "/questions?state=all"]),
        ("question", "", [f"/questions/{things.question}"]),
        ("webhook", "", [f"/webhooks/{things.webhook}"]),
        ("webhook", "failed", [f"/webhooks/{things.webhook}?state=failed"]),
        ("delivery", "", [f"/webhooks/{things.webhook}/deliveries/{one}" for one in things.deliveries]),
        ("keys", "", ["/keys"]),
        ("workspaces", "", ["/workspaces"]),
        ("help_page", "", ["/help"]),
        ("login", "", ["/login"]),
    ]
    asked += [
        ("tasks", text or "all", [_path("/tasks", {"filter": text})])
        for text in (
            "",
            "status:dead",
            "status:queued",
            "status:succeeded",
            "type:send_mail",
            "payload.order.id:17",
        )
    ]
    asked += [("task", state, [f"/tasks/{one}" for one in ids]) for state, ids in things.tasks.items()]
    of_all = [
        Question("web_overview", "with a key of all", ["/"], is_of_all=True),
        Question("web_installation", "", ["/installation"], is_of_all=True),
    ]
    return [*of_all, *(Question(f"web_{name}", what, paths) for name, what, paths in asked)]


def missing(found: Sequence[Question]) -> set[str]:
    """Return the pages that nothing is asked of."""
    asked = (
        {one.route for one in found} | STREAMS | {"web_linked_question"}
    )  # that takes the secret of a link
    return {page.name for page in PAGES if page.method == "GET"} - asked


def _path(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}"
