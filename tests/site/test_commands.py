"""What pages tell somebody to type, one command after the other: each is run as it stands there."""

from __future__ import annotations

import asyncio
import contextlib
import io
import shlex
from pathlib import Path

import pytest

from grns import cli
from grns.dev.servers import LocalNats
from grns.model.json import Limits
from grns.postgres.database import Database
from grns.schedules.model import schedule_spec
from grns.schedules.service import put
from grns.webhooks.service import list_webhooks
from tests.dead_letters.test_message import body
from tests.dead_letters.test_triage import letter
from tests.site.page import commands, names
from tests.support.aggregators import begin_here, count_all
from tests.support.store import FINGERPRINT, fetch, place

# The pages of which all commands are run here.
TYPED = (
    "access.md",
    "explain.md",
    "filters.md",
    "labels.md",
    "log.md",
    "logs.md",
    "operations.md",
    "pools.md",
    "triage.md",
    "upgrade.md",
    "webhooks.md",
    *(name for name in names() if name.startswith("runbooks/") and commands(name)),
)
# What asks, and has nobody to ask here.
_DESTRUCTIVE = (
    "task redrive", "task discard", "task cancel", "issue redrive", "dlq discard", "webhook delete",
    "admin key revoke",
)  # fmt: skip
# What goes on until somebody ends it, or until somebody else has done it: these have tests of their own.
_ENDLESS = ("dev", "events replay", "events tail", "operation watch")
# What tells by its exit code what it has found; no daemon runs here.
_JUDGING = ("doctor", "workspace isolate")


@pytest.fixture
async def town(shared: Database, broker: LocalNats, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A database in which something of everything has gone wrong."""
    monkeypatch.setenv("GRNS_DATABASE_URL", shared.url)
    monkeypatch.setenv("GRNS_NATS_URL", broker.url)
    await begin_here(shared)
    await place(shared, "dead")
    await count_all(shared)
    assert (await asyncio.to_thread(typed, "admin", "broker", "apply"))[0] == 0
    return shared


@pytest.mark.parametrize("page", TYPED)
async def test_the_pages_of_the_command_line(
    page: str, town: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corrected.json").write_bytes(body(task_id=(await place(town, "queued")).id))
    lines = commands(page)
    assert lines
    for line in lines:
        words = await _meant(line, town)
        if words is None:
            continue
        if words[:2] == ["pool", "resume"]:  # a page may assume that somebody has paused it
            await asyncio.to_thread(typed, "pool", "pause", *words[2:])
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
    if " ".join(words).startswith(_DESTRUCTIVE):
        words += ["--yes", *(["--detach"] if "--filter" in words or command.startswith("issue") else [])]
    return [await _named(word, database) for word in words]


async def _named(word: str, database: Database) -> str:
    """Return a word with something that there is in the place of what stands for it."""
    if word == "TASK_ID":
        return (await place(database, "dead")).id
    if word == "MESSAGE_ID":
        return str(await letter(database, content=body(task_id=(await place(database, "queued")).id)))
    if word == "KEY_ID":
        return str((await fetch(database, "select id from grns.api_keys limit 1"))[0]["id"])
    if word == "NAME":
        spec = schedule_spec(name="daily", task_type="noop", agent_type="worker", cron="0 9 * * *")
        return (await put(database, spec, workspace="default", actor="tests", limits=Limits())).name
    if word == "WEBHOOK_ID":
        return str((await list_webhooks(database, workspace="default", limit=1)).rows[0].id)
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
