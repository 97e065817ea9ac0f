"""The questions to a language model, and how its replies are read and stored.

If the endpoint fails, stalls or answers nonsense, the caller gets what could be read and one
sentence about the problem, and continues with formulaic prompts.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from sparc_dist import storage
from sparc_dist.config import words_of
from sparc_dist.prompts.compound import CompoundPrompt
from sparc_dist.prompts.llm.endpoint import Endpoint, EndpointError, LLMError
from sparc_dist.prompts.matching import ClassMatcher

Found = TypeVar("Found")

SETS_PER_QUESTION = 20
CAPTION_LENGTH = range(10, 301)

_NUMBERING = re.compile(r"^[\s\-*•–—·#]*(?:\(?\d{1,4}[.):\]*]+\s+)?")
_WRAPPING = " \t\"'“”‘’„«»`*_,[]"
_MARKUP = re.compile(r"[<>{}|\\]")
_THINKING = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)


@dataclass(frozen=True)
class Replies:
    """An LLM's replies, stored in the run, so that a resumed run asks nothing again.

    folder: where the replies are stored. endpoint: the URL and model of the LLM.
    """

    folder: str
    endpoint: str = ""

    def get(self, question: str) -> str | None:
        """Returns the reply to a question asked before, if any."""
        stored = storage.read_json_if_exists(self._url(question))
        reply = stored.get("reply") if isinstance(stored, dict) else None
        return reply if isinstance(reply, str) else None

    def put(self, question: str, reply: str) -> None:
        """Stores a reply."""
        storage.write_json(self._url(question), {"question": question, "reply": reply})

    def _url(self, question: str) -> str:
        # The hash includes the endpoint, because each model has its own reply.
        name = hashlib.sha256(f"{self.endpoint}\n{question}".encode()).hexdigest()[:24]
        return storage.join(self.folder, f"{name}.json")


@dataclass(frozen=True)
class Answer(Generic[Found]):
    """What could be read; ``problem`` says in one sentence why something is missing."""

    found: list[Found]
    problem: str | None = None


@dataclass(frozen=True)
class _Question(Generic[Found]):
    """A question and the function that reads its reply, or raises LLMError if it cannot."""

    text: str
    read: Callable[[str], list[Found]]


def descriptive_sentences(
    classes: Sequence[str],
    sets: Sequence[tuple[int, ...]],
    endpoint: Endpoint,
    replies: Replies,
    background: Sequence[str] = (),
) -> Answer[CompoundPrompt]:
    """Returns distinct captions for sets of classes, with the classes that they mention.

    These may differ from the set in the question: the text of a caption decides. Its background
    classes are counted too.
    """
    several = [ids for ids in dict.fromkeys(sets) if len(set(ids)) > 1]
    batches = [
        several[start : start + SETS_PER_QUESTION]
        for start in range(0, len(several), SETS_PER_QUESTION)
    ]
    read = partial(_read_captions, ClassMatcher([*classes, *background]), len(classes))
    questions = [_Question(_caption_question(classes, batch), read) for batch in batches]
    answer = _ask_all(questions, endpoint, replies)
    distinct: dict[str, CompoundPrompt] = {}
    for prompt in answer.found:
        distinct.setdefault(prompt.text.casefold(), prompt)
    return Answer(list(distinct.values()), answer.problem)


def plausible_pairs(
    classes: Sequence[str], endpoint: Endpoint, replies: Replies
) -> Answer[tuple[int, int]]:
    """Returns the pairs of classes (i < j) that the model expects in the same photo.

    After a problem, pairs may be missing.
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
    """Returns all answers, in order; after the endpoint fails, only the stored ones."""
    found: list[Found] = []
    problem, unanswered, down = "", 0, False
    for question in questions:
        answer = _read_stored(question, replies)
        if answer is None and not down:
            try:
                answer = _ask(question, endpoint, replies)
            except LLMError as error:
                problem, down = str(error), isinstance(error, EndpointError)
        found += answer or []
        unanswered += answer is None
    if not unanswered:
        return Answer(found)
    missing = f"{unanswered} of {len(questions)} questions have no answer"
    return Answer(found, f"{problem.removesuffix('.')}; {missing}.")


def _read_stored(question: _Question[Found], replies: Replies) -> list[Found] | None:
    """Returns the answer in the stored reply; None if there is no readable one."""
    reply = replies.get(question.text)
    if reply is not None:
        with suppress(LLMError):
            return question.read(reply)
    return None


def _ask(question: _Question[Found], endpoint: Endpoint, replies: Replies) -> list[Found]:
    """Returns the model's answer, and stores its reply if it is readable."""
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


def _read_captions(matcher: ClassMatcher, classes: int, reply: str) -> list[CompoundPrompt]:
    """Returns the captions that mention two classes, of which one may be a background class."""
    captions = [
        CompoundPrompt(line, ids, "descriptive")
        for line in _lines(reply)
        if _is_caption(line) and len(ids := matcher.classes_in(line)) > 1 and ids[0] < classes
    ]
    if not captions:
        raise LLMError("The language model's reply has no caption that mentions two classes.")
    return captions


def _read_company(matcher: ClassMatcher, index: int, reply: str) -> list[tuple[int, int]]:
    """Returns the pairs of class ``index`` with the classes named on lines or between commas."""
    named: set[int] = set()
    lines = _lines(reply)
    for line in lines:
        parts = line.split(",")
        named.update(_name(matcher, line) or (i for part in parts for i in _name(matcher, part)))
    if not named and not any(words_of(line) == ["none"] for line in lines):
        raise LLMError("The language model's reply names none of the classes.")
    return [(min(index, other), max(index, other)) for other in named if other != index]


def _name(matcher: ClassMatcher, text: str) -> tuple[int, ...]:
    """Returns the class that the whole text names, so that "police car" does not name "car"."""
    return matcher.classes_in("".join(words_of(text)))


def _is_caption(line: str) -> bool:
    """Whether a line can be a caption: no heading, markup or invisible characters."""
    return (
        len(line) in CAPTION_LENGTH
        and line.isprintable()
        and not line.endswith(":")
        and not _MARKUP.search(line)
    )


def _lines(reply: str) -> list[str]:
    """Returns the lines of a reply without reasoning, numbering and quotes."""
    lines = _THINKING.sub("", reply).splitlines()
    bare = (_NUMBERING.sub("", line.strip(_WRAPPING)).strip(_WRAPPING) for line in lines)
    return [_one_line(line) for line in bare if line]


def _one_line(text: str) -> str:
    """Returns ``text`` with single spaces."""
    return " ".join(text.split())
