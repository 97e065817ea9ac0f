"""The client of a language model: one question, one answer, and every fault of a server."""

from __future__ import annotations

import socket
import traceback
from dataclasses import replace

import pytest

from sparc_dist.prompts.llm.endpoint import REPLY_LIMIT, Endpoint, EndpointError, LLMError
from tests.support.llm_server import (
    KEY,
    Behaviour,
    Model,
    breaks_the_protocol,
    chat,
    closes_at_once,
    closes_half_way,
    drips_its_body,
    drips_its_headers,
    fails,
    never_stops_talking,
    says,
    sends,
    serving,
    stalls,
)


def failure(endpoint: Endpoint) -> LLMError:
    """Asks a question that must fail; returns the error, which must not contain the key."""
    with pytest.raises(LLMError) as caught:
        endpoint.ask("Anything?")
    shown = "".join(traceback.format_exception(caught.value))
    assert KEY not in shown + repr(caught.value) + repr(endpoint)
    return caught.value


# The protocol


def test_a_question_is_one_chat_completion_with_the_key_as_bearer(model: Model) -> None:
    model.behaviours = [says("Hello.")]
    assert model.endpoint().ask("Who is there?") == "Hello."
    (request,) = model.requests
    assert request["path"] == "/v1/chat/completions"
    assert request["headers"]["Authorization"] == f"Bearer {KEY}"
    assert request["headers"]["Content-Type"] == "application/json"
    assert request["body"] == {
        "model": "tiny",
        "temperature": 0,
        "messages": [{"role": "user", "content": "Who is there?"}],
    }


@pytest.mark.parametrize("key", [None, "", " \n"])
def test_without_a_key_there_is_no_header(model: Model, key: str | None) -> None:
    model.behaviours = [says("Hello.")]
    replace(model.endpoint(), key=key).ask("?")
    assert "Authorization" not in model.requests[0]["headers"]


def test_a_line_break_after_the_key_does_no_harm(model: Model) -> None:
    model.behaviours = [says("Hello.")]
    replace(model.endpoint(), key=f"{KEY}\n").ask("?")
    assert model.requests[0]["headers"]["Authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("key", [f"{KEY}\nX-Other: 1", f"{KEY}é"])
def test_a_key_that_no_header_can_contain_is_not_sent(model: Model, key: str) -> None:
    model.behaviours = [says("Hello.")]
    assert "key" in str(failure(replace(model.endpoint(), key=key)))
    assert not model.requests


@pytest.mark.parametrize(
    ("base", "path"),
    [("/v1/", "/v1/chat/completions"), ("/d?version=2", "/d/chat/completions?version=2")],
)
def test_base_urls_may_end_in_a_slash_or_a_query(model: Model, base: str, path: str) -> None:
    model.behaviours = [says("Hello.")]
    replace(model.endpoint(), base_url=model.url + base).ask("?")
    assert model.requests[0]["path"] == path


@pytest.mark.parametrize(
    "url",
    [
        *("", "localhost:80/v1", "file:///etc/passwd", "http://", "http://[1/v1", "http://a:b/v1"),
        *(f"http://user:{KEY}@host/v1", "http://a b/v1", "http://a/\n", "http://münchen/v1"),
    ],
)
def test_a_base_url_that_is_not_http_fails(url: str) -> None:
    endpoint = Endpoint(url, "tiny", retries=0)
    with pytest.raises(EndpointError, match="base URL") as caught:
        endpoint.ask("?")
    assert KEY not in str(caught.value)


def test_the_key_is_not_in_the_repr(model: Model) -> None:
    assert "tiny" in repr(model.endpoint())
    assert KEY not in repr(model.endpoint())


# Faults of the transport


@pytest.mark.parametrize("fault", [fails(500), fails(429), closes_at_once, closes_half_way])
def test_a_transient_fault_is_retried(model: Model, fault: Behaviour) -> None:
    model.behaviours = [fault, says("Hello.")]
    assert model.endpoint().ask("?") == "Hello."
    assert len(model.requests) == 2


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (fails(503), "503 Service Unavailable"),
        (fails(429), "429 Too Many Requests"),
        (fails(599), "answered 599"),
        (closes_at_once, "the connection was lost"),
        (closes_half_way, "the connection was lost"),
        (breaks_the_protocol, "the connection was lost"),
    ],
)
def test_a_lasting_fault_fails_after_all_retries(
    model: Model, fault: Behaviour, words: str
) -> None:
    model.behaviours = [fault]
    error = failure(model.endpoint())
    assert isinstance(error, EndpointError)
    assert words in str(error)
    assert model.url.removeprefix("http://") in str(error)
    assert len(model.requests) == 2
    failure(replace(model.endpoint(), retries=2))
    assert len(model.requests) == 2 + 3
    failure(replace(model.endpoint(), retries=0))
    assert len(model.requests) == 2 + 3 + 1


