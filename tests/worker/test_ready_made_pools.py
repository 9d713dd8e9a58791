"""The pools that come along: digests of files, commands as tasks, and agents behind HTTP."""

from __future__ import annotations

import asyncio
import gzip
import importlib
import json
import os
import socket
import subprocess
import sysconfig
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from grns.model.outcome import Outcome, Verb
from grns.worker.leases import Lease
from tests.support.harness import eventually, is_alive
from tests.support.store import forged
from tests.worker.test_handlers import Runner, error_of
from workers import digest, http, shell

# Each loop has subprocesses, transports and errors of its own.
pytestmark = pytest.mark.asyncio(loop_factories=["asyncio", "uvloop"])

# ---------------------------------------------------------------- digests

LIBRARY = os.path.realpath(sysconfig.get_path("stdlib"))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only directory whose files may be read, beside one with a secret."""
    for name in ("root", "beside"):
        (tmp_path / name / "below").mkdir(parents=True)
        (tmp_path / name / "below" / "code.py").write_text("def f(): pass\n")
    monkeypatch.setattr(digest, "ROOTS", [tmp_path / "root"])
    return tmp_path / "root"


async def digested(path: Path | str) -> Outcome:
    """Digest one file as a task."""
    claimed = forged("gr-0", attempt=1)
    claimed.payload = json.dumps({"path": str(path)})
    return await Runner(digest.digest_file).run(claimed)


@pytest.mark.parametrize("way", ["below/code.py", "{root}/below/code.py", "inside", "below/../below/code.py"])
async def test_digest_of_a_file_below_the_root_counts(root: Path, way: str) -> None:
    (root / "inside").symlink_to(root / "below" / "code.py")
    outcome = await digested(way.format(root=root))
    assert json.loads(outcome.result or "{}")["functions"] == 1, outcome.error


@pytest.mark.parametrize(
    "way",
    [
        "/etc/passwd", "/proc/self/environ", "/dev/zero", "/dev/ptmx", "../beside/below/code.py", "..", ".",
        "{root}/../beside/below/code.py", "out", "link/code.py", "{root}-more/code.py", "/", "",
    ],
)  # fmt: skip
async def test_digest_of_a_file_outside_the_root_fails(root: Path, way: str) -> None:
    """M4: any submitter learned the digest of any file that the worker could read."""
    (root / "out").symlink_to("/etc/passwd")
    (root / "link").symlink_to(root.parent / "beside" / "below")
    (root.parent / "root-more").mkdir()
    (root.parent / "root-more" / "code.py").touch()
    outcome = await digested(way.format(root=root))
    assert (outcome.verb, outcome.error_class) == (Verb.FAIL, "outside_root")


@pytest.mark.parametrize("kind", ["fifo", "directory", "socket", "missing", "long"])
async def test_digest_of_what_is_not_a_regular_file_fails_at_once(root: Path, kind: str) -> None:
    """M4: a device or a FIFO kept a slot of the worker for good."""
    path = root / ("x" * 300 if kind == "long" else "below/special")
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
    async with asyncio.timeout(10):
        outcome = await digested(path)
    assert (outcome.verb, outcome.error_class) == (Verb.FAIL, "no_such_file")


async def test_digest_of_a_file_larger_than_the_limit_fails(root: Path) -> None:
    """M4: memory grew with the file, until the machine had none."""
    with (root / "large.py").open("wb") as file:
        file.truncate(50 * 1024**3)
    outcome = await digested("large.py")
    assert (outcome.verb, outcome.error_class) == (Verb.FAIL, "too_large")


@pytest.mark.parametrize("place", ["last", "between"])
async def test_digest_of_a_path_that_becomes_a_link_meanwhile_fails(
    root: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """M4: a link that appears after the path was resolved is not followed out of the root."""
    resolve = os.path.realpath

    def late(path: Any) -> str:
        found = str(resolve(path))
        swapped = root / "below" / "code.py" if place == "last" else root / "below"
        swapped.rename(root / "moved")
        swapped.symlink_to(root.parent / "beside" / swapped.relative_to(root))
        return found

    monkeypatch.setattr(os.path, "realpath", late)
    outcome = await digested("below/code.py")
    assert (outcome.verb, outcome.error_class) == (Verb.FAIL, "no_such_file")


async def test_digest_without_a_root_reads_the_library_of_python_alone() -> None:
    """M4: the default gives away nothing that is not public."""
    assert [str(root) for root in digest.ROOTS] == [LIBRARY]
    assert (await digested(json.__file__)).verb is Verb.SUCCEED
    assert (await digested(__file__)).error_class == "outside_root"


# ---------------------------------------------------------------- commands

SH = ["/bin/sh", "-c"]
COMMANDS = {
    "echo": ["cat"],
    "quiet": [*SH, "cat > /dev/null"],
    "deaf": ["true"],
    "heir": [*SH, 'sleep 1000 & echo $! > "$PIDS"; echo 1'],
    "env": [*SH, 'printf \'"%s %s %s"\' "$GRNS_TASK_ID" "$GRNS_ATTEMPT" "$GRNS_DATABASE_URL"'],
    "words": [*SH, "echo no json"],
    "flood": [*SH, "head -c 300000 /dev/zero | tr '\\0' 1"],
    "exit": [*SH, "read code; echo it failed >&2; exit $code"],
    "signal": [*SH, "kill -9 $$"],
    "missing": ["/no/such/command"],
    # a child of its own, and both ignore what asks them to end
    "hang": [*SH, 'trap "" TERM; sleep 1000 & echo $$ $! > "$PIDS"; wait'],
}


@pytest.fixture(autouse=True)
def commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The operator's table; returns the file in which `hang` says who it is."""
    monkeypatch.setattr(shell, "COMMANDS", COMMANDS)
    monkeypatch.setenv("GRNS_DATABASE_URL", "postgresql://secret")
    monkeypatch.setenv("PIDS", str(tmp_path / "pids"))
    return tmp_path / "pids"


