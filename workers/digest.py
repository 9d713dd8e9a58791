"""Digests of Python source files, in threads; a workflow on them; and two task types that show what failing
looks like.

Run it with `grns worker start workers.digest:pool`; `grns dev` does. Each submitter of a task chooses a path,
so the worker reads only regular files below the directories in `GRNS_DIGEST_ROOT` (separated by `:`, as in
PATH). The default is the library of Python, whose files are not secret; `grns dev` adds its own directory. A
file that Python cannot tokenize or parse does not fail the task: the counts that need it are null.
"""

import ast
import hashlib
import io
import os
import stat
import sysconfig
import threading
import tokenize
from pathlib import Path

from pydantic import BaseModel

import grns

Digest = dict[str, int | str | None]

ROOTS = [
    Path(os.path.realpath(place))
    for place in os.environ.get("GRNS_DIGEST_ROOT", sysconfig.get_path("stdlib")).split(os.pathsep)
    if place
]
MOST_BYTES = 2 * 1024 * 1024  # parsing takes a hundred times as much memory
_CHUNK_BYTES = 64 * 1024
_WITHOUT_LINKS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC

_parser = threading.Lock()  # CPython's parser counts its depth for all threads together (seen in 3.11)
pool = grns.Pool("digest")


class SourceFile(BaseModel):
    """Where the file is, on the machine of the worker: from the first root, or from `/`."""

    path: Path


@pool.task("digest_file", timeout=60)
def digest_file(task: grns.Context, file: SourceFile) -> Digest:
    """Read one file and count what is in it."""
    try:
        source = _read(file.path, task)
    except (OSError, ValueError) as error:
        raise grns.Fail(f"cannot read {file.path}: {error}", error_class="no_such_file") from error
    return digest(source)


class SourceFiles(BaseModel):
    """Files, as in `SourceFile`."""

    paths: list[Path]


@pool.task("find_files", timeout=60)
def find_files(task: grns.Context, files: SourceFiles) -> int:
    """Find files, and return how many there are: the first task of a workflow."""
    for path in files.paths:
        _, real = _located(path)
        if not real.is_file():
            raise grns.Fail(f"there is no {path}", error_class="no_such_file")
    return len(files.paths)


@pool.task("add_up")
async def add_up(task: grns.Context) -> dict[str, int]:
    """Add up the digests of the tasks that this one needs: the last task of a workflow."""
    digests = [result for result in (await task.results()).values() if isinstance(result, dict)]
    return {"files": len(digests), "lines": sum(digest["lines"] for digest in digests)}


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


def _read(path: Path, task: grns.Context) -> bytes:
    """Return the content of a regular file below a root; raises OSError, ValueError and Fail."""
    root, real = _located(path)
    content = b""
    with open(_opened(root, real.relative_to(root).parts), "rb", buffering=0) as file:
        while chunk := file.read(_CHUNK_BYTES):
            content += chunk
            if len(content) > MOST_BYTES:
                raise grns.Fail(f"{path} has more than {MOST_BYTES} bytes", error_class="too_large")
            if task.should_stop:
                raise TimeoutError("the attempt is over")
    return content


def _located(path: Path) -> tuple[Path, Path]:
    """Return the root of a path, and the path without links."""
    real = Path(os.path.realpath(ROOTS[0] / path)) if ROOTS else path
    root = next((root for root in ROOTS if real.is_relative_to(root)), None)
    if root is None or real == root:
        raise grns.Fail(f"{path} is not below GRNS_DIGEST_ROOT", error_class="outside_root")
    return root, real


def _opened(root: Path, parts: tuple[str, ...]) -> int:
    """Return a descriptor of a regular file, walked to without following a link.

    The path is resolved already: a link that is met here was put there since, and may lead out of the root.
    """
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            below = os.open(part, _WITHOUT_LINKS | os.O_DIRECTORY, dir_fd=directory)
            os.close(directory)
            directory = below
        _check(os.stat(parts[-1], dir_fd=directory, follow_symlinks=False))
        # What is no file any more does not block, and is found out.
        file = os.open(parts[-1], _WITHOUT_LINKS | os.O_NONBLOCK, dir_fd=directory)
    finally:
        os.close(directory)
    try:
        _check(os.fstat(file))
    except BaseException:
        os.close(file)
        raise
    return file


def _check(facts: os.stat_result) -> None:
    if not stat.S_ISREG(facts.st_mode):
        raise ValueError("not a regular file")


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
