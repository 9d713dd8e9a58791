"""What many tests need: facts to wait for, tasks to submit, processes to run and to end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import nats
import nats.errors
import nats.js.errors
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy

from grns.access.keys import create_key
from grns.dev.servers.secret import write_private
from grns.model.submission import submission
from grns.model.task import STATUS_AFTER
from grns.postgres.database import Database
from grns.settings import Settings, load
from grns.tasks.submit import Submissions, Submitted, prepare

LIMIT_SECONDS = 20.0
# Starting processes costs little but CPU time: on a busy machine this may be long in coming.
START_SECONDS = 60.0
ROOT = Path(__file__).parents[2]

Seen = TypeVar("Seen")


async def eventually(
    look: Callable[[], Awaitable[Seen]], *, within_seconds: float = LIMIT_SECONDS, every: float = 0.02
) -> Seen:
    """Wait until `look` sees something true, and return it; fail with what it saw last."""
    deadline = time.monotonic() + within_seconds
    while not (seen := await look()):
        assert time.monotonic() < deadline, f"not within {within_seconds} s; last seen: {seen!r}"
        await asyncio.sleep(every)
    return seen


def settings_for(database_url: str, nats_url: str = "nats://127.0.0.1:1", **more: Any) -> Settings:
    """Return settings for servers of a test."""
    return load(database_url=database_url, nats_url=nats_url, **more)


def as_role(url: str, role: str, password: str) -> str:
    """Return the URL of the same server and database for another role, or another user of a broker."""
    place = url.rpartition("@")[2].rpartition("//")[2]
    return f"{url.partition('://')[0]}://{role}:{password}@{place}"


async def root_key(database: Database) -> str:
    """Make a key that may do everything, in all workspaces."""
    made, _ = await create_key(database, workspace=None, name="root", scopes=["admin"], actor="cli:ann@desk")
    return made.reveal()


async def shown(database: Database) -> dict[str, str]:
    """Make such a key, and return the header that shows it."""
    return {"Authorization": f"Bearer {await root_key(database)}"}


async def put_key(database: Database, directory: Path) -> None:
    """Put such a key where `grns dev` has its own."""
    (directory / ".grns").mkdir()
    write_private(directory / ".grns" / "api_key", await root_key(database))


async def submit(database: Database, task_type: str = "noop", **fields: Any) -> Submitted:
    """Create one task."""
    prepared = prepare(submission(task_type=task_type, **fields), load().payload_limits)
    return await Submissions(database, batch_limit=10).submit(prepared)


async def submit_many(database: Database, count: int, **fields: Any) -> list[str]:
    """Create many equal tasks and return their ids."""
    limits = load().payload_limits
    fields.setdefault("task_type", "noop")
    prepared = [prepare(submission(**fields), limits) for _ in range(count)]
    answers = await Submissions(database, batch_limit=10).submit_many(prepared)
    return [answer.id for answer in answers if isinstance(answer, Submitted)]


async def status_of(database: Database, task_id: str) -> str:
    """Return where a task is."""
    rows = await database.run("read_statuses", [task_id], "default")
    return str(rows[0]["status"]) if rows else "missing"


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of them does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


class Fleet:
    """Processes of grns, started and ended by a test; none of them outlives it."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self._directory = directory
        self._environment = environment
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start `grns <arguments>`; its log goes to a file of its own."""
        log = self._directory / f"{len(self.processes)}-{arguments[0]}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "grns", *arguments],
                env=os.environ | self._environment | environment,
                cwd=self._directory,
                stdout=output,
                stderr=output,
            )
        self.processes.append(process)
        return process

    def log_of(self, process: subprocess.Popen[bytes]) -> str:
        """Return what a process has written so far."""
        place = self.processes.index(process)
        return next(self._directory.glob(f"{place}-*.log")).read_text(errors="replace")

    def facts_of(self, process: subprocess.Popen[bytes], event: str = "") -> list[dict[str, Any]]:
        """Return the facts that a process (or its heartbeat) has logged, perhaps only those of one name."""
        facts: list[dict[str, Any]] = []
        for line in self.log_of(process).splitlines():
            # A worker and its heartbeat process write into one file, and may share a line.
            while line.startswith("{") and line.endswith("}"):
                fact, end = json.JSONDecoder().raw_decode(line)
                facts.append(fact)
                line = line[end:]
        return [fact for fact in facts if event in ("", fact["event"])]

    def end(self, processes: Sequence[subprocess.Popen[bytes]] | None = None) -> None:
        """End processes, by force where they do not go."""
        chosen = self.processes if processes is None else processes
        for process in chosen:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.send_signal(signal.SIGTERM)
        for process in chosen:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


TERMINAL_KINDS = ("evt.task.completed", "evt.task.failed", "evt.task.dead", "evt.task.cancelled")

# Where a task is after an event, and where it may have been before it.
_STEPS: dict[str, tuple[str, set[str | None]]] = {
    "queued": ("queued", {None, "waiting", "retry_wait", "dead", "failed", "cancelled"}),
    "waiting": ("waiting", {None}),
    "claimed": ("running", {"queued", "retry_wait"}),
    "completed": ("succeeded", {"running"}),
    "retry_scheduled": ("retry_wait", {"running"}),
    "snoozed": ("retry_wait", {"running"}),
    "failed": ("failed", {"running"}),
    "dead": ("dead", {"running"}),
    "lease_expired": ("queued", {"running"}),
    "released": ("queued", {"running"}),
    "cancelled": ("cancelled", {"queued", "retry_wait", "waiting", "running"}),
}

_ENDED = ("succeeded", "failed", "dead", "cancelled")
# It says so when it comes round, which may be after all else has ended.
_OF_THE_COUNTER = "evt.issue.changed"


def rebuilt(kinds: Sequence[str]) -> str | None:
    """Return the status that a task's events lead to; fails at a step that nobody may take."""
    status: str | None = None
    for kind in kinds:
        after, before = _STEPS[kind.rpartition(".")[2]]
        assert status in before, (kinds, status, kind)
        status = after
    return status