async def command(name: str, lease: Lease | None = None, **fields: Any) -> Outcome:
    """Run one command as a task."""
    claimed = lease.claim if lease else forged("gr-0", attempt=1)
    claimed.payload = json.dumps({"command": name, **fields})
    return await Runner(shell.run).run(claimed, lease)


async def pids_in(file: Path) -> list[int]:
    """Wait for the processes of `hang`, and return them."""

    async def look() -> list[int]:
        return _numbers(file)

    return await eventually(look)


def _numbers(file: Path) -> list[int]:
    return [int(word) for word in file.read_text().split()] if file.exists() else []


async def are_gone(pids: list[int]) -> bool:
    """Say whether none of these processes is there any more."""
    return not any(is_alive(pid) for pid in pids)


@pytest.mark.parametrize(
    "document", [{"a": [1, "é", None]}, None, ["x" * 60_000] * 4, 7], ids=lambda one: repr(one)[:9]
)
async def test_a_command_reads_json_and_answers_with_json(document: Any) -> None:
    assert json.loads((await command("echo", input=document)).result or "") == document


async def test_a_command_need_not_answer_nor_read() -> None:
    for name in ("quiet", "deaf"):
        assert (await command(name, input="x" * 200_000)).result == "null"


async def test_commands_that_have_ended_before_they_are_written_to_have_succeeded() -> None:
    outcomes = await asyncio.gather(*(command("deaf", input=number) for number in range(40)))
    assert {(outcome.verb, outcome.result) for outcome in outcomes} == {(Verb.SUCCEED, "null")}


async def test_what_a_command_leaves_behind_is_killed_and_not_waited_for(commands: Path) -> None:
    outcome = await command("heir", timeout_seconds=30)
    assert (outcome.verb, outcome.result) == (Verb.SUCCEED, "1")
    pids = await pids_in(commands)
    await eventually(lambda: are_gone(pids))


async def test_a_command_gets_to_know_its_task_and_no_settings_of_ours() -> None:
    assert (await command("env")).result == '"gr-0 1 "'


@pytest.mark.parametrize(
    ("code", "verb"),
    [(1, Verb.RETRY), (2, Verb.RETRY), (63, Verb.RETRY), (64, Verb.FAIL), (65, Verb.FAIL), (74, Verb.FAIL),
     (75, Verb.RETRY), (78, Verb.FAIL), (79, Verb.RETRY), (127, Verb.RETRY)],
)  # fmt: skip
async def test_the_exit_code_decides(code: int, verb: Verb) -> None:
    outcome = await command("exit", input=code)
    assert (outcome.verb, outcome.error_class) == (verb, f"exit_{code}")
    assert error_of(outcome)["message"] == "it failed\n"


