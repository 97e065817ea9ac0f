"""A language model behind any OpenAI-compatible endpoint.

Error messages never quote the server, because it may echo the key.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from threading import Thread
from typing import TypeVar
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import HTTPErrorProcessor, Request, build_opener

from sparc_dist.config import LLMConfig

T = TypeVar("T")

REPLY_LIMIT = 2**20


class LLMError(Exception):
    """A question got no usable answer; the message never contains the key."""


class EndpointError(LLMError):
    """The endpoint itself fails, so the next question would fail too."""


class _TransientError(EndpointError):
    """An error that a retry may resolve."""


@dataclass(frozen=True)
class Endpoint:
    """Where the model is, and how long to wait for it.

    timeout_seconds: the limit of a whole request.
    retries: the number of retries after 429, 5xx or a lost connection.
    back_off_seconds: the pause before the first retry; it doubles each time.
    """

    base_url: str
    model: str
    key: str | None = field(default=None, repr=False)
    timeout_seconds: float = 60
    retries: int = 2
    back_off_seconds: float = 1.0

    def ask(self, question: str) -> str:
        """Returns the model's reply; raises LLMError if there is none."""
        for retry in range(self.retries):
            with suppress(_TransientError):
                return self._ask_once(question)
            time.sleep(self.back_off_seconds * 2**retry)
        return self._ask_once(question)

    def _ask_once(self, question: str) -> str:
        request = self._request(question)
        model = f"The language model at {urlsplit(self.base_url).netloc}"
        try:
            post = partial(_post, request, self.timeout_seconds)
            status, content = _within(self.timeout_seconds, post)
        except (OSError, HTTPException) as error:
            raise _TransientError(f"{model} could not be reached ({_reason(error)}).") from None
        if status == HTTPStatus.TOO_MANY_REQUESTS or status >= 500:
            raise _TransientError(f"{model} answered {_phrase(status)}.")
        if not 200 <= status < 300:
            raise EndpointError(f"{model} answered {_phrase(status)}: check URL, model and key.")
        if len(content) > REPLY_LIMIT:
            raise LLMError(f"{model} sent a reply of more than {REPLY_LIMIT} bytes.")
        return _text_of(content, model)

    def _request(self, question: str) -> Request:
        """Returns the POST; checks the key first, because urllib's errors would quote it."""
        key = (self.key or "").strip()
        if not (key.isascii() and key.isprintable()):
            raise EndpointError("The language model's key has characters that no key can have.")
        body = {
            "model": self.model,
            "temperature": 0,
            "messages": [{"role": "user", "content": question}],
        }
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        return Request(_completions_url(self.base_url), json.dumps(body).encode(), headers)


def _text_of(content: bytes, model: str) -> str:
    """Returns the reply in the JSON of a chat completion."""
    try:
        reply = json.loads(content)["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError, RecursionError):
        problem = f"{model} does not answer like an OpenAI-compatible endpoint."
        raise EndpointError(problem) from None
    if not isinstance(reply, str) or not reply.strip():
        raise LLMError(f"{model} sent an empty reply.")
    # JSON can contain half of a surrogate pair, which UTF-8 cannot encode.
    return reply.encode(errors="replace").decode()


def _completions_url(base_url: str) -> str:
    """Returns the URL to post to; raises EndpointError if the base URL is not http(s)."""
    try:
        parts = urlsplit(base_url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or "@" in parts.netloc or not re.fullmatch(r"[!-~]+", base_url):
        raise EndpointError("The language model's base URL is not of the form https://host/path.")
    return parts._replace(path=parts.path.rstrip("/") + "/chat/completions").geturl()


class _NoRedirects(HTTPErrorProcessor):
    """Returns every response unchanged; following a redirect would send the key elsewhere."""

    def http_response(self, request: Request, response: HTTPResponse) -> HTTPResponse:
        return response

    https_response = http_response


_OPENER = build_opener(_NoRedirects)


def _post(request: Request, timeout_seconds: float) -> tuple[int, bytes]:
    """Returns the status and the content, of which at most one byte over the limit is read."""
    with _OPENER.open(request, timeout=timeout_seconds) as response:
        content: bytes = response.read(REPLY_LIMIT + 1)
        if response.length and len(content) <= REPLY_LIMIT:
            raise ConnectionError("closed early")
        return response.status, content


def _within(seconds: float, work: Callable[[], T]) -> T:
    """Returns the result of ``work``; raises TimeoutError if it takes too long.

    A socket's timeout restarts with every byte and does not cover name resolution. So the work
    runs in its own thread, which is abandoned when the time is up.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future.result(seconds)


def _reason(error: Exception) -> str:
    """Returns why there was no response, in the words of the operating system or our own."""
    cause = error.reason if isinstance(error, URLError) else error
    if isinstance(cause, TimeoutError):
        return "no answer in time"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return "the connection was lost"


def _phrase(status: int) -> str:
    """Returns a status with its name, such as "404 Not Found"."""
    with suppress(ValueError):
        return f"{status} {HTTPStatus(status).phrase}"
    return str(status)


def endpoint_of(config: LLMConfig) -> Endpoint:
    """Returns the endpoint; its key comes from the environment, so that no file contains it."""
    return Endpoint(
        config.base_url,
        config.model,
        os.environ.get(config.key_env) or None,
        timeout_seconds=config.timeout_seconds,
    )
