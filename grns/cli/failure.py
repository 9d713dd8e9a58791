"""What somebody at a terminal, or a script, gets when something goes wrong: one sentence and a number."""

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
from grns.text import bounded, safe

FAILED, USAGE, NOT_FOUND, CONFLICT, INTERRUPTED, READER_GONE, TERMINATED = 1, 2, 3, 4, 130, 141, 143
_LONGEST = 500

_HINTS: tuple[tuple[type[GrnsError], str], ...] = (
    (NotFoundError, "grns task list"),
    (ConflictError, "grns task show ID"),
    (DriftError, "grns admin broker info"),
    (UnavailableError, "grns admin config show --origin"),
)


def guarded(work: Callable[[], int], state: CliState) -> int:
    """Do the work and return its exit code, or say what went wrong and return that of the error."""
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
        if state.debug:
            traceback.print_exception(error)
        return _tell(error, state)
    return code


def hinted(error: GrnsError, command: str) -> GrnsError:
    """Return the error with the command that helps."""
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


def say(sentence: str, hint: str | None = None) -> None:
    """Write one sentence, and the command to try next, to stderr."""
    told = safe(redacted(sentence))
    click.echo(click.style("grns: ", fg="red", bold=True) + told, err=True, color=_color())
    if hint:
        click.echo(f"  try: {bounded(safe(redacted(hint)), _LONGEST // 2)}", err=True)


def note(sentence: str) -> None:
    """Write to stderr what is no data."""
    click.echo(safe(sentence), err=True)


def _tell(error: Exception, state: CliState) -> int:
    if isinstance(error, click.ClickException):
        say(_coded(error, " ".join(error.format_message().split())), _help_of(error))
        return error.exit_code
    if isinstance(error, SettingsError) and (flag := _flag_in(str(error), state)):
        say(str(error).replace(f"GRNS_{flag.upper()}", f"--{flag.replace('_', '-')}"), "grns --help")
        return error.exit_code
    if isinstance(error, GrnsError):
        say(_coded(error, str(error)), hint_of(error))
        return error.exit_code
    if isinstance(error, OSError) and error.filename is not None:
        say(f"{error.filename}: {error.strerror}")
        return FAILED
    say(f"this is a bug in grns: {type(error).__name__}: {error}", "the same again with --debug")
    return FAILED


def _coded(error: Exception, sentence: str) -> str:
    """Return a sentence, no longer than somebody reads, with the error's word for scripts behind it."""
    code: str | None = getattr(error, "code", None)
    short = bounded(safe(sentence), _LONGEST)
    return f"{short} ({code})" if code else short


def _flag_in(sentence: str, state: CliState) -> str | None:
    """Return the flag that such a sentence is about: it is handed on as environment."""
    return next((flag for flag in state.flags if f"GRNS_{flag.upper()}:" in sentence), None)


def _help_of(error: click.ClickException) -> str | None:
    context = getattr(error, "ctx", None)
    return f"{context.command_path} --help" if context is not None else None


def hint_of(error: GrnsError) -> str | None:
    """Return the next command: what the raiser has noted, else what helps with such errors."""
    notes: list[str] = getattr(error, "__notes__", [])
    if notes:
        return notes[0]
    if "`grns " in str(error):  # the sentence names one already
        return None
    if isinstance(error, UnavailableError) and _is_dev_gone():
        return "grns dev  (it does not run here any more)"
    return next((hint for kind, hint in _HINTS if isinstance(error, kind)), None)


def _is_dev_gone() -> bool:
    """Tell whether the servers announced here are those of a `grns dev` that was killed."""
    from grns.settings import announced

    left_behind = announced()
    if left_behind is None or os.environ.get("GRNS_DATABASE_URL"):
        return False
    try:
        with left_behind.with_name("lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # somebody holds it, or it was never there
        return False
    return True


def _color() -> bool | None:
    return False if os.environ.get("NO_COLOR") else None


def _silence() -> None:
    """Let the interpreter's last flush go nowhere: whoever read our output has left."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