@pytest.mark.parametrize(
    ("name", "verb", "error_class"),
    [
        ("words", Verb.FAIL, "bad_output"),
        ("flood", Verb.FAIL, None),
        ("signal", Verb.RETRY, "signal_9"),
        ("missing", Verb.RETRY, "FileNotFoundError"),
        ("rm -rf /", Verb.FAIL, "unknown_command"),
    ],
)
async def test_a_command_that_does_not_do_what_it_should(
    name: str, verb: Verb, error_class: str | None
) -> None:
    outcome = await command(name)
    assert outcome.verb is verb
    assert error_class in (None, outcome.error_class)


async def test_the_payload_is_checked() -> None:
    for fields in ({"timeout_seconds": 0}, {"timeout_seconds": "soon"}, {"timeout_seconds": 1e9}):
        assert (await command("echo", **fields)).error_class == "bad_payload"


async def test_a_command_that_takes_too_long_is_killed_with_its_children(commands: Path) -> None:
    outcome = await command("hang", timeout_seconds=0.3)
    assert (outcome.verb, outcome.error_class) == (Verb.RETRY, "TimeoutError")
    pids = await pids_in(commands)
    await eventually(lambda: are_gone(pids))


@pytest.mark.parametrize(("reason", "verb"), [("cancelled", Verb.CANCEL), ("shutdown", Verb.RELEASE)])
async def test_a_command_that_is_not_wanted_any_more_is_killed(
    commands: Path, reason: str, verb: Verb
) -> None:
    lease = Lease(forged("gr-0", attempt=1), 0, 1)
    running = asyncio.create_task(command("hang", lease))
    pids = await pids_in(commands)
    assert len(pids) == 2
    assert os.getpgid(pids[0]) == os.getpgid(pids[1]) != os.getpgrp()
    lease.end(reason)
    assert (await running).verb is verb
    await eventually(lambda: are_gone(pids))


