"""What is costly to make and the same for every run: kept in the user's cache directory."""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

SYSTEM_CACHE = Path("/var/cache/grns")


def user_cache() -> Path:
    """Return grns' directory in the user's cache (it need not exist); raises OSError without a home."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base, "grns")
    try:
        return Path.home() / ".cache" / "grns"
    except RuntimeError as error:
        raise FileNotFoundError("this user has no home directory") from error


def publish(target: Path, fill: Callable[[Path], None]) -> None:
    """Make the directory `target` appear at once, complete and on disk, filled by `fill(directory)`.

    When another process has published it meanwhile, theirs stays. Raises OSError when the place
    cannot be written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as temporary:
        draft = Path(temporary, "draft")
        draft.mkdir()
        fill(draft)
        sync(draft)
        with contextlib.suppress(OSError):
            draft.rename(target)
    if not target.is_dir():
        raise FileNotFoundError(target)


def copy_tree(source: Path, target: Path) -> None:
    """Copy the directory `source` over the directory `target`, modes included."""
    shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, copy_function=shutil.copy)


def sync(tree: Path) -> None:
    """Bring every file and directory of `tree` to disk."""
    if sys.platform == "linux":
        # Begins to write all files at once, so that the second walk waits half as long.
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
