"""Options that say what a task is: its title, description, tags and metadata."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from grns.cli import option
from grns.errors import InvalidInputError

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def label_options(code: str) -> Callable[[FunctionT], FunctionT]:
    """Return a decorator that adds the options; `code` is the code of errors."""

    def decorate(function: FunctionT) -> FunctionT:
        for added in (
            click.option(
                "--metadata",
                metavar="JSON",
                type=option.Checked(_object, name="metadata", code=code),
                help="What other programs say of it: a JSON object, @FILE, or - for standard input.",
            ),
            click.option("--tag", "tags", metavar="TAG", multiple=True, help="A tag, repeatable."),
            click.option("--description", metavar="TEXT", help="What it is about, in several lines."),
            click.option("--title", metavar="TEXT", help="What it is called, in one line."),
        ):
            function = added(function)
        return function

    return decorate


def _object(said: Any) -> Any:
    found = option.read_json(said) if isinstance(said, str) else said
    if not isinstance(found, dict):
        raise InvalidInputError("bad_metadata", "metadata is a JSON object")
    return found
