"""Prompts from a language model behind any OpenAI-compatible endpoint.

It is an extra: whatever the endpoint does (fails, stalls, answers rubbish), its caller gets what
could be had and one sentence that says what was wrong, and goes on with formulaic prompts. Texts
that people see are made of our own words, never of the server's: a server may echo the key.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from threading import Thread
from typing import Generic, Protocol, TypeVar
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import HTTPErrorProcessor, Request, build_opener

from sparc_dist.prompts.compound import CompoundPrompt
from sparc_dist.prompts.matching import ClassMatcher, words_of

Found = TypeVar("Found")

REPLY_LIMIT = 2**20
SETS_PER_QUESTION = 20
CAPTION_LENGTH = range(10, 301)

_NUMBERING = re.compile(r"^[\s\-*•–—·#]*(?:\(?\d{1,4}[.):\]*]+\s+)?")
_WRAPPING = " \t\"'“”‘’„«»`*_,[]"
_MARKUP = re.compile(r"[<>{}|\\]")
_THINKING = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)


class LLMError(Exception):
    """A question got no usable answer; one sentence, without the key."""


class EndpointError(LLMError):
    """The endpoint itself fails, so the next question would fare no better."""


class _PassingError(EndpointError):
    """May be gone when asked again."""


@dataclass(frozen=True)
class Endpoint:
    """Where the model is, and for how long to wait for it.

    timeout_seconds: the limit of a whole request, whatever the server does in between.
    retries: how often a request is repeated after 429, 5xx or a lost connection; the pause before
    the first is ``back_off_seconds`` and doubles each time.
    """

    base_url: str
    model: str
    key: str | None = field(default=None, repr=False)
    timeout_seconds: float = 60
    retries: int = 2
    back_off_seconds: float = 1.0

    def ask(self, question: str) -> str:
        """The model's reply; LLMError if there is none."""
        for retry in range(self.retries):
            with suppress(_PassingError):
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
            raise _PassingError(f"{model} could not be asked ({_reason(error)}).") from None
        if status == HTTPStatus.TOO_MANY_REQUESTS or status >= 500:
            raise _PassingError(f"{model} answered {_phrase(status)}.")
        if not 200 <= status < 300:
            raise EndpointError(f"{model} answered {_phrase(status)}: check URL, model and key.")
        if len(content) > REPLY_LIMIT:
            raise LLMError(f"{model} gave a reply of more than {REPLY_LIMIT} bytes.")
        return _text_of(content, model)

    def _request(self, question: str) -> Request:
        """The POST; what HTTP cannot carry is refused here, as urllib's errors would quote it."""
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


class Replies(Protocol):
    """Keeps the replies to questions, so that no question is asked twice."""

    def get(self, question: str) -> str | None:
        """The reply that was put, if any."""

    def put(self, question: str, reply: str) -> None:
        """Keep a usable reply."""


@dataclass(frozen=True)
class Answer(Generic[Found]):
    """What could be had; ``problem`` warns, in one sentence, that it is not all."""

    found: list[Found]
    problem: str | None = None


@dataclass(frozen=True)
class _Question(Generic[Found]):
    """A question, and how to read the reply: ``read`` raises LLMError for rubbish."""

    text: str
    read: Callable[[str], list[Found]]


def descriptive_sentences(
    classes: Sequence[str],
    sets: Sequence[tuple[int, ...]],
    endpoint: Endpoint,
    replies: Replies,
) -> Answer[CompoundPrompt]:
    """Captions for sets of classes, each once, with the classes that they really mention.

    Those may differ from the set that was asked for: what counts is what a caption says.
    """
    together = [ids for ids in dict.fromkeys(sets) if len(set(ids)) > 1]
    batches = [
        together[start : start + SETS_PER_QUESTION]
        for start in range(0, len(together), SETS_PER_QUESTION)
    ]
    read = partial(_read_captions, ClassMatcher(classes))
    questions = [_Question(_caption_question(classes, batch), read) for batch in batches]
    answer = _ask_all(questions, endpoint, replies)
    distinct: dict[str, CompoundPrompt] = {}
    for prompt in answer.found:
        distinct.setdefault(prompt.text.casefold(), prompt)
    return Answer(list(distinct.values()), answer.problem)


def plausible_pairs(
    classes: Sequence[str], endpoint: Endpoint, replies: Replies
) -> Answer[tuple[int, int]]:
    """The pairs (i < j) of which either class was said to appear in a photo of the other.

    After a problem, pairs of the classes that were not asked about may be missing.
    """
    matcher = ClassMatcher(classes)
    questions = [
        _Question(_company_question(classes, index), partial(_read_company, matcher, index))
        for index in range(len(classes))
        if len(classes) > 1
    ]
    answer = _ask_all(questions, endpoint, replies)
    return Answer(sorted(set(answer.found)), answer.problem)


def _ask_all(
    questions: Sequence[_Question[Found]], endpoint: Endpoint, replies: Replies
) -> Answer[Found]:
    """All answers, in order; once the endpoint fails, only those that are kept."""
    found: list[Found] = []
    problem, unanswered, down = "", 0, False
    for question in questions:
        answer = _kept(question, replies)
        if answer is None and not down:
            try:
                answer = _asked(question, endpoint, replies)
            except LLMError as error:
                problem, down = str(error), isinstance(error, EndpointError)
        found += answer or []
        unanswered += answer is None
    if not unanswered:
        return Answer(found)
    missing = f"{unanswered} of {len(questions)} questions have no answer"
    return Answer(found, f"{problem.removesuffix('.')}; {missing}.")


def _kept(question: _Question[Found], replies: Replies) -> list[Found] | None:
    """What a kept reply says; None where there is none, or none that can be read."""
    reply = replies.get(question.text)
    if reply is not None:
        with suppress(LLMError):
            return question.read(reply)
    return None


