"""Bulk operations, issues, edits and letters on the command line, against real servers."""

from __future__ import annotations

import ast
import asyncio
import io
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import nats
import pytest

from grns.cli import option
from tests.dead_letters.test_message import body
from tests.support.cli import UNKNOWN, Call, CliServers

SECONDS = 20.0


def eventually(look: Callable[[], Any]) -> Any:
    """Wait until a command shows something true."""
    deadline = time.monotonic() + SECONDS
    while not (seen := look()):
        assert time.monotonic() < deadline, "in vain"
        time.sleep(0.05)
    return seen


def submitted(grns: Call, kind: str, *more: str) -> str:
    """Submit a task of the worker's, and return its id."""
    return grns("task", "submit", kind, "--pool", "digest", *more).out.strip()


def died(grns: Call, count: int, *more: str) -> list[str]:
    """Let tasks fail until their attempts are spent; returns their ids."""
    ids = [submitted(grns, "hopeless", "--max-attempts", "1", *more) for _ in range(count)]
    for task_id in ids:
        assert grns("task", "wait", task_id, "--timeout", str(SECONDS)).code == 1
    return ids


def statuses(grns: Call, ids: list[str]) -> set[str]:
    """Return where tasks are."""
    return {grns("task", "show", task_id, "-o", "json").json["status"] for task_id in ids}


def test_what_a_filter_finds_is_counted_asked_for_and_redriven(grns: Call) -> None:
    ids = died(grns, 3, "--payload", '{"mark": "counted"}')
    chosen = ["task", "redrive", "--filter", "type:hopeless payload.mark:counted"]
    trial = grns(*chosen, "--dry-run", "-o", "json")
    assert (trial.json["count"], trial.json["is_exact"]) == (3, True)
    assert [(row["task_type"], row["tasks"]) for row in trial.json["items"]] == [("hopeless", 3)]
    assert "would redrive 3 tasks" in trial.err
    asked = grns(*chosen)
    assert (asked.code, "--yes" in asked.sentence) == (2, True)
    assert statuses(grns, ids) == {"dead"}

    how = ["--rate", "60000/min", "--reason", "mended", "--patch", '{"mark": "again"}']
    done = grns(*chosen, *how, "--yes", "-o", "json")
    assert done.code == 0, done.err
    operation = done.json
    assert (operation["state"], operation["moved"], operation["skipped"]) == ("done", 3, 0)
    assert operation["reason"] == "mended"
    assert operation["filter"] == "status:dead,failed type:hopeless payload.mark:counted"
    assert operation["created_by"].startswith("cli:")
    for task_id in ids:
        assert grns("task", "wait", task_id, "--timeout", str(SECONDS)).code == 1
        shown = grns("task", "show", task_id, "-o", "json").json
        assert (shown["payload"], shown["operation_id"]) == ({"mark": "again"}, operation["id"])
    number = str(operation["id"])
    eventually(lambda: grns("operation", "show", number, "-o", "json").json["failed_again"] == 3)
    assert "failed again" in grns("operation", "show", number).out
    assert number in grns("operation", "list", "--state", "done").out
    assert grns("operation", "watch", number).code == 0
    assert grns("operation", "cancel", number).code == 4
    nothing = grns(*chosen, "--yes")
    assert (nothing.code, nothing.out) == (0, "")
    assert "nothing to redrive" in nothing.err


def test_a_canary_that_fails_pauses_and_somebody_decides(grns: Call) -> None:
    ids = died(grns, 2, "--payload", '{"mark": "canary"}')
    paused = grns("task", "redrive", "--filter", "payload.mark:canary", "--canary", "--yes", "-o", "json")
    assert paused.code == 1
    assert (paused.json["state"], paused.json["moved"]) == ("paused", 1)
    canary, number = paused.json["canary_task_id"], str(paused.json["id"])
    assert canary in ids
    assert paused.json["state_reason"] == f"its canary {canary} is dead: ValueError"
    assert paused.hint == f"grns operation resume {number}"
    assert grns("operation", "resume", number).code == 0
    assert grns("operation", "watch", number, "--timeout", str(SECONDS)).code == 0
    assert grns("operation", "show", number, "-o", "json").json["moved"] == 2


def test_one_that_goes_on_by_itself_is_paused_and_ended(grns: Call) -> None:
    died(grns, 3, "--payload", '{"mark": "slow"}')
    made = grns("task", "redrive", "--filter", "payload.mark:slow", "--rate", "1/h", "--detach", "--yes")
    assert made.code == 0
    number = made.out.strip()
    late = grns("operation", "watch", number, "--timeout", "0.1")
    assert late.code == 6
    assert (
        grns("operation", "pause", number, "--reason", "lunch", "-o", "json").json["state_reason"] == "lunch"
    )
    assert grns("operation", "watch", number).code == 1
    assert grns("operation", "cancel", number).code == 0
    assert grns("operation", "show", number, "-o", "json").json["state"] == "cancelled"
    assert grns("operation", "show", "999999").code == 3