@pytest.mark.parametrize("fault", [stalls, drips_its_body, drips_its_headers])
def test_a_server_that_never_ends_times_out(model: Model, fault: Behaviour) -> None:
    model.behaviours = [fault]
    error = failure(model.endpoint(timeout_seconds=0.5))
    assert isinstance(error, EndpointError)
    assert "no answer in time" in str(error)
    assert len(model.requests) == 2


@pytest.mark.parametrize(
    ("status", "words"), [(400, "Bad Request"), (401, "Unauthorized"), (404, "Not Found")]
)
def test_a_rejected_request_is_not_retried(model: Model, status: int, words: str) -> None:
    model.behaviours = [fails(status), says("Hello.")]
    error = failure(model.endpoint())
    assert isinstance(error, EndpointError)
    assert f"{status} {words}" in str(error)
    assert len(model.requests) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(model: Model, status: int) -> None:
    with serving() as elsewhere:
        elsewhere.behaviours = [says("Thanks for the key.")]
        model.behaviours = [sends(b"", status, f"{elsewhere.url}/{KEY}")]
        error = failure(model.endpoint())
    assert str(status) in str(error)
    assert len(model.requests) == 1
    assert not elsewhere.requests


def test_no_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    error = failure(Endpoint(f"http://127.0.0.1:{port}", "tiny", KEY, back_off_seconds=0.01))
    assert "(Connection refused)" in str(error)


# Malformed replies


@pytest.mark.parametrize(
    "content",
    [
        *(b"<html><body>Please log in.</body></html>", b"", b"\xff\xfe\x00", b"null", b"[1, 2]"),
        *(b'{"answer": 42}', b'{"choices": []}', b'{"choices": [{"text": "a"}]}', b"[" * 200_000),
        *(b'{"choices": {"0": 1}}', b'{"choices": [{"message": "Hello."}]}'),
    ],
)
def test_another_protocol_is_an_endpoint_error(model: Model, content: bytes) -> None:
    model.behaviours = [sends(content)]
    error = failure(model.endpoint())
    assert isinstance(error, EndpointError)
    assert "OpenAI-compatible" in str(error)
    assert len(model.requests) == 1


@pytest.mark.parametrize("content", [None, "", " \n ", 42, ["A cat on a sofa."]])
def test_an_empty_reply_is_not_an_endpoint_error(model: Model, content: object) -> None:
    model.behaviours = [says(content)]
    error = failure(model.endpoint())
    assert not isinstance(error, EndpointError)
    assert "empty reply" in str(error)


def test_a_reply_is_bounded(model: Model) -> None:
    around = len(chat(""))
    model.behaviours = [says("x" * (REPLY_LIMIT - around)), says("x" * (REPLY_LIMIT - around + 1))]
    assert len(model.endpoint().ask("?")) == REPLY_LIMIT - around
    assert "more than 1048576 bytes" in str(failure(model.endpoint()))
    model.behaviours = [never_stops_talking]
    assert "more than 1048576 bytes" in str(failure(model.endpoint()))


def test_half_a_surrogate_pair_is_replaced(model: Model) -> None:
    model.behaviours = [says("a \ud83d b 😀")]
    assert model.endpoint().ask("?") == "a ? b 😀"
