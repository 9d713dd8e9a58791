"""Blobs: bytes that payloads, results and messages refer to."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Header, Path, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse

from grns.api.access import BlobReader, BlobWriter, Reader, RequestContext
from grns.api.answer import Answer
from grns.api.page import Cursor, Limit, PageOf, answer
from grns.api.route import router
from grns.errors import InvalidInputError
from grns.model.blob import BLOB, Blob, BlobState, KeptBlob, digest_of
from grns.tasks.blobs import PART_BYTES, Blobs, read_object

routes = router("blobs")

BlobId = Annotated[str, Path(pattern="^sha256-[0-9a-f]{64}$", description="`sha256-` and 64 hex digits.")]
ANY_TYPE = "application/octet-stream"
_BYTES: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
_CONTENT = {"requestBody": {"required": True, "content": {ANY_TYPE: _BYTES}}}
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")


class BlobReference(BaseModel):
    """The reference to a blob, for payloads, results and messages."""

    model_config = ConfigDict(populate_by_name=True)

    blob: Annotated[str, Field(alias=BLOB)]
    size: int
    type: str | None = None


@routes.post("/blobs", response_model=BlobReference, openapi_extra=_CONTENT)
async def post_blob(request: Request, request_context: BlobWriter) -> Response:
    """Keep the bytes of the body, and return the reference to them. The same bytes are kept once.

    The media type is that of the header Content-Type. A blob that nothing refers to is deleted after a day.
    """
    return Answer(await _put(request, request_context, None))


@routes.put("/blobs/{blob_id}", response_model=BlobReference, openapi_extra=_CONTENT)
async def put_blob(request: Request, request_context: BlobWriter, blob_id: BlobId) -> Response:
    """Keep the bytes of the body, if their sha256 is that of the id: `wrong_digest` if not."""
    return Answer(await _put(request, request_context, blob_id))


@routes.get("/blobs", response_model=PageOf[BlobState])
async def list_blobs(request_context: Reader, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """List blobs, the latest first, each with how many tasks, messages and schedules refer to it."""
    async with request_context.reading() as database:
        return answer(await request_context.client(database).blobs.list(limit=limit, after=cursor))


@routes.get(
    "/blobs/{blob_id}",
    response_model=None,
    responses={200: {"content": {ANY_TYPE: _BYTES}, "description": "The bytes"}},
)
async def read_blob(
    request_context: BlobReader,
    blob_id: BlobId,
    range_: Annotated[
        str | None, Header(alias="Range", description="A part: `bytes=0-1023`.", max_length=100)
    ] = None,
) -> Response:
    """Return the bytes of a blob, or a part of them."""
    return await download(request_context, blob_id, range_)


async def download(request_context: RequestContext, blob_id: str, wanted: str | None = None) -> Response:
    """Return a response that streams a blob as a file, or the range of bytes that is wanted."""
    async with request_context.reading() as database:
        kept = await request_context.client(database).blobs.find(blob_id)
    first, last = _range(wanted, kept.size)
    headers = {
        "content-length": str(last - first),
        "content-disposition": f'attachment; filename="{blob_id}"',
        "accept-ranges": "bytes",
    }
    beginning = (
        await _part(request_context, kept, first, min(PART_BYTES, last - first)) if first < last else b""
    )
    is_part = (first, last) != (0, kept.size)
    if is_part:
        headers["content-range"] = f"bytes {first}-{last - 1}/{kept.size}"
    return StreamingResponse(
        _parts(request_context, kept, beginning, first + len(beginning), last),
        status_code=206 if is_part else 200,
        media_type=kept.media_type or ANY_TYPE,
        headers=headers,
    )


async def _parts(
    request_context: RequestContext, kept: KeptBlob, beginning: bytes, first: int, last: int
) -> AsyncIterator[bytes]:
    """Read part after part, as fast as the client takes them, without a connection between two.

    The first one is read before the response begins: what cannot be read is a problem, and no broken body.
    """
    yield beginning
    while first < last:
        part = await _part(request_context, kept, first, min(PART_BYTES, last - first))
        yield part
        first += len(part)


async def _part(request_context: RequestContext, kept: KeptBlob, start: int, length: int) -> bytes:
    if kept.object is not None:  # no connection waits for the blob store
        return await read_object(request_context.context.database.blob_rules, kept.object, start, length)
    async with request_context.reading() as database:
        return await request_context.client(database).blobs.part(kept, start, length)


def _range(wanted: str | None, size: int) -> tuple[int, int]:
    """Return the first byte of a range and the one behind its last; all of it where no single one is meant.

    Source: RFC 9110, section 14: a server may ignore the header.
    """
    match = _RANGE.fullmatch(wanted or "")
    if match is None or match.groups() == ("", "") or not size:
        return 0, size
    first, last = match.groups()
    begin = int(first) if first else max(0, size - int(last))
    end = min(size, int(last) + 1) if first and last else size
    if begin >= size or end <= begin:
        raise InvalidInputError("bad_range", f"the blob has {size} bytes")
    return begin, end


async def _put(request: Request, request_context: RequestContext, blob_id: str | None) -> Blob:
    context = request_context.context
    async with context.uploads.of(request_context.workspace):
        content = await _body(request, context.database.blob_rules.most_bytes)
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        upload = await Blobs(context.database, request_context.workspace).upload(
            content,
            media_type=None if media_type in ("", ANY_TYPE) else media_type,
            digest=None if blob_id is None else digest_of(blob_id),
        )
        async with request_context.reading() as database:
            return await request_context.client(database).blobs.keep(upload)


async def _body(request: Request, most_bytes: int) -> bytearray:
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise InvalidInputError("bad_content_type", "a body is to be sent as it is, and not compressed")
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > most_bytes:
                raise InvalidInputError("too_large", f"a blob has up to {most_bytes} bytes")
    except ClientDisconnect as error:
        raise InvalidInputError("cut_off", "the body ended before it was whole") from error
    return body