def test_dead_tasks_are_discarded_by_a_filter_and_exported(grns: Call) -> None:
    ids = died(grns, 3, "--payload", '{"mark": "export"}')
    wanted = ["--filter", "payload.mark:export"]
    exported = grns("dlq", "export", *wanted)
    assert exported.code == 0
    lines = [json.loads(line) for line in exported.out.splitlines()]
    assert [line["id"] for line in lines] == ids[::-1], "the latest first"
    assert {line["payload"]["mark"] for line in lines} == {"export"}
    assert "3 exported" in exported.err
    done = grns("task", "discard", *wanted, "--yes", "-o", "json")
    assert (done.code, done.json["moved"]) == (0, 3)
    assert grns("dlq", "export", *wanted).out == ""
    assert len(grns("dlq", "export", "--filter", "payload.mark:export discarded:yes").out.splitlines()) == 3


def test_what_has_not_ended_is_cancelled_by_a_filter(grns: Call) -> None:
    ids = [submitted(grns, "hopeless", "--delay", "1h", "--payload", '{"mark": "cancel"}') for _ in range(3)]
    done = grns(
        "task", "cancel", "--filter", "payload.mark:cancel", "--reason", "no more", "--yes", "-o", "json"
    )
    assert (done.code, done.json["moved"], done.json["skipped"]) == (0, 3, 0)
    assert statuses(grns, ids) == {"cancelled"}


def test_failures_are_grouped_acknowledged_and_redriven(grns: Call) -> None:
    (task_id,) = died(grns, 1)
    fingerprint = grns("task", "show", task_id, "-o", "json").json["fingerprint"]

    def is_counted() -> Any:
        issues = grns("issue", "list", "-o", "json").json["items"]
        return [one for one in issues if one["fingerprint"] == fingerprint and one["open_count"] > 0]

    (issue,) = eventually(is_counted)
    assert (issue["error_class"], len(issue["trend"])) == ("ValueError", 24)
    assert fingerprint in grns("issue", "list").out
    said = grns("issue", "ack", fingerprint, "--note", "ann looks", "--owner", "ann", "-o", "json").json
    assert (said["state"], said["note"], said["owner"]) == ("acknowledged", "ann looks", "ann")
    assert "ann looks" in grns("issue", "show", fingerprint).out
    snoozed = grns("issue", "snooze", fingerprint, "2d")
    assert f"issue {fingerprint} is acknowledged, and snoozed until 20" in snoozed.err
    assert grns("issue", "snooze", fingerprint, "0", "-o", "json").json["snoozed_until"] is None
    assert grns("issue", "reopen", fingerprint, "-o", "json").json["state"] == "new"
    assert grns("issue", "discard", fingerprint, "--dry-run", "-o", "json").json["count"] >= 1
    assert grns("issue", "resolve", fingerprint).code == 0
    done = grns("issue", "redrive", fingerprint, "--filter", f"id:{task_id}", "--yes", "-o", "json")
    assert (done.code, done.json["moved"]) == (0, 1)
    eventually(lambda: grns("issue", "show", fingerprint, "-o", "json").json["state"] == "regressed")
    for nobody in (["issue", "show", "0" * 16], ["issue", "ack", "0" * 16]):
        assert (grns(*nobody).code, grns(*nobody).hint) == (3, "grns issue list")
    assert (grns("operation", "pause", "999").code, grns("operation", "pause", "999").hint) == (
        3,
        "grns operation list",
    )


def test_a_task_that_waits_is_edited(grns: Call) -> None:
    task_id = submitted(grns, "hopeless", "--delay", "1h", "--payload", '{"a": 1, "b": 2}')
    named = ["--priority", "0", "--patch", '{"a": null}', "--reason", "urgent"]
    edited = grns("task", "edit", task_id, *named, "-o", "json")
    assert (edited.json["priority"], edited.json["payload"]) == (0, {"b": 2})
    assert grns("task", "edit", task_id, "--delay", "0", "-o", "json").code == 0
    assert grns("task", "wait", task_id, "--timeout", str(SECONDS)).code == 1
    events = [json.loads(line) for line in grns("task", "events", task_id, "-o", "jsonl").out.splitlines()]
    changes = [event for event in events if event["kind"] == "evt.task.changed"]
    assert [event["payload"]["reason"] for event in changes] == ["urgent", None]
    assert grns("task", "edit", task_id, "--delay", "5m").code == 4
    assert grns("task", "edit", task_id, "--at", "2026-12-24T09:00:00+01:00").code == 4
    assert grns("task", "edit", UNKNOWN, "--priority", "1").code == 3