async def ready(database: Database, *workers: subprocess.Popen[bytes]) -> None:
    """Wait until these workers have made themselves known."""
    wanted = {worker.pid for worker in workers}

    async def are_known() -> bool:
        async with database.connection() as connection:
            rows = await connection.fetch("select pid from grns.workers where stopped_at is null")
        assert all(worker.poll() is None for worker in workers), "a worker ended at its start"
        return wanted <= {row["pid"] for row in rows}

    await eventually(are_known, within_seconds=START_SECONDS)


async def rows_of(database: Database, task_ids: Sequence[str]) -> dict[str, Any]:
    """Return the rows of tasks, by id."""
    async with database.connection() as connection:
        rows = await connection.fetch("select * from grns.tasks where id = any($1)", list(task_ids))
    return {row["id"]: row for row in rows}


async def events_of(database: Database, task_ids: Sequence[str]) -> dict[str, list[Any]]:
    """Return the events that moved tasks, by id, in the order of the log."""
    async with database.connection() as connection:
        rows = await connection.fetch(
            "select * from grns.events where task_id = any($1) and kind = any($2) order by seq",
            list(task_ids), list(STATUS_AFTER),
        )  # fmt: skip
    found: dict[str, list[Any]] = {task_id: [] for task_id in task_ids}
    for row in rows:
        found[row["task_id"]].append(row)
    return found


async def all_in(
    database: Database, task_ids: Sequence[str], status: str = "succeeded", *, within_seconds: float
) -> dict[str, Any]:
    """Wait until all these tasks have a status; return their rows."""

    async def look() -> dict[str, Any]:
        rows = await rows_of(database, task_ids)
        late = {task_id: row for task_id, row in rows.items() if row["status"] != status}
        return {} if late or len(rows) < len(task_ids) else rows

    deadline = time.monotonic() + within_seconds
    while not (rows := await look()):
        if time.monotonic() > deadline:
            found = await rows_of(database, task_ids)
            others = [(row["id"], row["status"], row["attempt"]) for row in found.values()]
            late = [other for other in others if other[1] != status]
            raise AssertionError(f"not {status} within {within_seconds} s: {len(late)}, as {late[:5]}")
        await asyncio.sleep(0.02)
    return rows


