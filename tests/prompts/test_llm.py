"""Against a real HTTP server that speaks the protocol, well or badly as each test tells it."""

from __future__ import annotations

import json
import re
import socket
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import combinations
from threading import Event, Thread
from typing import Any

import pytest

from sparc_dist.prompts.compound import CompoundPrompt
from sparc_dist.prompts.llm import (
    REPLY_LIMIT,
    SETS_PER_QUESTION,
    Answer,
    Endpoint,
    EndpointError,
    LLMError,
    descriptive_sentences,
    plausible_pairs,
)

KEY = "sk-Tresor-0123456789"
CLASSES = ["cat", "dog", "sofa", "car", "hot dog", "person"]
SETS = [(0, 2), (1, 3)]
GOOD = "A cat sleeps on a sofa.\nA dog looks out of a car."

Behaviour = Callable[["Handler", str], None]


class MemoryReplies:
    """Replies for as long as the process lives."""

    def __init__(self) -> None:
        self._replies: dict[str, str] = {}

    def get(self, question: str) -> str | None:
        """The reply that was put, if any."""
        return self._replies.get(question)

    def put(self, question: str, reply: str) -> None:
        """Keep a usable reply."""
        self._replies[question] = reply


@dataclass
class Model:
    """What the server does with its requests, in turn (the last for ever), and what it saw."""

    url: str
    behaviours: list[Behaviour] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    test_is_over: Event = field(default_factory=Event)

    def endpoint(self, timeout_seconds: float = 5) -> Endpoint:
        return Endpoint(f"{self.url}/v1", "tiny", KEY, timeout_seconds, 1, 0.01)


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        model = self.model
        model.requests.append({"path": self.path, "headers": dict(self.headers), "body": body})
        question = body["messages"][-1]["content"]
        model.questions.append(question)
        behaviours = model.behaviours
        (behaviours.pop(0) if len(behaviours) > 1 else behaviours[0])(self, question)

    def do_GET(self) -> None:
        """What a redirected POST may turn into."""
        self.model.requests.append({"path": self.path, "headers": dict(self.headers)})
        self.respond(chat(GOOD))

    @property
    def model(self) -> Model:
        assert isinstance(self.server, Server)
        return self.server.model

    def respond(self, content: bytes, status: int = 200, location: str | None = None) -> None:
        """An answer that echoes the key wherever a server can."""
        self.send_response(status, self.headers.get("Authorization", "no key"))
        self.send_header("X-Echo", self.headers.get("Authorization", "no key"))
        self.send_header("Content-Length", str(len(content)))
        if location:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Silence."""


class Server(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.model = Model(f"http://127.0.0.1:{self.server_address[1]}")

    def handle_error(self, *_: object) -> None:
        """Clients that hang up are what some tests are about."""


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Model]:
    monkeypatch.setenv("no_proxy", "*")
    with Server() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.model
        server.model.test_is_over.set()
        server.shutdown()
        thread.join()


def chat(content: object) -> bytes:
    return json.dumps(
        {"choices": [{"message": {"role": "assistant", "content": content}}]}
    ).encode()


def says(content: object) -> Behaviour:
    return lambda handler, _: handler.respond(chat(content))


def sends(content: bytes, status: int = 200, location: str | None = None) -> Behaviour:
    return lambda handler, _: handler.respond(content, status, location)


def fails(status: int) -> Behaviour:
    return lambda handler, _: handler.respond(
        b'{"error": "wrong key: ' + handler.headers["Authorization"].encode() + b'"}', status
    )


def writes_captions(handler: Handler, question: str) -> None:
    lists = re.findall(r"^\d+\. (.+)$", question, re.MULTILINE)
    pairs = (names.split("; ")[:2] for names in lists)
    handler.respond(chat("\n".join(f"A {a} right beside a {b}." for a, b in pairs)))


def stalls(handler: Handler, _: str) -> None:
    handler.model.test_is_over.wait(10)


def drips(handler: Handler, content: bytes) -> None:
    """Far too slow for the hasty; the patient would get a right answer."""
    for byte in content:
        if not handler.model.test_is_over.wait(0.02):
            handler.wfile.write(bytes([byte]))


def drips_its_body(handler: Handler, _: str) -> None:
    handler.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n")
    drips(handler, b" " * 100 + chat(GOOD))


def drips_its_headers(handler: Handler, _: str) -> None:
    drips(handler, b"HTTP/1.0 200 OK\r\nX-Long: " + b"x" * 100 + b"\r\n\r\n")
    handler.wfile.write(chat(GOOD))


def never_stops_talking(handler: Handler, _: str) -> None:
    handler.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n" + b" " * (REPLY_LIMIT + 1))
    handler.model.test_is_over.wait(10)


def closes_half_way(handler: Handler, _: str) -> None:
    content = chat(GOOD)
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content[: len(content) // 2])


def closes_at_once(handler: Handler, _: str) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)


def breaks_the_protocol(handler: Handler, _: str) -> None:
    handler.wfile.write(handler.headers["Authorization"].encode() + b"\r\n\r\n")


def knows_company(company: dict[str, str]) -> Behaviour:
    def answer(handler: Handler, question: str) -> None:
        asked = re.search(r'same photo as "(.+)"', question)
        assert asked
        handler.respond(chat(company.get(asked[1], "none")))

    return answer


def captions(model: Model, replies: MemoryReplies | None = None) -> Answer[CompoundPrompt]:
    return descriptive_sentences(CLASSES, SETS, model.endpoint(), replies or MemoryReplies())


def texts(answer: Answer[CompoundPrompt]) -> list[str]:
    return [prompt.text for prompt in answer.found]


def refusal(endpoint: Endpoint) -> LLMError:
    """The error of a question that must fail, in which the key must not show."""
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
def test_a_key_that_no_header_can_carry_is_refused_unsent(model: Model, key: str) -> None:
    model.behaviours = [says("Hello.")]
    assert "key" in str(refusal(replace(model.endpoint(), key=key)))
    assert not model.requests


@pytest.mark.parametrize(
    ("base", "path"),
    [("/v1/", "/v1/chat/completions"), ("/d?version=2", "/d/chat/completions?version=2")],
)
def test_base_urls_end_as_they_like(model: Model, base: str, path: str) -> None:
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
def test_what_is_no_web_address_is_refused(url: str) -> None:
    endpoint = Endpoint(url, "tiny", retries=0)
    with pytest.raises(EndpointError, match="base URL") as caught:
        endpoint.ask("?")
    assert KEY not in str(caught.value)


def test_the_key_is_not_in_the_repr(model: Model) -> None:
    assert "tiny" in repr(model.endpoint())
    assert KEY not in repr(model.endpoint())


# Faults of the transport


@pytest.mark.parametrize("fault", [fails(500), fails(429), closes_at_once, closes_half_way])
def test_a_passing_fault_is_got_over(model: Model, fault: Behaviour) -> None:
    model.behaviours = [fault, says("Hello.")]
    assert model.endpoint().ask("?") == "Hello."
    assert len(model.requests) == 2


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (fails(503), "503 Service Unavailable"),
        (fails(429), "429 Too Many Requests"),
        (fails(599), "answered 599"),
        (closes_at_once, "the connection broke off"),
        (closes_half_way, "the connection broke off"),
        (breaks_the_protocol, "the connection broke off"),
    ],
)
def test_a_lasting_fault_is_tried_again_and_given_up(
    model: Model, fault: Behaviour, words: str
) -> None:
    model.behaviours = [fault]
    error = refusal(model.endpoint())
    assert isinstance(error, EndpointError)
    assert words in str(error)
    assert model.url.removeprefix("http://") in str(error)
    assert len(model.requests) == 2
    refusal(replace(model.endpoint(), retries=2))
    assert len(model.requests) == 2 + 3
    refusal(replace(model.endpoint(), retries=0))
    assert len(model.requests) == 2 + 3 + 1


@pytest.mark.parametrize("fault", [stalls, drips_its_body, drips_its_headers])
def test_a_server_that_never_ends_is_left(model: Model, fault: Behaviour) -> None:
    model.behaviours = [fault]
    error = refusal(model.endpoint(timeout_seconds=0.5))
    assert isinstance(error, EndpointError)
    assert "no answer in time" in str(error)
    assert len(model.requests) == 2


@pytest.mark.parametrize(
    ("status", "words"), [(400, "Bad Request"), (401, "Unauthorized"), (404, "Not Found")]
)
def test_a_refused_request_is_not_repeated(model: Model, status: int, words: str) -> None:
    model.behaviours = [fails(status), says("Hello.")]
    error = refusal(model.endpoint())
    assert isinstance(error, EndpointError)
    assert f"{status} {words}" in str(error)
    assert len(model.requests) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(model: Model, status: int) -> None:
    with Server() as elsewhere:
        elsewhere.model.behaviours = [says("Thanks for the key.")]
        thread = Thread(target=elsewhere.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        model.behaviours = [sends(b"", status, f"{elsewhere.model.url}/{KEY}")]
        error = refusal(model.endpoint())
        elsewhere.shutdown()
        thread.join()
    assert str(status) in str(error)
    assert len(model.requests) == 1
    assert not elsewhere.model.requests


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    error = refusal(Endpoint(f"http://127.0.0.1:{port}", "tiny", KEY, back_off_seconds=0.01))
    assert "(Connection refused)" in str(error)


# Rubbish


@pytest.mark.parametrize(
    "content",
    [
        *(b"<html><body>Please log in.</body></html>", b"", b"\xff\xfe\x00", b"null", b"[1, 2]"),
        *(b'{"answer": 42}', b'{"choices": []}', b'{"choices": [{"text": "a"}]}', b"[" * 200_000),
        *(b'{"choices": {"0": 1}}', b'{"choices": [{"message": "Hello."}]}'),
    ],
)
def test_another_protocol_is_an_error_of_the_endpoint(model: Model, content: bytes) -> None:
    model.behaviours = [sends(content)]
    error = refusal(model.endpoint())
    assert isinstance(error, EndpointError)
    assert "OpenAI-compatible" in str(error)
    assert len(model.requests) == 1


@pytest.mark.parametrize("content", [None, "", " \n ", 42, ["A cat on a sofa."]])
def test_an_empty_reply_is_an_error_of_the_question(model: Model, content: object) -> None:
    model.behaviours = [says(content)]
    error = refusal(model.endpoint())
    assert not isinstance(error, EndpointError)
    assert "empty reply" in str(error)


def test_a_reply_is_bounded(model: Model) -> None:
    around = len(chat(""))
    model.behaviours = [says("x" * (REPLY_LIMIT - around)), says("x" * (REPLY_LIMIT - around + 1))]
    assert len(model.endpoint().ask("?")) == REPLY_LIMIT - around
    assert "more than 1048576 bytes" in str(refusal(model.endpoint()))
    model.behaviours = [never_stops_talking]
    assert "more than 1048576 bytes" in str(refusal(model.endpoint()))


def test_half_a_character_does_not_reach_the_cache(model: Model) -> None:
    model.behaviours = [says("a \ud83d b 😀")]
    assert model.endpoint().ask("?") == "a ? b 😀"


# Descriptive sentences


def test_sentences_come_with_the_classes_they_mention(model: Model) -> None:
    model.behaviours = [says(GOOD)]
    answer = captions(model)
    assert answer == Answer(
        [
            CompoundPrompt("A cat sleeps on a sofa.", (0, 2), "descriptive"),
            CompoundPrompt("A dog looks out of a car.", (1, 3), "descriptive"),
        ]
    )
    assert "1. cat; sofa\n2. dog; car" in model.questions[0]


def test_sets_are_asked_in_batches_once_each(model: Model) -> None:
    classes = [f"thing{letter}" for letter in "abcdefghij"]
    pairs = list(combinations(range(10), 2))
    model.behaviours = [writes_captions]
    sets = [*pairs, *pairs, (3,), (4, 4)]
    answer = descriptive_sentences(classes, sets, model.endpoint(), MemoryReplies())
    assert [prompt.class_ids for prompt in answer.found] == pairs
    assert answer.problem is None
    sizes = [len(re.findall(r"^\d+\. ", text, re.MULTILINE)) for text in model.questions]
    assert sizes == [SETS_PER_QUESTION, SETS_PER_QUESTION, 5]


def test_nothing_to_ask_asks_nothing(model: Model) -> None:
    assert descriptive_sentences(CLASSES, [], model.endpoint(), MemoryReplies()) == Answer([])
    assert plausible_pairs(["cat"], model.endpoint(), MemoryReplies()) == Answer([])
    assert plausible_pairs([], model.endpoint(), MemoryReplies()) == Answer([])
    assert not model.requests


@pytest.mark.parametrize(
    "line",
    [
        *("1. {}", "12) {}", "(3) {}", "[4] {}", "5: {}", "- {}", "* {}", "• {}", "- 6. {}"),
        *('"{}"', "“{}”", "'{}'", "«{}»", '7. "{}"', '  "{}",', "**{}**", "**8.** {}", "\t{}\r"),
    ],
)
def test_numbers_bullets_and_quotes_are_stripped(model: Model, line: str) -> None:
    model.behaviours = [says(line.format("A cat sleeps on a sofa."))]
    assert texts(captions(model)) == ["A cat sleeps on a sofa."]


@pytest.mark.parametrize(
    "text", ["2 dogs in a car.", "3.5 dogs in a car.", "A dog's car: well-worn"]
)
def test_what_belongs_to_a_caption_stays(model: Model, text: str) -> None:
    model.behaviours = [says(text)]
    assert texts(captions(model)) == [text]


@pytest.mark.parametrize(
    "line",
    [
        "Sure, here you are:",
        "Captions of a cat and a dog:",
        "A cat all alone at night.",
        "Two hot dogs on a plate.",
        "A zebra beside a giraffe.",
        "<p>A cat and a dog</p>",
        '{"caption": "A cat and a dog"}',
        "| A cat | and a dog |",
        "A cat\x1b[31m and a dog",
        "A cat \u200band a dog",
        "A cat \x00and a dog",
        "cat & dog",
        "A cat and a dog " + "x" * 300,
        "```",
    ],
)
def test_lines_that_are_no_caption_of_two_classes_are_dropped(model: Model, line: str) -> None:
    model.behaviours = [says(f"{line}\nA cat sleeps on a sofa.\n{line}")]
    assert texts(captions(model)) == ["A cat sleeps on a sofa."]
    model.behaviours = [says(line)]
    answer = captions(model)
    assert answer.found == []
    assert answer.problem == (
        "The language model's reply has no caption that mentions two classes;"
        " 1 of 1 questions have no answer."
    )


def test_the_bounds_of_a_caption_are_inclusive(model: Model) -> None:
    shortest, longest = "cat on dog", "A cat and a dog " + "x" * 284
    model.behaviours = [says(f"{shortest}\n{longest}\n{shortest[:-2]}\n{longest}x")]
    assert texts(captions(model)) == [shortest, longest]


def test_duplicates_of_any_case_and_spacing_are_dropped_across_batches(model: Model) -> None:
    again = "A cat sleeps on a sofa.\na CAT  sleeps on\ta sofa.\n1. A cat sleeps on a sofa."
    model.behaviours = [says(again), says(f"{again}\nA dog looks out of a car.")]
    sets = [(0, 1, 2, 3, 4, 5)[start:stop] for start in range(6) for stop in range(7)]
    sets += [(i, j) for i, j in combinations(range(5, -1, -1), 2)]
    answer = descriptive_sentences(CLASSES, sets, model.endpoint(), MemoryReplies())
    assert len(model.requests) == 2
    assert texts(answer) == ["A cat sleeps on a sofa.", "A dog looks out of a car."]


@pytest.mark.parametrize("end", ["</think>\n" + GOOD, "", "</think>"])
def test_thoughts_are_no_captions(model: Model, end: str) -> None:
    model.behaviours = [says(f"<think>\nThe cat and the dog, let me see.\n{end}")]
    assert texts(captions(model)) == (GOOD.splitlines() if GOOD in end else [])


# Plausible pairs


def test_a_pair_is_kept_when_either_class_names_the_other(model: Model) -> None:
    company = {"cat": "sofa\ndog", "dog": "1. Cat\n2. People", "hot dog": "None.", "car": "person"}
    model.behaviours = [knows_company(company)]
    answer = plausible_pairs(CLASSES, model.endpoint(), MemoryReplies())
    assert answer == Answer([(0, 1), (0, 2), (1, 5), (3, 5)])
    assert len(model.requests) == len(CLASSES)
    assert model.questions[0].endswith("\n\ndog\nsofa\ncar\nhot dog\nperson")


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("zebra\ndog\npolice car\nhot dog stand", [(0, 1)]),
        ("cat\ndog", [(0, 1)]),
        ("cat", []),
        ("dogs, a zebra, sofas", [(0, 1), (0, 2)]),
        ("- Hot-Dog\n- hotdogs", [(0, 4)]),
        ("none\nsofa", [(0, 2)]),
        ("NONE", []),
        ("<think>a dog?\ndog\n</think>sofa", [(0, 2)]),
    ],
)
def test_only_names_of_the_list_count(
    model: Model, reply: str, expected: list[tuple[int, int]]
) -> None:
    model.behaviours = [knows_company({"cat": reply})]
    assert plausible_pairs(CLASSES, model.endpoint(), MemoryReplies()) == Answer(expected)


def test_names_with_commas_and_line_breaks_can_be_named(model: Model) -> None:
    classes = ["sea", "tench, Tinca tinca", "fishing\nrod"]
    model.behaviours = [knows_company({"sea": "tench, Tinca tinca\nfishing rod"})]
    assert plausible_pairs(classes, model.endpoint(), MemoryReplies()).found == [(0, 1), (0, 2)]
    assert model.questions[0].endswith("\n\ntench, Tinca tinca\nfishing rod")


def test_rubbish_about_one_class_leaves_the_others(model: Model) -> None:
    rubbish = "Sorry, I cannot tell what goes with a dog or a sofa."
    model.behaviours = [knows_company({"cat": rubbish, "dog": "car", "sofa": "zebra"})]
    replies = MemoryReplies()
    answer = plausible_pairs(CLASSES, model.endpoint(), replies)
    assert answer.found == [(1, 3)]
    assert answer.problem == (
        "The language model's reply names none of the classes; 2 of 6 questions have no answer."
    )
    kept = [replies.get(question) for question in model.questions]
    assert kept == [None, "car", None, "none", "none", "none"]


# What is kept, and what happens when the endpoint fails


def test_a_rerun_asks_nothing(model: Model) -> None:
    replies = MemoryReplies()
    model.behaviours = [says(GOOD)]
    first = captions(model, replies)
    assert captions(model, replies) == first
    assert len(model.requests) == 1
    model.behaviours = [knows_company({"cat": "dog"})]
    pairs = plausible_pairs(CLASSES, model.endpoint(), replies)
    model.behaviours = [fails(500)]
    assert plausible_pairs(CLASSES, model.endpoint(), replies) == pairs == Answer([(0, 1)])
    assert len(model.requests) == 1 + len(CLASSES)


def test_an_unreadable_reply_is_asked_for_again(model: Model) -> None:
    replies = MemoryReplies()
    model.behaviours = [says("Sorry."), says(GOOD)]
    assert captions(model, replies).problem
    assert replies.get(model.questions[0]) is None
    replies.put(model.questions[0], "what an older version kept")
    assert texts(captions(model, replies)) == GOOD.splitlines()
    assert replies.get(model.questions[0]) == GOOD


def test_an_endpoint_that_fails_is_asked_no_more(model: Model) -> None:
    model.behaviours = [says("dog"), says("sofa"), fails(401)]
    replies = MemoryReplies()
    answer = plausible_pairs(CLASSES, model.endpoint(), replies)
    assert answer.found == [(0, 1), (1, 2)]
    assert answer.problem
    assert "401 Unauthorized" in answer.problem
    assert "4 of 6 questions" in answer.problem
    assert len(model.requests) == 3
    model.behaviours = [says("person")]
    complete = plausible_pairs(CLASSES, model.endpoint(), replies)
    assert complete == Answer([(0, 1), (1, 2), (2, 5), (3, 5), (4, 5)])
    assert len(model.requests) == 7


def test_kept_replies_count_even_behind_a_question_that_fails(model: Model) -> None:
    model.behaviours = [says("Sorry."), knows_company({"dog": "car"})]
    replies = MemoryReplies()
    first = plausible_pairs(CLASSES, model.endpoint(), replies)
    model.behaviours = [fails(401)]
    again = plausible_pairs(CLASSES, model.endpoint(), replies)
    assert first.found == again.found == [(1, 3)]
    assert again.problem
    assert "401 Unauthorized; 1 of 6" in again.problem.replace(": check URL, model and key", "")
    assert len(model.requests) == len(CLASSES) + 1


@pytest.mark.parametrize(
    ("fault", "timeout", "requests"),
    [
        (stalls, 0.5, 2),
        (fails(401), 5, 1),
        (fails(503), 5, 2),
        (closes_half_way, 5, 2),
        (breaks_the_protocol, 5, 2),
        (sends(b"<html>"), 5, 1),
        (sends(b'{"choices": []}'), 5, 1),
    ],
)
def test_every_fault_gives_a_warning_and_no_exception(
    model: Model, fault: Behaviour, timeout: float, requests: int
) -> None:
    model.behaviours = [fault]
    endpoint = model.endpoint(timeout)
    sentences = descriptive_sentences(CLASSES, SETS, endpoint, MemoryReplies())
    assert len(model.requests) == requests
    pairs = plausible_pairs(CLASSES, endpoint, MemoryReplies())
    assert len(model.requests) == 2 * requests
    assert not sentences.found
    assert not pairs.found
    assert sentences.problem
    assert pairs.problem
    assert "; 1 of 1 questions have no answer." in sentences.problem
    assert "; 6 of 6 questions have no answer." in pairs.problem
    assert KEY not in repr(sentences) + repr(pairs)
    assert "\n" not in sentences.problem