@pytest.mark.asyncio(loop_factories=["asyncio"])  # uvloop starts processes in C, with no moment to meddle in
async def test_a_command_that_is_cancelled_while_it_starts_is_killed_too(
    commands: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = Lease(forged("gr-0", attempt=1), 0, 1)

    class Slow(subprocess.Popen[bytes]):
        """Is through its first lines before the one who starts it knows that it runs."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            while not _numbers(commands):
                time.sleep(0.001)
            lease.end("cancelled")

    monkeypatch.setattr(subprocess, "Popen", Slow)
    assert (await command("hang", lease)).verb is Verb.CANCEL
    pids = await pids_in(commands)
    await eventually(lambda: are_gone(pids))


# ---------------------------------------------------------------- agents behind HTTP


class Agent:
    """An agent behind HTTP, as small as can be: it answers each request with the same bytes."""

    def __init__(self) -> None:
        self.answer = b""
        self.asked: list[tuple[dict[str, str], bytes]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.asked.append(({"": first, **headers}, body))
        writer.write(self.answer)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    def will_say(
        self, status: int, body: bytes = b"", *, retry_after: str | None = None, encoding: str | None = None
    ) -> None:
        """Set the answer."""
        said = {
            "Content-Length": str(len(body)),
            "Connection": "close",
            "Location": "http://169.254.169.254/",
        }
        if retry_after is not None:
            said["Retry-After"] = retry_after
        if encoding is not None:
            said["Content-Encoding"] = encoding
        lines = "".join(f"{name}: {value}\r\n" for name, value in said.items())
        self.answer = f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode() + body


@pytest.fixture
async def agent(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Agent]:
    """An agent that serves the task type `noop`."""
    agent = Agent()
    server = await asyncio.start_server(agent.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setattr(http, "URLS", {"noop": f"http://127.0.0.1:{port}/run"})
    async with httpx2.AsyncClient(trust_env=False) as client:
        monkeypatch.setattr(http, "client", client)
        yield agent
    server.close()
    await server.wait_closed()


async def post(payload: Any = None) -> Outcome:
    """Send one task to the agent."""
    claimed = forged("gr-0", attempt=1)
    claimed.payload = json.dumps({} if payload is None else payload)
    return await Runner(http.post).run(claimed)


async def test_the_payload_is_posted_and_the_answer_is_the_result(agent: Agent) -> None:
    agent.will_say(200, b'{"summary": "\xc3\xa9"}')
    outcome = await post({"url": "x", "n": 2**53 + 1})
    assert json.loads(outcome.result or "") == {"summary": "é"}
    ((headers, body),) = agent.asked
    assert headers[""].split()[:2] == ["POST", "/run"]
    assert json.loads(body) == {"url": "x", "n": 2**53 + 1}
    assert headers["content-type"] == "application/json"
    assert (headers["grns-task"], headers["idempotency-key"], headers["grns-attempt"]) == (
        "gr-0",
        "gr-0",
        "1",
    )
    assert len(headers["traceparent"].split("-")) == 4


@pytest.mark.parametrize(("status", "body"), [(200, b""), (201, b"null"), (202, b"[1]"), (204, b"")])
async def test_whatever_is_2xx_is_a_success(agent: Agent, status: int, body: bytes) -> None:
    agent.will_say(status, body)
    assert json.loads((await post()).result or "") == json.loads(body or b"null")


async def test_post_of_a_task_refuses_a_compressed_answer(agent: Agent) -> None:
    """L18: a chunk of it could be a thousand times as large in memory, before anything counts its bytes."""
    agent.will_say(200, gzip.compress(b'{"a": 1}'), encoding="gzip")
    outcome = await post()
    assert (outcome.verb, outcome.error_class) == (Verb.FAIL, "bad_answer")
    ((headers, _),) = agent.asked
    assert headers["accept-encoding"] == "identity"
    agent.will_say(200, b'{"a": 1}', encoding="identity")
    assert json.loads((await post()).result or "") == {"a": 1}


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("0", 0.0), ("99999999", 86_400.0), ("soon", None), ("-5", None), ("", None)],
)
async def test_a_busy_agent_says_when_to_come_again(
    agent: Agent, status: int, header: str, seconds: float | None
) -> None:
    agent.will_say(status, retry_after=header)
    outcome = await post()
    assert (outcome.verb, outcome.error_class) == (Verb.RETRY, f"http_{status}")
    if seconds is not None:
        assert outcome.backoff_seconds == seconds
    else:
        assert 4.0 <= outcome.backoff_seconds <= 6.0


async def test_a_busy_agent_may_name_a_time(agent: Agent) -> None:
    agent.will_say(503, retry_after=format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True))
    assert 50.0 <= (await post()).backoff_seconds <= 60.0
    agent.will_say(429, retry_after="Wed, 21 Oct 2015 07:28:00 GMT")
    assert (await post()).backoff_seconds == 0.0


@pytest.mark.parametrize(
    ("status", "verb"),
    [(500, Verb.RETRY), (502, Verb.RETRY), (400, Verb.FAIL), (401, Verb.FAIL), (404, Verb.FAIL),
     (422, Verb.FAIL), (302, Verb.FAIL)],
)  # fmt: skip
async def test_the_status_decides(agent: Agent, status: int, verb: Verb) -> None:
    agent.will_say(status, b'{"error": "x"}')
    outcome = await post()
    assert (outcome.verb, outcome.error_class) == (verb, f"http_{status}")
    assert len(agent.asked) == 1, "nobody is sent elsewhere"


@pytest.mark.parametrize(
    "body",
    [b"<html>", b"\xff", b'{"a":', b"x" * 300_000, b"[NaN]", rb'"\ud800"'],
    ids=lambda body: str(body[:9]),
)
async def test_an_answer_that_is_no_json_fails_the_task(agent: Agent, body: bytes) -> None:
    agent.will_say(200, body)
    assert (await post()).verb is Verb.FAIL


async def test_an_agent_that_hangs_up_is_asked_again(agent: Agent) -> None:
    agent.answer = b""
    assert (await post()).verb is Verb.RETRY
    agent.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}"
    assert (await post()).verb is Verb.RETRY


async def test_all_tasks_that_run_are_sent_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, everybody = Agent(), asyncio.Barrier(120)
    agent.will_say(200)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await everybody.wait()
        await agent.serve(reader, writer)

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    importlib.reload(http)  # its own client, made for this loop
    async with await asyncio.start_server(serve, "127.0.0.1", 0, backlog=200) as server, http.client:
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setattr(http, "URLS", {"noop": f"http://127.0.0.1:{port}/run"})
        posts = [asyncio.create_task(post()) for _ in range(everybody.parties)]
        done, _ = await asyncio.wait(posts, return_when=asyncio.FIRST_COMPLETED)
        assert {one.result().verb for one in done} == {Verb.SUCCEED}, "none waits for another's connection"
        assert {one.verb for one in await asyncio.gather(*posts)} == {Verb.SUCCEED}
