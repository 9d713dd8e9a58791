"""A starter project: what `grns init` writes."""

from __future__ import annotations

import re
from importlib import metadata, resources
from pathlib import Path

import orjson

from grns.dev.servers.secret import random_secret, write_private
from grns.errors import ConflictError

_ENVIRONMENT = ".env"
_LONGEST_NAME = 64


def write_project(directory: Path, pool: str) -> list[Path]:
    """Write a starter project and return its files.

    Raises `ConflictError` and writes nothing if one of its files exists already.
    """
    values = {
        "__pool__": pool,
        "__runtime__": requirement("api"),
        "__development__": requirement("dev"),
    }
    texts = {}
    for template in resources.files("grns.dev.starter").joinpath("template").iterdir():
        text = template.read_text(encoding="utf-8")
        for token, value in values.items():
            text = text.replace(token, value)
        texts[directory / template.name.removesuffix(".template")] = text
    # Names begin with a letter: NATS reads a value that begins with a digit as a number.
    passwords = [f"{name}_PASSWORD=p{random_secret()}\n" for name in ("POSTGRES", "NATS")]
    environment = directory / _ENVIRONMENT
    taken = [path.name for path in sorted([*texts, environment]) if path.exists()]
    if taken:
        raise ConflictError(f"{directory.absolute()} has {', '.join(taken)} already; nothing was written")
    directory.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    write_private(environment, "".join(passwords))
    return sorted([*texts, environment])


def pool_name(directory: Path) -> str:
    """Return a pool's name made of the directory's: `my.shop` becomes `my-shop`."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", directory.absolute().name).strip("-")[:_LONGEST_NAME]
    return name if name and name != "instance" else "app"


def requirement(extra: str) -> str:
    """Return what installs this grns elsewhere, as in a `pyproject.toml`: `grns[dev]==1.0`.

    If grns was installed from a repository or a directory, pip has kept where from (PEP 610).
    """
    package = metadata.distribution("grns")
    origin = orjson.loads(package.read_text("direct_url.json") or "{}")
    if not origin:
        return f"grns[{extra}]=={package.version}"
    commit = origin.get("vcs_info")
    url = f"{commit['vcs']}+{origin['url']}@{commit['commit_id']}" if commit else origin["url"]
    return f"grns[{extra}] @ {url}"