async def check_stories(database: Database, task_ids: Sequence[str]) -> dict[str, list[Any]]:
    """Check what must hold of every ended task: one ending, told last, and no transition untold."""
    stories = await events_of(database, task_ids)
    rows = await rows_of(database, task_ids)
    for task_id, events in stories.items():
        kinds = [event["kind"] for event in events]
        versions = [event["version"] for event in events]
        assert versions == list(range(1, rows[task_id]["version"] + 1)), (task_id, kinds, versions)
        endings = [kind for kind in kinds if kind in TERMINAL_KINDS]
        assert endings == [kinds[-1]], (task_id, kinds)
        row = rows[task_id]
        assert row["status"] == rebuilt(kinds), (task_id, kinds, row["status"])
        assert row["attempt"] == kinds.count("evt.task.claimed"), (task_id, kinds, row["attempt"])
        assert row["attempt"] - row["uncounted_attempts"] <= row["attempt_limit"], (task_id, kinds)
    return stories


@dataclass(frozen=True)
class Heard:
    """One message of a stream, as any subscriber sees it."""

    seq: int
    subject: str
    headers: dict[str, str]
    body: dict[str, Any]


def _heard(message: Msg) -> Iterator[Heard]:
    return envelopes(
        message.metadata.sequence.stream, message.subject, dict(message.headers or {}), message.data
    )


def envelopes(seq: int, subject: str, headers: dict[str, str], body: bytes) -> Iterator[Heard]:
    """Return what a message says: of several envelopes, each with the id and the task of its own."""
    lines = body.split(b"\n") if b"}\n{" in body else [body or b"{}"]
    for line in lines:
        document = json.loads(line)
        if len(lines) > 1:
            own = {"Nats-Msg-Id": document["message_id"], "Grns-Task": document["payload"]["task_id"]}
            if "version" in document:
                own |= {"Grns-Version": str(document["version"]), "Grns-Seq": str(document["seq"])}
            headers = headers | own
        yield Heard(seq, subject, headers, document)


async def read_stream(url: str, stream: str) -> list[Heard]:
    """Read all that a stream holds, with plain nats-py."""
    client = await nats.connect(url)
    try:
        jetstream = client.jetstream()
        info = await jetstream.stream_info(stream)
        state = info.state
        if not state.messages:
            return []
        if info.config.retention == RetentionPolicy.WORK_QUEUE:  # no consumer may read it without taking
            return [heard async for heard in _stored(jetstream, stream, state.first_seq, state.last_seq)]
        config = ConsumerConfig(ack_policy=AckPolicy.NONE, inactive_threshold=30.0)
        reader = await jetstream.pull_subscribe("", stream=stream, config=config)
        heard: list[Heard] = []
        while not heard or heard[-1].seq < state.last_seq:
            for message in await reader.fetch(500, timeout=5.0):
                heard += _heard(message)
        return heard
    finally:
        await client.close()


async def _stored(jetstream: JetStreamContext, stream: str, first: int, last: int) -> AsyncIterator[Heard]:
    for seq in range(first, last + 1):
        with suppress(nats.js.errors.NotFoundError):
            found = await jetstream.get_msg(stream, seq)
            for heard in envelopes(seq, found.subject or "", dict(found.headers or {}), found.data or b""):
                yield heard


async def manage(url: str, operation: str, request: dict[str, Any] | None = None) -> dict[str, Any]:
    """Do what an administrator of the broker does, and return the broker's answer."""
    client = await nats.connect(url)
    try:
        body = b"" if request is None else json.dumps(request).encode()
        answer = await client.request(f"$JS.API.{operation}", body, timeout=5.0)
    finally:
        await client.close()
    found: dict[str, Any] = json.loads(answer.data)
    assert "error" not in found, found
    return found


async def is_relayed(database: Database) -> bool:
    """Tell whether the relay is done with everything that was ever committed."""
    async with database.connection() as connection:
        return bool(
            await connection.fetchval(
                "select c.low >= s.last_value from grns.relay_cursor c, grns.events_seq s"
            )
        )


