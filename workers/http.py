"""Agents behind HTTP: each task is POSTed to the URL that the operator has set for its type.

`GRNS_HTTP_URL='{"summarize": "https://agent.internal/run"}' grns worker start workers.http:pool`; the
agent type is `GRNS_HTTP_AGENT_TYPE`, else `http`. The body is the task's payload. 2xx with JSON (or
nothing) is the result; 429 and 503 are tried again after their Retry-After, other 5xx and a broken
connection after the backoff; everything else would be answered alike again: failed.
"""

import hashlib
import json
import os
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2

import grns

URLS: dict[str, str] = json.loads(os.environ.get("GRNS_HTTP_URL", "{}"))
TIMEOUT_SECONDS, LONGEST_WAIT_SECONDS, ANSWER_BYTES = 300.0, 86_400.0, 256 * 1024

pool = grns.Pool(os.environ.get("GRNS_HTTP_AGENT_TYPE", "http"))
client = httpx2.AsyncClient(  # --concurrency is the bound: a wait for a free connection would spend attempts
    timeout=httpx2.Timeout(10.0, read=TIMEOUT_SECONDS, pool=None), limits=httpx2.Limits(max_connections=None)
)


async def post(task: grns.Context, payload: dict[str, Any]) -> Any:
    """Send one task to its agent and return what that answers."""
    async with client.stream(
        "POST", URLS[task.task_type], json=payload, headers=headers_of(task)
    ) as response:
        _check(response)
        answer = b""
        async for chunk in response.aiter_raw():  # decompressed, a chunk could be a thousand times as large
            if len(answer := answer + chunk) > ANSWER_BYTES:
                raise grns.Fail(f"the answer has more than {ANSWER_BYTES} bytes", error_class="bad_answer")
    try:
        return json.loads(answer or b"null")
    except ValueError as error:
        raise grns.Fail(f"the answer is no JSON: {error}", error_class="bad_answer") from error


for task_type in URLS:
    pool.task(task_type, timeout=TIMEOUT_SECONDS)(post)


def headers_of(task: grns.Context) -> dict[str, str]:
    """Return what lets the agent recognise a repetition, and go on with the trace."""
    is_w3c = re.fullmatch(r"[0-9a-f]{32}", task.trace_id)
    trace = task.trace_id if is_w3c else hashlib.sha256(task.trace_id.encode()).hexdigest()[:32]
    return {
        "Grns-Task": task.id,
        "Grns-Task-Type": task.task_type,
        "Grns-Attempt": str(task.attempt),
        "Idempotency-Key": task.id,
        "Accept-Encoding": "identity",
        "traceparent": f"00-{trace}-{task.lease_id.hex[:16]}-01",
    }


def _check(response: httpx2.Response) -> None:
    code = response.status_code
    if code in (429, 503) or code >= 500:
        after = retry_after(response.headers.get("Retry-After", ""))
        raise grns.Retry(f"HTTP {code}", after=after, error_class=f"http_{code}")
    if not response.is_success:
        raise grns.Fail(f"HTTP {code}", error_class=f"http_{code}")
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise grns.Fail("the answer is compressed; send it as it is", error_class="bad_answer")


def retry_after(said: str) -> float | None:
    """Return the seconds that a Retry-After header asks for, None where it asks for nothing."""
    if said.isdecimal():
        return min(float(said), LONGEST_WAIT_SECONDS)
    try:
        seconds = (parsedate_to_datetime(said) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError):
        return None
    return min(max(seconds, 0.0), LONGEST_WAIT_SECONDS)
