"""The first state of a Postgres data directory: copied from a cached template, else made by initdb."""

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from grns.dev.servers.cache import copy_tree, publish, sync, user_cache
from grns.dev.servers.installation import Installation
from grns.dev.servers.lock import queued
from grns.dev.servers.port import HOST
from grns.dev.servers.secret import random_secret, write_private

OWNER = "grns"
SUPERUSER = "postgres"
DATABASE = "grns"
# In the cluster's directory, so that the two appear and vanish together.
PASSWORDS = "grns-passwords.json"

# Part of the template's name: raise it when `_initialize` makes something else than before.
_RECIPE = 3

# The owner runs no programs on the server and reads no files of it: it is not a superuser. Nor may it create
# roles, which before PostgreSQL 16 amounts to the same; the role of tenants is hence there already.
_ROLES = f"""\
create role {OWNER} login createdb noinherit;
create role grns_tenant nologin;
grant grns_tenant to {OWNER};
create database {DATABASE} owner {OWNER};
"""
# PostgreSQL 15 does not give the rights of a database's owner to a role that inherits none.
_RIGHTS = f"alter schema public owner to {OWNER};\n"
_ACCESS = f"""\
host all all {HOST}/32 scram-sha-256
host replication all {HOST}/32 scram-sha-256
"""
# For the moment in which single-user mode runs on a draft, which is brought to disk afterwards.
_BRIEFLY = ("-F", "-c", "shared_buffers=1MB")


def lay_down(installation: Installation, cluster: Path, *, log: Path) -> None:
    """Create the data directory `cluster`: UTF-8, locale C, database `grns` with an owner of that name.

    Each role has a random password of this cluster, in the file PASSWORDS. Passwords are set before any
    server listens, so that no connection ever succeeds without one; the template has none.

    It appears complete and on disk or not at all. Takes the cached template of this build of
    Postgres, and saves one when there is none; works without the cache when that cannot be written.
    Raises LocalServerError when initdb fails.
    """
    for remnant in cluster.parent.glob(f"{cluster.name}-*"):  # of a process killed in the middle
        shutil.rmtree(remnant, ignore_errors=True)
    draft = Path(tempfile.mkdtemp(prefix=f"{cluster.name}-", dir=cluster.parent))
    try:
        with _template_of(installation, log=log) as template:
            if template is None or not _copied(template, draft):
                installation.identity.own(draft)
                _initialize(installation, draft, log=log)
                if template is not None:
                    with contextlib.suppress(OSError):
                        publish(template, lambda target: copy_tree(draft, target))
        draft.chmod(0o700)
        installation.identity.own(draft)
        _set_passwords(installation, draft, log=log)
        sync(draft)
        draft.rename(cluster)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


@contextlib.contextmanager
def _template_of(installation: Installation, *, log: Path) -> Iterator[Path | None]:
    """Give the place of the template while nobody else makes one, or None when there is no cache."""
    with contextlib.ExitStack() as stack:
        try:
            cache = user_cache() / "templates"
            cache.mkdir(parents=True, exist_ok=True)
            name = f"{installation.fingerprint(log=log)}-{_RECIPE}"
            stack.enter_context(queued(cache / f"{name}.lock"))
        except OSError:
            yield None
            return
        yield cache / name


def _copied(template: Path, draft: Path) -> bool:
    if not template.is_dir():
        return False
    try:
        copy_tree(template, draft)
    except OSError:  # a template damaged by somebody's cleaning is as good as none
        shutil.rmtree(template, ignore_errors=True)
        shutil.rmtree(draft)
        draft.mkdir(mode=0o700)
        return False
    return True


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
    """Run SQL, one statement a line, in single-user mode: nothing listens meanwhile."""
    arguments = ("--single", *_BRIEFLY, "-D", str(directory), database)
    installation.run("postgres", *arguments, log=log, stdin=sql.encode())
