"""`grns schema …`: the schemas of all messages."""

from __future__ import annotations

from pathlib import Path

import click

from grns.cli import failure
from grns.cli.group import Group
from grns.text import counted


@click.group(cls=Group)
def schema() -> None:
    """Write the schemas of all messages."""


@schema.command()
@click.argument(
    "directory", metavar="[DIR]", type=click.Path(file_okay=False, path_type=Path), default="schemas"
)
@click.option("--check", "is_check", is_flag=True, help="Write nothing. Exit with 1 if a file is stale.")
def export(directory: Path, is_check: bool) -> None:
    """Write a JSON Schema for each kind and an AsyncAPI document to DIR (schemas)."""
    from grns.schemas import export as exporter

    if not is_check:
        for name in exporter.write(directory):
            click.echo(directory / name)
        failure.note(f"{directory} is up to date")
        return
    found = exporter.stale(directory)
    for name in found:
        click.echo(directory / name)
    if found:
        failure.say(f"{directory}: {counted(len(found), 'stale file')}", f"grns schema export {directory}")
        raise click.exceptions.Exit(failure.FAILED)
    failure.note(f"{directory} is up to date")