def test_a_message_is_mended_and_sent_again(grns: Call, cli_servers: CliServers) -> None:
    async def intrude() -> None:
        client = await nats.connect(cli_servers.nats_url)
        await client.publish("cmd.task.execute.v1", b"{mend me")
        await client.flush()
        await client.close()

    asyncio.run(intrude())

    def found() -> Any:
        items = grns("dlq", "list", "--what", "message", "-o", "json").json["items"]
        ids = [row["id"] for row in items]
        return [one for one in ids if grns("dlq", "show", one, "-o", "json").json["body_text"] == "{mend me"]

    (dead_letter_id,) = eventually(found)
    exported = [json.loads(line) for line in grns("dlq", "export", "--messages").out.splitlines()]
    assert dead_letter_id in [line["id"] for line in exported]
    refused = grns("dlq", "resend", dead_letter_id, "--body", "{}")
    assert (refused.code, refused.sentence.endswith("(bad_envelope)")) == (2, True)
    forged = ("--subject", "evt.task.completed.v1", "--body", body("evt.task.completed").decode())
    refused = grns("dlq", "resend", dead_letter_id, *forged)
    assert (refused.code, refused.sentence.endswith("(bad_subject)")) == (2, True)
    task_id = submitted(grns, "hopeless", "--max-attempts", "1")
    content = body(task_id=task_id, target_agent_type="digest").decode()
    assert grns("dlq", "resend", dead_letter_id, "--body", content, "--reason", "no quotes").code == 0
    assert grns("dlq", "resend", dead_letter_id).code == 4
    assert grns("dlq", "show", dead_letter_id, "-o", "json").json["state"] == "redriven"


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        """Say that somebody is there."""
        return True


@pytest.mark.parametrize(
    ("count", "typed", "is_done"),
    [(3, "y\n", True), (3, "n\n", False), (101, "y\n", False), (101, "101\n", True), (101, "100\n", False)],
)
def test_many_are_confirmed_by_their_number(
    monkeypatch: pytest.MonkeyPatch, count: int, typed: str, is_done: bool
) -> None:
    monkeypatch.setattr(sys, "stdin", _Terminal(typed))
    monkeypatch.setattr(sys, "stderr", _Terminal())
    try:
        option.confirm(f"redrive {count} tasks", count=count, is_sure=False)
        assert is_done
    except click.Abort:
        assert not is_done
    option.confirm(f"redrive {count} tasks", count=count, is_sure=True)


def test_what_is_sure_needs_no_terminal() -> None:
    with pytest.raises(click.UsageError, match="--yes"):
        option.confirm("redrive 101 tasks", count=101, is_sure=False)


def test_task_redrive_of_ids_with_a_patch_runs_them_with_the_new_payload(grns: Call) -> None:
    """Newcomer 10: `--patch` was refused for ids, and the hint did not name the command that does it."""
    there = ast.__file__  # the worker reads files of Python's library
    missing = json.dumps({"path": f"{there}.missing", "note": "kept"})
    ids = [submitted(grns, "digest_file", "--payload", missing) for _ in range(2)]
    for task_id in ids:
        assert grns("task", "wait", task_id, "--timeout", str(SECONDS)).code == 1
    patch = ["--patch", json.dumps({"path": there}), "--reason", "moved"]

    assert grns("task", "redrive", *ids, *patch, "--dry-run").code == 0
    assert statuses(grns, ids) == {"failed"}
    for wrong in ("[1]", "{", "null"):
        assert grns("task", "redrive", *ids, "--patch", wrong).code == 2
    assert statuses(grns, ids) == {"failed"}

    done = grns("task", "redrive", *ids, UNKNOWN, *patch, "-o", "json")
    assert done.code == 3, "one of the ids names no task"
    assert [row["answer"] for row in done.json["items"]] == ["redriven", "redriven", "not found"]
    for task_id in ids:
        assert grns("task", "wait", task_id, "--timeout", str(SECONDS)).code == 0
        shown = grns("task", "show", task_id, "-o", "json").json
        assert shown["payload"] == {"path": there, "note": "kept"}
        changed = [
            event
            for event in grns("task", "events", task_id, "-o", "json").json["items"]
            if event["kind"] == "evt.task.changed"
        ]
        assert [event["payload"]["reason"] for event in changed] == ["moved"]


def test_task_redrive_with_a_patch_too_large_leaves_the_task_as_it_is(grns: Call, tmp_path: Path) -> None:
    """Newcomer 10: a task whose patched payload cannot be kept is not redriven without it."""
    (task_id,) = died(grns, 1, "--payload", json.dumps({"mark": "x" * 200}))
    document = tmp_path / "patch.json"
    document.write_text(json.dumps({"text": "x" * 262_100}))  # fits alone, but not beside `mark`
    refused = grns("task", "redrive", task_id, "--patch", f"@{document}", "-o", "json")
    assert refused.code == 4
    assert statuses(grns, [task_id]) == {"dead"}


def test_dlq_resend_of_all_messages_with_a_body_is_refused(grns: Call) -> None:
    """Newcomer 10: an edit is for one message."""
    refused = grns("dlq", "resend", "--all", "--body", "{}")
    assert refused.code == 2
    assert "--body" in refused.sentence
