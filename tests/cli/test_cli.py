"""The command line on real servers, used correctly and incorrectly."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import nats
import pytest

from grns.dev.servers import LocalNats
from grns.dev.servers.port import HOST, free_port
from tests.support.cli import SOURCE, UNKNOWN, Answer, Call, CliServers, digest


def test_a_task_from_submit_to_its_end(grns: Call) -> None:
    shown = grns(*digest(), "--wait", "--timeout", "20", "-o", "json")
    assert shown.code == 0
    task = shown.json
    assert task["status"] == "succeeded"
    assert task["result"]["bytes"] == SOURCE.stat().st_size
    assert "waiting for its end" in shown.err

    for_people = grns("task", "show", task["id"])
    assert for_people.code == 0
    assert "succeeded" in for_people.out
    events = grns("task", "events", task["id"], "-o", "jsonl").out.splitlines()
    kinds = [json.loads(line)["kind"] for line in events]
    assert [kind for kind in kinds if kind.startswith("evt.")] == [
        "evt.task.queued",
        "evt.task.claimed",
        "evt.task.completed",
    ]
    assert grns("task", "wait", task["id"]).code == 0
    refused = grns("task", "redrive", task["id"])
    assert refused.code == 4
    assert "succeeded" in refused.out
    assert refused.sentence.endswith(
        "is unchanged (succeeded): only dead, failed and cancelled tasks can be redriven"
    )
    assert grns("task", "cancel", task["id"]).code == 4


def test_submit_prints_nothing_but_the_id(grns: Call) -> None:
    first = grns(*digest(), "--idempotency-key", "once")
    assert first.code == 0
    assert first.out.strip().startswith("gr-")
    assert len(first.out.split()) == 1
    second = grns(*digest(), "--idempotency-key", "once", "-o", "json")
    assert second.json["id"] == first.out.strip()
    assert second.json["created"] is False


def test_a_payload_from_a_file_and_from_a_pipe(grns: Call, tmp_path: Path) -> None:
    (tmp_path / "payload.json").write_text(json.dumps({"path": str(SOURCE)}))
    arguments = ["task", "submit", "digest_file", "--pool", "digest", "--wait", "--payload"]
    assert grns(*arguments, "@payload.json").code == 0
    piped = subprocess.run(
        [sys.executable, "-m", "grns", *arguments, "-", "-o", "json"],
        input=(tmp_path / "payload.json").read_bytes(),
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert piped.returncode == 0
    assert json.loads(piped.stdout)["status"] == "succeeded"


def test_a_task_that_nobody_runs_is_waited_for_in_vain_and_cancelled(grns: Call) -> None:
    task_id = grns("task", "submit", "nobody").out.strip()
    late = grns("task", "wait", task_id, "--timeout", "0.1")
    assert late.code == 6
    assert late.hint == f"grns explain {task_id}"
    assert grns("task", "redrive", task_id).code == 4
    ended = grns("task", "cancel", task_id, "--reason", "no more", "-o", "json")
    assert (ended.code, ended.json["items"]) == (0, [{"id": task_id, "answer": "cancelled"}])
    assert grns("task", "wait", task_id).code == 1
    assert grns("task", "redrive", task_id).code == 0
    assert grns("task", "cancel", task_id).code == 0


@pytest.mark.parametrize(
    ("agent_type", "said"),
    [("digest", "has a handler for digset_file"), ("digets", "the pool digets has no live worker")],
)
def test_submit_wait_without_a_worker_for_the_type_says_so_while_it_waits(
    grns: Call, agent_type: str, said: str
) -> None:
    """Newcomer 11: a misspelt type was silent until the timeout, and `explain` knew why all the time."""
    late = grns("task", "submit", "digset_file", "--pool", agent_type, "--wait", "--timeout", "5")
    lines = late.err.splitlines()
    (first,) = [place for place, line in enumerate(lines) if said in line]
    (end,) = [place for place, line in enumerate(lines) if line.startswith("grns: ")]
    assert first < end, "before it gives up"
    task_id = lines[first].split(":")[0].removeprefix("task ")
    assert lines[first + 1].startswith("  try: grns ")
    assert lines[end + 1] == f"  try: grns explain {task_id}"
    assert (late.code, late.out) == (6, "")
    assert grns("task", "cancel", task_id).code == 0


def test_lists_go_on_where_they_ended(grns: Call) -> None:
    ids = {grns("task", "submit", "listed", "--delay", "1h").out.strip() for _ in range(3)}
    seen: set[str] = set()
    after: list[str] = []
    for _ in range(3):
        page = grns("task", "list", "--type", "listed", "--limit", "1", "-o", "json", *after).json
        seen |= {row["id"] for row in page["items"]}
        after = ["--after", page["next_cursor"]] if page["next_cursor"] else []
    assert seen == ids
    assert "listed" in grns("task", "list", "--status", "waiting").out
    nothing = grns("task", "list", "--type", "no_such_type")
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "no such tasks\n")


def test_a_list_is_of_what_its_terms_say(grns: Call) -> None:
    payload = json.dumps({"order": {"id": 17}})
    ids = [
        grns("task", "submit", "filtered", "--delay", "1h", "--payload", payload).out.strip(),
        grns("task", "submit", "filtered", "--delay", "2h", "--priority", "0").out.strip(),
    ]

    def listed(*words: str) -> list[str]:
        return [row["id"] for row in grns("task", "list", "-o", "json", *words).json["items"]]

    assert listed("type:filter*", "status:waiting") == ids, "the next one due is the first"
    assert listed("type:filtered") == ids[::-1]
    assert listed("type:filtered payload.order.id:17") == ids[:1]
    assert listed("--filter", "-priority:0 type:filtered") == ids[:1]
    assert listed("--type", "filtered", "--", "-payload.order.id:*") == ids[1:]
    assert listed(ids[0]) == ids[:1]
    assert listed("type:filtered", "age:>1h") == []
    page = grns("task", "list", "type:filtered", "-o", "json").json
    assert (page["next_cursor"], page["is_partial"]) == (None, False)


def test_filters_are_saved(grns: Call) -> None:
    """L5: an empty one is refused here as by the API: an operation on it would mean all tasks."""
    task_id = grns("task", "submit", "kept", "--delay", "1h").out.strip()
    saved = grns("task", "filter", "save", "waiting-ones", "type:kept", "status:waiting", "-o", "json")
    assert (saved.code, saved.json) == (0, {"name": "waiting-ones", "text": "status:waiting type:kept"})
    rows = grns("task", "filter", "list", "-o", "json").json["items"]
    assert [(row["name"], row["saved_by"][:4]) for row in rows] == [("waiting-ones", "cli:")]
    empty = grns("task", "filter", "save", "x", "")
    assert (empty.code, "at least one term" in empty.sentence) == (2, True)
    assert "waiting-ones" in grns("task", "filter", "list").out
    found = grns("task", "list", "--saved-filter", "waiting-ones", "-o", "json").json["items"]
    assert [row["id"] for row in found] == [task_id]
    assert (
        grns("task", "list", "--saved-filter", "waiting-ones", "priority:0", "-o", "json").json["items"] == []
    )
    assert grns("dlq", "list", "--saved-filter", "waiting-ones", "-o", "json").json["items"] == []
    assert grns("task", "filter", "delete", "waiting-ones").code == 0
    for command in (
        ["task", "filter", "delete", "waiting-ones"],
        ["task", "list", "--saved-filter", "waiting-ones"],
    ):
        missing = grns(*command)
        assert (missing.code, missing.hint) == (3, "grns task filter list")
    assert grns("task", "filter", "list").err == "no saved filters\n"


def test_dead_tasks_are_listed_and_run_again(grns: Call) -> None:
    ended = grns("task", "submit", "hopeless", "--pool", "digest", "--wait", "-o", "json")
    assert ended.code == 1
    task_id = ended.json["id"]
    for words in (["--type", "hopeless"], ["type:hope*", "age:<1h"], ["--what", "task", "error:*"], []):
        listed = grns("dlq", "list", *words, "-o", "json").json["items"]
        assert task_id in [row["id"] for row in listed]
    assert grns("dlq", "list", "type:hopeless", "-o", "json", "--", "-error:*").json["items"] == []
    assert grns("dlq", "show", task_id).code == 0
    assert grns("task", "discard", task_id, "--yes").code == 0
    assert task_id not in grns("dlq", "list", "--type", "hopeless").out
    assert grns("task", "discard", task_id, "--yes").code == 4
    assert grns("task", "redrive", task_id).code == 0
    assert grns("task", "wait", task_id, "--timeout", "20").code == 1
    assert task_id in grns("dlq", "list", "--type", "hopeless").out


def column(answer: Answer, task_id: str, name: str) -> str:
    """Return what a table shows of a task in a column."""
    head, *lines = answer.out.splitlines()
    (line,) = [line for line in lines if line.startswith(task_id)]
    start = head.index(name)
    return line[start:].split("  ")[0].strip()


def test_task_list_of_a_task_that_was_redriven_shows_the_attempts_that_count(grns: Call) -> None:
    """Newcomer 12: ATTEMPT was `4/2` after a redrive, and `0/?` while the task waited."""
    waiting = grns("task", "submit", "hopeless", "--pool", "unserved").out.strip()
    assert column(grns("task", "list", waiting), waiting, "ATTEMPT") == "0"
    assert grns("task", "cancel", waiting).code == 0
    ended = grns("task", "submit", "hopeless", "--pool", "digest", "--wait", "-o", "json")
    task_id, attempts = ended.json["id"], []
    for _ in range(2):
        attempts.append(column(grns("task", "list", task_id), task_id, "ATTEMPT"))
        shown = grns("task", "show", task_id).out
        assert grns("task", "redrive", task_id).code == 0
        assert grns("task", "wait", task_id, "--timeout", "20").code == 1
    assert attempts == ["2/2", "2/2"]
    assert "2 of 2 (4 in all)" in shown
    row = grns("task", "show", task_id, "-o", "json").json
    assert (row["attempt"], row["uncounted_attempts"], row["max_attempts"]) == (6, 4, 2)


def test_task_show_and_explain_of_a_dead_task_show_its_traceback(grns: Call) -> None:
    """Newcomer 15: to see where a handler failed, you needed the log of the right worker."""
    ended = grns("task", "submit", "hopeless", "--pool", "digest", "--wait", "-o", "json")
    task_id = ended.json["id"]
    raised = 'raise ValueError(f"attempt {task.attempt} fails like every other one")'
    for verb in (["task", "show"], ["explain"]):
        lines = [line.strip() for line in grns(*verb, task_id).out.splitlines()]
        begin = lines.index("traceback")
        assert lines[begin + 1] == "Traceback (most recent call last):"
        assert raised in lines[begin:]
    assert raised in grns("explain", task_id, "-o", "json").json["traceback"]


def test_task_list_of_a_task_that_succeeded_shows_no_error(grns: Call) -> None:
    """Newcomer 12: the error of an attempt before the last one stood beside `succeeded`."""
    ended = grns("task", "submit", "flaky", "--pool", "digest", "--wait", "-o", "json")
    assert ended.json["last_error"]["class"] == "ConnectionError", "it is kept, and shown as what it was"
    task_id = ended.json["id"]
    listed = grns("task", "list", task_id)
    assert (column(listed, task_id, "STATUS"), column(listed, task_id, "ATTEMPT")) == ("succeeded", "2/3")
    assert "ConnectionError" not in listed.out
    assert grns("task", "list", task_id, "-o", "json").json["items"][0]["error_class"] is None
    assert "error of an earlier attempt" in grns("task", "show", task_id).out


def test_a_message_that_nobody_could_accept(grns: Call, cli_servers: CliServers) -> None:
    body = b"\x1b]0;owned\x07 {no json"

    async def intrude() -> None:
        client = await nats.connect(cli_servers.nats_url)
        await client.publish("cmd.task.execute.v1", body)
        await client.flush()
        await client.close()

    asyncio.run(intrude())
    deadline = time.monotonic() + 20
    while not (found := grns("dlq", "list", "--what", "message", "-o", "json").json["items"]):
        assert time.monotonic() < deadline
    dead_letter_id = found[0]["id"]
    shown = grns("dlq", "show", dead_letter_id)
    assert shown.code == 0
    assert "\x1b" not in shown.out, "a terminal must not act on it"
    raw = subprocess.run(
        [sys.executable, "-m", "grns", "dlq", "show", dead_letter_id, "--raw"],
        capture_output=True,
        timeout=30,
        check=True,
    )
    assert raw.stdout == body
    assert grns("dlq", "discard", dead_letter_id).code == 2
    assert "would be" in grns("dlq", "discard", dead_letter_id, "--dry-run").out
    assert grns("dlq", "discard", dead_letter_id, "--yes").code == 0
    assert grns("dlq", "discard", dead_letter_id, "--yes").code == 4


def test_events_are_followed_until_ctrl_c(grns: Call, tmp_path: Path) -> None:
    output = tmp_path / "tail"
    with output.open("wb") as out, (tmp_path / "notes").open("wb") as notes:
        tail = subprocess.Popen(
            [sys.executable, "-m", "grns", "events", "tail", "--kind", "evt.task.*", "-o", "jsonl"],
            stdout=out,
            stderr=notes,
        )
        try:
            deadline = time.monotonic() + 20
            while b"following" not in (tmp_path / "notes").read_bytes():
                assert time.monotonic() < deadline
                time.sleep(0.02)
            task_id = grns(*digest()).out.strip()
            while b"evt.task.completed" not in output.read_bytes():
                assert time.monotonic() < deadline
                time.sleep(0.02)
            tail.send_signal(signal.SIGINT)
            assert tail.wait(10) == 130
        finally:
            tail.kill()
            tail.wait()
    seen = [json.loads(line) for line in output.read_text().splitlines()]
    assert [said["kind"] for said in seen if said["payload"]["task_id"] == task_id] == [
        "evt.task.queued",
        "evt.task.claimed",
        "evt.task.completed",
    ]


def test_the_schema_comes_with_db_upgrade(grns: Call, cli_servers: CliServers) -> None:
    os.environ["GRNS_DATABASE_URL"] = cli_servers.make_database("fresh")
    current = grns("admin", "db", "current", "-o", "json")
    assert (current.code, current.json["current"], current.hint) == (1, None, "grns admin db upgrade")
    for command in (
        ["task", "list"],
        ["task", "submit", "x"],
        ["dlq", "list"],
        ["daemon", "relay"],
        ["server"],
    ):
        refused = grns(*command)
        assert refused.code == 5, command
        assert "`grns admin db upgrade`" in refused.sentence
    assert "create table" in grns("admin", "db", "upgrade", "--sql").out.lower()
    assert grns("admin", "db", "current").code == 1, "--sql runs nothing"
    assert grns("admin", "db", "upgrade").code == 0
    assert "already" in grns("admin", "db", "upgrade").err
    assert grns("admin", "db", "current").code == 0
    assert grns("task", "list").code == 0


def test_the_broker_is_made_and_looked_at(grns: Call, directory: Path) -> None:
    with LocalNats(directory / "nats-bare") as bare:
        os.environ["GRNS_NATS_URL"] = bare.url
        missing = grns("admin", "broker", "info")
        assert (missing.code, missing.hint) == (1, "grns admin broker apply")
        assert grns("admin", "broker", "apply").code == 0
        assert "already" in grns("admin", "broker", "apply").err
        found = grns("admin", "broker", "info", "-o", "json")
        assert found.code == 0
        assert {stream["name"] for stream in found.json["items"]} == {"GRNS_CMD", "GRNS_EVT", "GRNS_DLQ"}


def test_a_variable_that_is_misspelt_is_told(grns: Call) -> None:
    os.environ["GRNS_LEASE_SECOND"] = "5"
    told = grns("task", "list")
    assert told.code == 0
    assert "did you mean GRNS_LEASE_SECONDS?" in told.err


@pytest.mark.parametrize(
    "command",
    [
        f"task show {UNKNOWN}",
        f"task events {UNKNOWN}",
        f"task steps {UNKNOWN}",
        f"task signal {UNKNOWN} approved",
        f"task wait {UNKNOWN}",
        f"task cancel {UNKNOWN}",
        f"task redrive {UNKNOWN}",
        f"dlq show {UNKNOWN}",
        "dlq resend 7dc6e5af-0776-4f37-8f16-5767f5f9471f",
        f"task discard {UNKNOWN} --yes",
        "dlq discard 7dc6e5af-0776-4f37-8f16-5767f5f9471f --yes",
    ],
)
def test_what_does_not_exist_is_said(grns: Call, command: str) -> None:
    missing = grns(*command.split())
    assert missing.code == 3
    assert missing.hint in ("grns task list", "grns dlq list")


def test_another_workspace_sees_nothing(grns: Call) -> None:
    task_id = grns("task", "submit", "nobody", "--delay", "1h").out.strip()
    assert grns("--workspace", "other", "task", "show", task_id).code == 3
    assert grns("task", "cancel", task_id, "--workspace", "other").code == 3
    assert grns("task", "show", task_id).code == 0


def test_a_database_that_is_not_there(grns: Call, cli_servers: CliServers) -> None:
    os.environ["GRNS_DATABASE_URL"] = cli_servers.database_url + "_not"
    refused = grns("task", "list")
    assert refused.code == 5
    assert "does not exist" in refused.sentence


def test_reading_and_submitting_need_no_broker(grns: Call) -> None:
    os.environ["GRNS_NATS_URL"] = f"nats://{HOST}:{free_port()}"
    task_id = grns("task", "submit", "nobody", "--delay", "1h").out.strip()
    assert grns("task", "show", task_id).code == 0
    assert grns("task", "cancel", task_id).code == 0


def test_a_metrics_port_that_is_taken(grns: Call) -> None:
    with socket.create_server((HOST, 0)) as stranger:
        refused = grns("daemon", "relay", "--metrics-port", str(stranger.getsockname()[1]))
    assert refused.code != 0
    assert "already in use" in refused.sentence


def test_a_reader_who_leaves_early_is_no_error(grns: Call) -> None:
    finished = subprocess.run(
        ["/bin/sh", "-c", f"{sys.executable} -m grns admin config show | head -1; true"],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert finished.stderr == ""
