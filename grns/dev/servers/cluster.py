"""The data directory of Postgres: a copy of a cached template, which initdb creates once."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from grns.dev.servers.identity import Identity
from grns.dev.servers.port import HOST
from grns.dev.servers.process import Process
from grns.dev.servers.secret import random_secret, write_private

OWNER = "grns"
SUPERUSER = "postgres"
DATABASE = "grns"
# In the data directory, so that both appear and vanish together.
PASSWORDS = "grns-passwords.json"

# Part of the template's name: raise it when `_initialize` changes.
_RECIPE = 3
_TIMEOUT_SECONDS = 120.0
# The owner is not a superuser, so that it cannot run programs on the server or read its files. It cannot
# create roles either, which before PostgreSQL 16 is equivalent; hence the role of tenants exists already.
_ROLES = f"""\
create role {OWNER} login createdb noinherit;
create role grns_tenant nologin;
grant grns_tenant to {OWNER};
create database {DATABASE} owner {OWNER};
"""
# In PostgreSQL 15, a role without inheritance does not get the rights of a database's owner.
_RIGHTS = f"alter schema public owner to {OWNER};\n"
_ACCESS = f"""\
host all all {HOST}/32 scram-sha-256
host replication all {HOST}/32 scram-sha-256
"""
# For single-user mode on a draft, which is synced afterwards.
_BRIEFLY = ("-F", "-c", "shared_buffers=1MB")


@dataclass(frozen=True, kw_only=True)
class Installation:
    """The directory of Postgres' programs and the user that runs them."""

    bin_directory: Path
    identity: Identity

    def program(self, name: str) -> str:
        """Return the full path of a program."""
        return str(self.bin_directory / name)

    def run(self, name: str, *arguments: str, log: Path, stdin: bytes = b"") -> None:
        """Run a program to its end. Raises: LocalServerError: it failed."""
        process = Process([self.program(name), *arguments], log=log, identity=self.identity)
        process.complete(stdin=stdin, timeout_seconds=_TIMEOUT_SECONDS)

    def fingerprint(self, *, log: Path) -> str:
        """Return a name for this build of Postgres, made of its version and size."""
        with tempfile.NamedTemporaryFile(dir=log.parent, prefix="version-") as file:
            self.run("postgres", "--version", log=Path(file.name))
            version = Path(file.name).read_text().strip()
        size = (self.bin_directory / "postgres").stat().st_size
        digest = hashlib.sha256(f"{version} {size}".encode()).hexdigest()[:12]
        number = re.search(r"\d+(\.\d+)*", version)
        return f"{number[0] if number else 'unknown'}-{digest}"


def create_cluster(installation: Installation, cluster: Path, *, log: Path) -> None:
    """Create the data directory `cluster`: UTF-8, locale C, a database `grns` with an owner of that name.

    It appears complete and synced, or not at all. Each role gets a random password of this cluster, in the
    file PASSWORDS, before a server listens; the template has none. Works without a cache too.

    Raises:
        LocalServerError: initdb failed.
    """
    for remnant in cluster.parent.glob(f"{cluster.name}-*"):  # of a process that was killed
        shutil.rmtree(remnant, ignore_errors=True)
    draft = Path(tempfile.mkdtemp(prefix=f"{cluster.name}-", dir=cluster.parent))
    try:
        with _template_of(installation, log=log) as template:
            if template is None or not _copy(template, draft):
                installation.identity.own(draft)
                _initialize(installation, draft, log=log)
                if template is not None:
                    with contextlib.suppress(OSError):
                        _publish(template, draft)
        draft.chmod(0o700)
        installation.identity.own(draft)
        _set_passwords(installation, draft, log=log)
        _sync(draft)
        draft.rename(cluster)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


@contextlib.contextmanager
def _template_of(installation: Installation, *, log: Path) -> Iterator[Path | None]:
    """Yield the path of the template under a lock; None if there is no cache."""
    with contextlib.ExitStack() as stack:
        try:
            templates = _user_cache() / "templates"
            templates.mkdir(parents=True, exist_ok=True)
            name = f"{installation.fingerprint(log=log)}-{_RECIPE}"
            lock = stack.enter_context((templates / f"{name}.lock").open("a"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:
            yield None
            return
        yield templates / name


def _user_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base, "grns")
    try:
        return Path.home() / ".cache" / "grns"
    except RuntimeError as error:
        raise FileNotFoundError("this user has no home directory") from error


def _copy(template: Path, draft: Path) -> bool:
    if not template.is_dir():
        return False
    try:
        _copy_tree(template, draft)
    except OSError:  # a damaged template
        shutil.rmtree(template, ignore_errors=True)
        shutil.rmtree(draft)
        draft.mkdir(mode=0o700)
        return False
    return True


def _copy_tree(source: Path, target: Path) -> None:
    shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, copy_function=shutil.copy)


def _publish(template: Path, source: Path) -> None:
    """Make the template appear at once, complete and synced. Raises OSError if it cannot be written."""
    with tempfile.TemporaryDirectory(prefix=f".{template.name}-", dir=template.parent) as temporary:
        draft = Path(temporary, "draft")
        _copy_tree(source, draft)
        _sync(draft)
        draft.rename(template)


def _sync(tree: Path) -> None:
    """Write every file and directory of `tree` to disk."""
    if sys.platform == "linux":
        # Starts to write all files, so that the second walk waits half as long.
        _each(tree, lambda descriptor: os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED))
    _each(tree, os.fsync)


def _each(tree: Path, act: Callable[[int], None]) -> None:
    for directory, _, files in os.walk(tree):
        for name in (*files, "."):
            path = os.path.join(directory, name)
            if os.path.islink(path):
                continue
            descriptor = os.open(path, os.O_RDONLY)
            try:
                act(descriptor)
            finally:
                os.close(descriptor)


def _initialize(installation: Installation, directory: Path, *, log: Path) -> None:
    installation.run(
        "initdb",
        *("--pgdata", str(directory), "--username", SUPERUSER, "--auth=reject"),
        *("--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"),
        log=log,
    )
    (directory / "pg_hba.conf").write_text(_ACCESS)
    _run_single(installation, directory, _ROLES, log=log)
    _run_single(installation, directory, _RIGHTS, database=DATABASE, log=log)


def _set_passwords(installation: Installation, directory: Path, *, log: Path) -> None:
    passwords = {role: random_secret() for role in (OWNER, SUPERUSER)}
    sql = "".join(f"alter role {role} password '{password}';\n" for role, password in passwords.items())
    _run_single(installation, directory, sql, log=log)
    write_private(directory / PASSWORDS, json.dumps(passwords))
    installation.identity.own(directory / PASSWORDS)


def _run_single(
    installation: Installation, directory: Path, sql: str, *, database: str = "postgres", log: Path
) -> None:
    """Run SQL, one statement per line, in single-user mode: no server listens."""
    arguments = ("--single", *_BRIEFLY, "-D", str(directory), database)
    installation.run("postgres", *arguments, log=log, stdin=sql.encode())
