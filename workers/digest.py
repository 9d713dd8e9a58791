"""Digests of Python source files, in threads; and two task types that show what failing looks like.

Run it with `grns worker workers.digest:pool`; `grns dev` does. A file that Python cannot tokenize or
parse is no failure of the task: what could not be counted is null in the result, the rest is there.
"""

import ast
import hashlib
import io
import threading
import tokenize
from pathlib import Path

from pydantic import BaseModel

import grns

Digest = dict[str, int | str | None]

_parser = threading.Lock()  # CPython's parser counts its depth for all threads together (seen in 3.11)
pool = grns.Pool("digest")


class SourceFile(BaseModel):
    """Where the file is, on the machine of the worker."""

    path: Path


@pool.task("digest_file")
def digest_file(task: grns.Context, file: SourceFile) -> Digest:
    """Read one file and count what is in it."""
    try:
        return digest(file.path.read_bytes())
    except (FileNotFoundError, IsADirectoryError) as error:
        raise grns.Fail(str(error), error_class="no_such_file") from error


@pool.task("flaky", backoff=grns.Backoff(base_seconds=0.2))
def flaky(task: grns.Context) -> dict[str, int]:
    """Fail at the first attempt, succeed at the second."""
    if task.attempt == 1:
        raise ConnectionError("the first attempt always fails")
    return {"attempt": task.attempt}


@pool.task("hopeless", max_attempts=2, backoff=grns.Backoff(base_seconds=0.2))
def hopeless(task: grns.Context) -> None:
    """Fail until the attempts are spent."""
    raise ValueError(f"attempt {task.attempt} fails like every other one")


def digest(source: bytes) -> Digest:
    """Return the digest of a file's content."""
    functions, classes = _definitions(source)
    return {
        "lines": len(source.splitlines()),
        "bytes": len(source),
        "sha256": hashlib.sha256(source).hexdigest(),
        "tokens": _tokens(source),
        "functions": functions,
        "classes": classes,
    }


def _tokens(source: bytes) -> int | None:
    try:
        return sum(1 for _ in tokenize.tokenize(io.BytesIO(source).readline))
    except (SyntaxError, ValueError, tokenize.TokenError):
        return None


def _definitions(source: bytes) -> tuple[int, int] | tuple[None, None]:
    try:
        with _parser:
            nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None, None
    functions = sum(isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) for node in nodes)
    return functions, sum(isinstance(node, ast.ClassDef) for node in nodes)