def _asked(question: _Question[Found], endpoint: Endpoint, replies: Replies) -> list[Found]:
    """What the model says; the reply is kept once it has proved readable."""
    reply = endpoint.ask(question.text)
    found = question.read(reply)
    replies.put(question.text, reply)
    return found


def _caption_question(classes: Sequence[str], sets: Sequence[tuple[int, ...]]) -> str:
    lists = ("; ".join(_one_line(classes[index]) for index in ids) for ids in sets)
    return "\n".join(
        [
            "Write one natural, descriptive photo caption for each of the lists of things below.",
            "A caption is one sentence that mentions at least two things of its list by name.",
            "Answer with the captions only, one per line, in the order of the lists.",
            "",
            *(f"{number}. {names}" for number, names in enumerate(lists, 1)),
        ]
    )


def _company_question(classes: Sequence[str], index: int) -> str:
    others = [_one_line(name) for other, name in enumerate(classes) if other != index]
    return "\n".join(
        [
            "Which of the things listed below plausibly appear in the same photo as"
            f' "{_one_line(classes[index])}"?',
            "Answer with their names only, one per line, exactly as they are written in the list;",
            "answer with the word none if there are none.",
            "",
            *others,
        ]
    )


def _read_captions(matcher: ClassMatcher, reply: str) -> list[CompoundPrompt]:
    """The lines that are captions of two classes or more."""
    captions = [
        CompoundPrompt(line, ids, "descriptive")
        for line in _lines(reply)
        if _is_caption(line) and len(ids := matcher.classes_in(line)) > 1
    ]
    if not captions:
        raise LLMError("The language model's reply has no caption that mentions two classes.")
    return captions


def _read_company(matcher: ClassMatcher, index: int, reply: str) -> list[tuple[int, int]]:
    """The pairs of class ``index`` with the classes named, one per line or between commas."""
    named: set[int] = set()
    lines = _lines(reply)
    for line in lines:
        named.update(_name(matcher, line) or _names(matcher, line.split(",")))
    if not named and not any(words_of(line) == ["none"] for line in lines):
        raise LLMError("The language model's reply names none of the classes.")
    return [(min(index, other), max(index, other)) for other in named if other != index]


def _name(matcher: ClassMatcher, text: str) -> tuple[int, ...]:
    """The class that the whole text names; as one word, so that "police car" is not "car"."""
    return matcher.classes_in("".join(words_of(text)))


def _names(matcher: ClassMatcher, texts: Sequence[str]) -> list[int]:
    return [index for text in texts for index in _name(matcher, text)]


def _is_caption(line: str) -> bool:
    """Whether a line can be one: no heading, no markup, no characters that nobody sees."""
    return (
        len(line) in CAPTION_LENGTH
        and line.isprintable()
        and not line.endswith(":")
        and not _MARKUP.search(line)
    )


def _lines(reply: str) -> list[str]:
    """The lines of a reply without what models put around them: thoughts, numbers, quotes."""
    lines = _THINKING.sub("", reply).splitlines()
    bare = (_NUMBERING.sub("", line.strip(_WRAPPING)).strip(_WRAPPING) for line in lines)
    return [_one_line(line) for line in bare if line]


def _one_line(text: str) -> str:
    """``text`` with single spaces."""
    return " ".join(text.split())


def _text_of(content: bytes, model: str) -> str:
    """The reply in the JSON of a chat completion."""
    try:
        reply = json.loads(content)["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError, RecursionError):
        problem = f"{model} does not answer as an OpenAI-compatible endpoint does."
        raise EndpointError(problem) from None
    if not isinstance(reply, str) or not reply.strip():
        raise LLMError(f"{model} gave an empty reply.")
    # JSON can escape half a character, which no file could hold.
    return reply.encode(errors="replace").decode()


def _completions_url(base_url: str) -> str:
    """Where to post; only what is surely a web address."""
    try:
        parts = urlsplit(base_url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or "@" in parts.netloc or not re.fullmatch(r"[!-~]+", base_url):
        raise EndpointError("The language model's base URL is not of the form https://host/path.")
    return parts._replace(path=parts.path.rstrip("/") + "/chat/completions").geturl()


class _AsItIs(HTTPErrorProcessor):
    """Hands on every response, redirects too: the key goes nowhere but where it was meant to."""

    def http_response(self, request: Request, response: HTTPResponse) -> HTTPResponse:
        return response

    https_response = http_response


_OPENER = build_opener(_AsItIs)


def _post(request: Request, timeout_seconds: float) -> tuple[int, bytes]:
    """Status and content, of which no more is read than shows that it is too long."""
    with _OPENER.open(request, timeout=timeout_seconds) as response:
        content: bytes = response.read(REPLY_LIMIT + 1)
        if response.length and len(content) <= REPLY_LIMIT:
            raise ConnectionError("closed half way")
        return response.status, content


def _within(seconds: float, work: Callable[[], Found]) -> Found:
    """What ``work`` gives, or TimeoutError.

    A socket's own timeout starts anew with every byte and leaves out the look-up of names. So the
    work has a thread of its own, which is left behind when its time is up.
    """
    future: Future[Found] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future.result(seconds)


def _reason(error: Exception) -> str:
    """Why there was no response, in the words of the operating system or ours."""
    cause = error.reason if isinstance(error, URLError) else error
    if isinstance(cause, TimeoutError):
        return "no answer in time"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return "the connection broke off"


def _phrase(status: int) -> str:
    """ "404 Not Found"."""
    with suppress(ValueError):
        return f"{status} {HTTPStatus(status).phrase}"
    return str(status)
