"""`grns init`: a starter project."""

from __future__ import annotations

from pathlib import Path

import click

from grns.cli import failure, option
from grns.cli.group import Command
from grns.dev.starter import pool_name, write_project
from grns.errors import ConflictError

_MEANINGS = {
    "tasks.py": "a pool with one task",
    "test_tasks.py": "its tests, one of them with real servers",
    "pyproject.toml": "what it needs",
    "compose.yml": "PostgreSQL, NATS, the daemons and a worker in containers",
    "Dockerfile": "the image of the daemons and the worker",
    ".env": "passwords of the containers; keep it out of git",
}


@click.command(cls=Command, examples=["grns init shop", "grns init . --pool mail"])
@click.argument("directory", metavar="[DIR]", type=click.Path(path_type=Path, file_okay=False), default=".")
@click.option(
    "--pool", type=option.Token("pool"), help="Name of the pool. Defaults to the name of the directory."
)
def init(directory: Path, pool: str | None) -> None:
    """Write a starter project to DIR, by default here: a pool, its tests, containers.

    It overwrites nothing: if one of its files exists, it writes none.
    """
    pool = pool or pool_name(directory)
    try:
        paths = write_project(directory, pool)
    except ConflictError as error:
        raise failure.hinted(error, "grns init OTHER_DIR") from error
    width = max(len(str(path)) for path in paths)
    for path in paths:
        click.echo(f"{str(path).ljust(width)}  {_MEANINGS.get(path.name, '')}".rstrip())
    click.echo("\nTry it:\n")
    if directory != Path():
        click.echo(f"  cd {directory}")
    click.echo("  python3 -m venv .venv && . .venv/bin/activate")
    click.echo("  pip install --editable '.[dev]'")
    click.echo("  pytest")
    click.echo("\nREADME.md has what comes next.")
