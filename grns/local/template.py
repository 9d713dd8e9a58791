"""The first state of a Postgres data directory: copied from a cached template, else made by initdb."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from grns.local.cache import copy_tree, publish, sync, user_cache
from grns.local.installation import Installation
from grns.local.lock import queued

USER = "grns"
DATABASE = "grns"

# Part of the template's name: raise it when `_initialize` makes something else than before.
_RECIPE = 1


def lay_down(installation: Installation, cluster: Path, *, log: Path) -> None:
    """Make the data directory `cluster`: UTF-8, locale C, trust, superuser `grns`, database `grns`.

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
        sync(draft)
        installation.identity.own(draft)
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
        *("--pgdata", str(directory), "--username", USER, "--auth=trust"),
        *("--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"),
        log=log,
    )
    installation.run(
        "postgres",
        *("--single", "-D", str(directory), "postgres"),
        log=log,
        stdin=f"create database {DATABASE};\n".encode(),
    )
