"""Errors of commands: one sentence, a command that helps, and an exit code."""

from __future__ import annotations

import fcntl
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from grns.cli.group import CliState
from grns.errors import ConflictError, DriftError, GrnsError, NotFoundError, SettingsError, UnavailableError
from grns.model.api_key import redacted
from grns.model.text import bounded, safe

FAILED, USAGE, NOT_FOUND, CONFLICT, INTERRUPTED, READER_GONE, TERMINATED = 1, 2, 3, 4, 130, 141, 143
_LONGEST = 500

_HINTS: tuple[tuple[type[GrnsError], str], ...] = (
    (NotFoundError, "grns task list"),
    (ConflictError, "grns task show ID"),
    (DriftError, "grns admin broker info"),
    (UnavailableError, "grns admin config show --origin"),
)


def guarded(work: Callable[[], int], state: CliState) -> int:
    """Do the work and return its exit code, or report the error and return its code."""
    try:
        code = work()
        sys.stdout.flush()
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return USAGE
    except (KeyboardInterrupt, click.Abort, EOFError):
        return INTERRUPTED
    except BrokenPipeError:
        _silence()
        return READER_GONE
    except Exception as error:
        if "KeyboardInterrupt" in str(
            error
        ):  # pydantic makes an error of one that comes while it builds a model
            return INTERRUPTED
        if state.debug:
            traceback.print_exception(error)
        return _report(error, state)
    return code


def hinted(error: GrnsError, command: str) -> GrnsError:
    """Attach the command that helps to an error, and return it."""
    error.add_note(command)
    return error


@contextmanager
def hinting(*, missing: str | None = None, conflict: str | None = None) -> Iterator[None]:
    """Add the command that helps to a `NotFoundError` or `ConflictError` that has none."""
    try:
        yield
    except (NotFoundError, ConflictError) as error:
        hint = missing if isinstance(error, NotFoundError) else conflict
        if hint is not None and not getattr(error, "__notes__", ()):
            error.add_note(hint)
        raise


def print_error(sentence: str, hint: str | None = None) -> None:
    """Write an error, and the command to try next, to stderr."""
    prefix = click.style("grns: ", fg="red", bold=True)
    click.echo(prefix + safe(redacted(sentence)), err=True, color=_color())
    if hint:
        click.echo(f"  try: {bounded(safe(redacted(hint)), _LONGEST // 2)}", err=True)


def note(sentence: str) -> None:
    """Write a note for people to stderr."""
    click.echo(safe(sentence), err=True)


def _report(error: Exception, state: CliState) -> int:
    if isinstance(error, click.ClickException):
        print_error(_coded(error, " ".join(error.format_message().split())), _help_of(error))
        return error.exit_code
    if isinstance(error, SettingsError) and (flag := _flag_in(str(error), state)):
        print_error(str(error).replace(f"GRNS_{flag.upper()}", f"--{flag.replace('_', '-')}"), "grns --help")
        return error.exit_code
    if isinstance(error, GrnsError):
        print_error(_coded(error, str(error)), hint_of(error))
        return error.exit_code
    if isinstance(error, OSError) and error.filename is not None:
        print_error(f"{error.filename}: {error.strerror}")
        return FAILED
    print_error(f"this is a bug in grns: {type(error).__name__}: {error}", "the same command with --debug")
    return FAILED


def _coded(error: Exception, sentence: str) -> str:
    """Return a sentence, shortened if it is long, with the code of the error."""
    code: str | None = getattr(error, "code", None)
    short = bounded(safe(sentence), _LONGEST)
    return f"{short} ({code})" if code else short


def _flag_in(sentence: str, state: CliState) -> str | None:
    """Return the flag that a sentence about an environment variable concerns."""
    return next((flag for flag in state.flags if f"GRNS_{flag.upper()}:" in sentence), None)


def _help_of(error: click.ClickException) -> str | None:
    context = getattr(error, "ctx", None)
    return f"{context.command_path} --help" if context is not None else None


def hint_of(error: GrnsError) -> str | None:
    """Return the command that helps: the note of the error, else that of its class."""
    notes: list[str] = getattr(error, "__notes__", [])
    if notes:
        return notes[0]
    if "`grns " in str(error):  # the sentence names a command already
        return None
    if isinstance(error, UnavailableError) and _is_dev_gone():
        return "grns dev  (it no longer runs here)"
    return next((hint for kind, hint in _HINTS if isinstance(error, kind)), None)


def _is_dev_gone() -> bool:
    """Return whether the servers announced here are those of a `grns dev` that was killed."""
    from grns.settings import announced

    left_behind = announced()
    if left_behind is None or os.environ.get("GRNS_DATABASE_URL"):
        return False
    try:
        with left_behind.with_name("lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # a process holds it, or it never existed
        return False
    return True


def _color() -> bool | None:
    return False if os.environ.get("NO_COLOR") else None


def _silence() -> None:
    """Discard the last flush of the interpreter: the reader of our output is gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