async def check_stream(database: Database, url: str, *, within_seconds: float = LIMIT_SECONDS) -> None:
    """Check that all committed events have been published, nothing else, and first copies in order."""
    await eventually(lambda: is_relayed(database), within_seconds=within_seconds)
    latest: dict[str, int] = {}
    seen: set[str] = set()
    for heard in await read_stream(url, "GRNS_EVT"):
        message_id, kind = heard.headers["Nats-Msg-Id"], heard.body["kind"]
        assert heard.body["message_id"] == message_id
        if message_id in seen or kind == _OF_THE_COUNTER:
            continue
        seen.add(message_id)
        if kind in STATUS_AFTER:
            task_id = heard.headers["Grns-Task"]
            assert int(heard.headers["Grns-Version"]) == latest.get(task_id, 0) + 1, task_id
            latest[task_id] = int(heard.headers["Grns-Version"])
    assert seen == await committed(database, "evt.")


async def check_everything(database: Database, url: str, *, has_lost: bool = False) -> dict[str, list[Any]]:
    """Check what must hold at the end of every test, of every task that there is; return their stories.

    Where the broker `has_lost` what it held, it has to hold every event and dead letter all the same,
    but first copies may have come out of order.
    """
    async with database.connection() as connection:
        rows = await connection.fetch("select id, status from grns.tasks")
    open_ones = [(row["id"], row["status"]) for row in rows if row["status"] not in _ENDED]
    assert not open_ones, open_ones
    stories = await check_stories(database, [row["id"] for row in rows])
    if has_lost:
        await eventually(lambda: _holds_all(database, url), every=0.2)
    else:
        await check_stream(database, url)
    return stories


async def _holds_all(database: Database, url: str) -> bool:
    for stream, kind in (("GRNS_EVT", "evt."), ("GRNS_DLQ", "dlq.")):
        try:
            heard = await read_stream(url, stream)
        except nats.errors.Error:  # there is no stream yet
            return False
        if not await committed(database, kind) <= {one.headers["Nats-Msg-Id"] for one in heard}:
            return False
    return True


async def committed(database: Database, kind: str) -> set[str]:
    """Return the message ids of all in the log whose kind begins so, but for what counters come to say."""
    async with database.connection() as connection:
        rows = await connection.fetch(
            "select message_id from grns.events where left(kind, 4) = $1 and kind <> $2",
            kind,
            _OF_THE_COUNTER,
        )
    return {str(row["message_id"]) for row in rows}


class Load:
    """Tasks that go on coming, at least so many of them, until somebody says that it is enough."""

    def __init__(self, database: Database, *, least: int, part: int = 25, **fields: Any) -> None:
        self._database = database
        self._least = least
        self._part = part
        self._fields = fields
        self._is_enough = False
        self._run = asyncio.create_task(self._submit())
        self.ids: list[str] = []

    async def reaches(self, count: int) -> None:
        """Wait until so many tasks have been submitted."""

        async def look() -> bool:
            return len(self.ids) >= count

        await eventually(look)

    async def end(self) -> list[str]:
        """Submit no more, and return the ids of all."""
        self._is_enough = True
        await self._run
        return self.ids

    async def _submit(self) -> None:
        most = 10 * self._least
        while len(self.ids) < self._least or not self._is_enough:
            assert len(self.ids) < most, "what should end the load has not happened"
            self.ids += await submit_many(self._database, self._part, **self._fields)
            await asyncio.sleep(0.1)


def lines_with(journal: Sequence[str], word: str, task_id: str | None = None) -> list[str]:
    """Return the journal's lines that begin with a word, perhaps about one task only."""
    return [line for line in journal if line.split()[0] == word and task_id in (None, line.split()[1])]


def _state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def is_alive(pid: int) -> bool:
    """Tell whether a process is there and not a zombie."""
    return _state_of(pid) not in ("Z", "X")


def is_stopped(pid: int) -> bool:
    """Tell whether a process is frozen by a signal."""
    return _state_of(pid) == "T"


def children_of(pid: int) -> list[int]:
    """Return the heartbeat processes that a worker has now."""
    children = Path(f"/proc/{pid}/task").glob("*/children")
    found = [int(child) for children_of in children for child in children_of.read_text().split()]
    return [child for child in found if is_alive(child)]
