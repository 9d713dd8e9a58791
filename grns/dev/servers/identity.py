"""Who a server process runs as, because Postgres refuses root."""

import contextlib
import os
import pwd
from dataclasses import dataclass
from pathlib import Path

SEARCH = 0o1
READ_AND_SEARCH = 0o5


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Hold the user and group that the kernel checks files against.

    With `seen_as` the process lives in a user namespace of its own, where its user and group are
    called by those numbers and it has no power beyond owning what `uid` owns.
    """

    uid: int
    gid: int
    seen_as: tuple[int, int] | None = None

    @property
    def switches(self) -> bool:
        """Tell whether a child must change its user to become this identity."""
        return self.uid != os.geteuid()

    def reaches(self, path: Path, *, need: int = READ_AND_SEARCH) -> bool:
        """Tell from the mode bits alone whether this identity can walk to `path` and has `need` there."""
        real = path.resolve()
        return all(self._may(parent, SEARCH) for parent in real.parents) and self._may(real, need)

    def own(self, tree: Path) -> None:
        """Give `tree` with everything in it to this identity, unless its top belongs to it already.

        Only root can give anything away; for others this does nothing.
        """
        if os.geteuid() != 0 or tree.lstat().st_uid == self.uid:
            return
        for directory, names, files in os.walk(tree):
            for name in (*names, *files):
                os.lchown(os.path.join(directory, name), self.uid, self.gid)
        # The top goes last: a walk that was cut short is then walked again at the next start.
        os.lchown(tree, self.uid, self.gid)

    def _may(self, path: Path, need: int) -> bool:
        facts = path.stat()
        shift = 6 if facts.st_uid == self.uid else 3 if facts.st_gid == self.gid else 0
        return (facts.st_mode >> shift) & need == need


def current() -> Identity:
    """Return the identity of this process."""
    return Identity(uid=os.geteuid(), gid=os.getegid())


def nobody() -> Identity:
    """Return the system's unprivileged user."""
    uid, gid = _nobody_ids()
    return Identity(uid=uid, gid=gid)


def disguised() -> Identity:
    """Return this process's own user under the name of nobody, inside a user namespace (Linux)."""
    return Identity(uid=os.geteuid(), gid=os.getegid(), seen_as=_nobody_ids())


def _nobody_ids() -> tuple[int, int]:
    with contextlib.suppress(KeyError):
        entry = pwd.getpwnam("nobody")
        return entry.pw_uid, entry.pw_gid
    return 65534, 65534
