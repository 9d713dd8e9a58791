"""The pages of docs/ about the doors, followed: their commands are run as they stand there."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import nats
import pytest

from grns import cli
from grns.local import LocalNats
from grns.local.port import free_port
from grns.store import issue, listing
from grns.store.database import Database
from grns.store.webhook import list_webhooks
from tests.counters import begin_here, count_all
from tests.doors.test_letter import body
from tests.doors.test_triage import letter
from tests.harness import ROOT, Fleet, eventually, submit
from tests.test_readme import block
from tests.test_store_kit import FINGERPRINT, fetch, place

pytest_plugins = ["tests.test_store_kit"]

LIMIT_SECONDS = 60
_BASH = shutil.which("bash") or ""
# A command that cannot be done is told: what is asked of the API in vain, and was meant to go well.
_CURL = 'curl() { command curl --fail-with-body "$@" || echo "IN VAIN: $*" >&2; }\n'
_AT_ANY_TIME = ("/abort",)  # it may have ended
# What asks, and has nobody to ask here.
_DESTRUCTIVE = ("dlq redrive", "dlq discard", "issue redrive", "task cancel", "webhook delete", "key revoke")
# What goes on until somebody ends it, or until somebody else has done it: these have tests of their own.
_ENDLESS = ("dev", "events tail", "operation watch")
# What tells by its exit code what it has found; no daemon runs here.
_JUDGING = ("doctor", "workspace isolate")


def blocks(page: str) -> str:
    """Return the shell commands of a page."""
    return "\n".join(re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.S | re.M))


async def test_the_pages_of_the_api(
    fleet: Fleet, database: Database, broker: LocalNats, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(block("python", "# shop.py"))
    port = free_port()
    fleet.start("server", "--api", GRNS_API_PORT=str(port))
    fleet.start("worker", "shop:pool")
    await submit(database, "fetch_page", payload={})  # it has no URL

    async def has_failed() -> bool:
        return bool((await issue.list_issues(database, workspace="default", limit=1)).rows)

    async def is_rejected() -> bool:
        wanted = listing.DeadFilter(listing.MESSAGE)
        page = await listing.list_dead(database, workspace="default", wanted=wanted, limit=1)
        return bool(page.rows)

    await eventually(has_failed, within_seconds=20)
    client = await nats.connect(broker.url)
    await client.publish("cmd.task.execute.v1", b"{no json")
    await client.close()
    await eventually(is_rejected, within_seconds=20)
    for page in ("agents.md", "api.md"):  # the first key comes at the end of this one
        script = blocks(page).replace("8080", str(port)).replace("timeout 3 ", "timeout 1 ")
        said = await asyncio.to_thread(typed_to_bash, _CURL + script)
        vain = [line for line in said.splitlines() if line.startswith("IN VAIN")]
        assert not [line for line in vain if not line.endswith(_AT_ANY_TIME)], said
        assert "unbound variable" not in said
        assert "evt.task." in said or page != "api.md"


def typed_to_bash(script: str) -> str:
    """Run a script; returns all that it has written."""
    done = subprocess.run(
        [_BASH, "-uc", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    return done.stdout


@pytest.fixture
async def town(shared: Database, broker: LocalNats, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A database in which something of everything has gone wrong."""
    monkeypatch.setenv("GRNS_DATABASE_URL", shared.url)
    monkeypatch.setenv("GRNS_NATS_URL", broker.url)
    await begin_here(shared)
    await place(shared, "dead")
    await count_all(shared)
    assert (await asyncio.to_thread(typed, "broker", "apply"))[0] == 0
    return shared


@pytest.mark.parametrize(
    "page", ["filters.md", "pools.md", "operations.md", "explain.md", "access.md", "webhooks.md"]
)
async def test_the_pages_of_the_command_line(
    page: str, town: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mended.json").write_bytes(body(task_id=(await place(town, "queued")).id))
    lines = [line for line in blocks(page).splitlines() if line.startswith("grns ")]
    assert lines
    for line in lines:
        words = await _meant(line, town)
        if words is None:
            continue
        code, printed = await asyncio.to_thread(typed, *words)
        assert code == 0 or " ".join(words[:2]).startswith(_JUDGING), (line, code, printed)


async def _meant(line: str, database: Database) -> list[str] | None:
    """Return the words of a command with what it is about here; None where it is run elsewhere."""
    split = shlex.shlex(line, posix=True, punctuation_chars="<>|&;()")
    split.whitespace_split = True
    words = list(split)[1:]
    for sign in ("<", "|", "&", ";", "(", ")"):
        assert sign not in words, f"a shell takes this for its own: {line}"
    words = words[: words.index(">")] if ">" in words else words
    words = words[: words.index(">>")] if ">>" in words else words
    command = " ".join(words[:2])
    if command.startswith(_ENDLESS):
        return None
    if command == "top":
        return ["top", "--once"]
    if command.startswith(_DESTRUCTIVE):
        words += ["--yes", *(["--detach"] if "--filter" in words or command.startswith("issue") else [])]
    return [await _named(word, database) for word in words]


async def _named(word: str, database: Database) -> str:
    """Return a word with something that there is in the place of what stands for it."""
    if word == "TASK_ID":
        return (await place(database, "dead")).id
    if word == "LETTER_ID":
        return str(await letter(database, content=body(task_id=(await place(database, "queued")).id)))
    if word == "KEY_ID":
        return str((await fetch(database, "select id from grns.api_keys limit 1"))[0]["id"])
    if word == "WEBHOOK_ID":
        return str((await list_webhooks(database, workspace="default", limit=1)).rows[0]["id"])
    if word == "NUMBER":
        return str((await fetch(database, "select max(seq) from grns.webhook_deliveries"))[0]["max"])
    if word == "12":
        return str((await fetch(database, "select max(id) from grns.operations"))[0]["max"])
    return word.replace("FINGERPRINT", FINGERPRINT)


def typed(*words: str) -> tuple[int, str]:
    """Run one command line of grns, in this process; returns its exit code and all that it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        code = cli.run(words)
    return code, printed.getvalue()
