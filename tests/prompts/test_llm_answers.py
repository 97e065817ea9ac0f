"""Captions and pairs read from a language model's answers."""

from __future__ import annotations

import re
import tempfile
from itertools import combinations
from pathlib import Path

import pytest

from sparc_dist.prompts import CompoundPrompt
from sparc_dist.prompts.llm import Answer, Replies, descriptive_sentences, plausible_pairs
from sparc_dist.prompts.llm.questions import SETS_PER_QUESTION
from tests.support.llm_server import (
    GOOD,
    KEY,
    Behaviour,
    Model,
    breaks_the_protocol,
    closes_half_way,
    fails,
    knows_company,
    says,
    sends,
    stalls,
    writes_captions,
)

CLASSES = ["cat", "dog", "sofa", "car", "hot dog", "person"]
SETS = [(0, 2), (1, 3)]


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets temporary folders end with the test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def no_replies() -> Replies:
    """A folder without a stored reply."""
    return Replies(tempfile.mkdtemp())


def captions(model: Model, replies: Replies | None = None) -> Answer[CompoundPrompt]:
    return descriptive_sentences(CLASSES, SETS, model.endpoint(), replies or no_replies())


def texts(answer: Answer[CompoundPrompt]) -> list[str]:
    return [prompt.text for prompt in answer.found]


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


def test_background_classes_in_a_sentence_count_too(model: Model) -> None:
    model.behaviours = [says("A cat sits below a tree.\nA boat below a tree.\nA cat on a sofa.")]
    endpoint, background = model.endpoint(), ["tree", "boat"]
    answer = descriptive_sentences(CLASSES, SETS, endpoint, no_replies(), background)
    tree = len(CLASSES)
    assert [prompt.class_ids for prompt in answer.found] == [(0, tree), (0, 2)]
    assert "tree" not in model.questions[0]


def test_sets_are_asked_in_batches_once_each(model: Model) -> None:
    classes = [f"thing{letter}" for letter in "abcdefghij"]
    pairs = list(combinations(range(10), 2))
    model.behaviours = [writes_captions]
    sets = [*pairs, *pairs, (3,), (4, 4)]
    answer = descriptive_sentences(classes, sets, model.endpoint(), no_replies())
    assert [prompt.class_ids for prompt in answer.found] == pairs
    assert answer.problem is None
    sizes = [len(re.findall(r"^\d+\. ", text, re.MULTILINE)) for text in model.questions]
    assert sizes == [SETS_PER_QUESTION, SETS_PER_QUESTION, 5]


def test_without_sets_or_pairs_nothing_is_asked(model: Model) -> None:
    assert descriptive_sentences(CLASSES, [], model.endpoint(), no_replies()) == Answer([])
    assert plausible_pairs(["cat"], model.endpoint(), no_replies()) == Answer([])
    assert plausible_pairs([], model.endpoint(), no_replies()) == Answer([])
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
    answer = descriptive_sentences(CLASSES, sets, model.endpoint(), no_replies())
    assert len(model.requests) == 2
    assert texts(answer) == ["A cat sleeps on a sofa.", "A dog looks out of a car."]


@pytest.mark.parametrize("end", ["</think>\n" + GOOD, "", "</think>"])
def test_reasoning_is_not_read_as_captions(model: Model, end: str) -> None:
    model.behaviours = [says(f"<think>\nThe cat and the dog, let me see.\n{end}")]
    assert texts(captions(model)) == (GOOD.splitlines() if GOOD in end else [])


# Plausible pairs


def test_a_pair_is_kept_when_either_class_names_the_other(model: Model) -> None:
    company = {"cat": "sofa\ndog", "dog": "1. Cat\n2. People", "hot dog": "None.", "car": "person"}
    model.behaviours = [knows_company(company)]
    answer = plausible_pairs(CLASSES, model.endpoint(), no_replies())
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
    assert plausible_pairs(CLASSES, model.endpoint(), no_replies()) == Answer(expected)


def test_names_with_commas_and_line_breaks_can_be_named(model: Model) -> None:
    classes = ["sea", "tench, Tinca tinca", "fishing\nrod"]
    model.behaviours = [knows_company({"sea": "tench, Tinca tinca\nfishing rod"})]
    assert plausible_pairs(classes, model.endpoint(), no_replies()).found == [(0, 1), (0, 2)]
    assert model.questions[0].endswith("\n\ntench, Tinca tinca\nfishing rod")


def test_an_unreadable_reply_about_one_class_does_not_affect_others(model: Model) -> None:
    unreadable = "Sorry, I cannot tell what goes with a dog or a sofa."
    model.behaviours = [knows_company({"cat": unreadable, "dog": "car", "sofa": "zebra"})]
    replies = no_replies()
    answer = plausible_pairs(CLASSES, model.endpoint(), replies)
    assert answer.found == [(1, 3)]
    assert answer.problem == (
        "The language model's reply names none of the classes; 2 of 6 questions have no answer."
    )
    stored = [replies.get(question) for question in model.questions]
    assert stored == [None, "car", None, "none", "none", "none"]


# Stored replies, and endpoints that fail


def test_a_second_call_asks_nothing(model: Model) -> None:
    replies = no_replies()
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
    replies = no_replies()
    model.behaviours = [says("Sorry."), says(GOOD)]
    assert captions(model, replies).problem
    assert replies.get(model.questions[0]) is None
    replies.put(model.questions[0], "no caption")
    assert texts(captions(model, replies)) == GOOD.splitlines()
    assert replies.get(model.questions[0]) == GOOD


def test_an_endpoint_that_fails_is_not_asked_again(model: Model) -> None:
    model.behaviours = [says("dog"), says("sofa"), fails(401)]
    replies = no_replies()
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


def test_stored_replies_are_used_after_a_question_that_fails(model: Model) -> None:
    model.behaviours = [says("Sorry."), knows_company({"dog": "car"})]
    replies = no_replies()
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
def test_every_fault_is_a_warning_and_no_exception(
    model: Model, fault: Behaviour, timeout: float, requests: int
) -> None:
    model.behaviours = [fault]
    endpoint = model.endpoint(timeout)
    sentences = descriptive_sentences(CLASSES, SETS, endpoint, no_replies())
    assert len(model.requests) == requests
    pairs = plausible_pairs(CLASSES, endpoint, no_replies())
    assert len(model.requests) == 2 * requests
    assert not sentences.found
    assert not pairs.found
    assert sentences.problem
    assert pairs.problem
    assert "; 1 of 1 questions have no answer." in sentences.problem
    assert "; 6 of 6 questions have no answer." in pairs.problem
    assert KEY not in repr(sentences) + repr(pairs)
    assert "\n" not in sentences.problem
