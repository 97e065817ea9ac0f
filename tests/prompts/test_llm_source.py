"""A config with an LLM: its prompts are in the bank, its replies in the run, its key nowhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparc_dist.config import DatasetConfig, LLMConfig
from sparc_dist.datasets import dataset_bank
from sparc_dist.prompts import PromptBank
from sparc_dist.prompts.llm import endpoint_of
from sparc_dist.runs import DatasetLayout
from tests.support.llm_server import KEY, Handler, Model, chat, fails, writes_captions

CLASSES = ["cat", "dog", "sofa", "car"]


@pytest.fixture
def endpoint(model: Model, monkeypatch: pytest.MonkeyPatch) -> Model:
    monkeypatch.setenv("MY_KEY", KEY)
    return model


def built(folder: Path, model: Model, **prompts: Any) -> tuple[PromptBank, list[str]]:
    llm = {"base_url": f"{model.url}/v1", "model": "tiny", "key_env": "MY_KEY"}
    llm |= prompts.pop("llm", {})
    config = DatasetConfig.model_validate(
        {
            "name": "pets",
            "kind": "folder",
            "images": "x",
            "classes": CLASSES,
            "prompts": {"llm": llm, **prompts},
        }
    )
    assert KEY not in config.model_dump_json()
    return dataset_bank(config, DatasetLayout(str(folder)), ())


def answers(handler: Handler, question: str) -> None:
    """Pairs cats with sofas and dogs with cars, and writes captions for any set."""
    if question.startswith("Write"):
        writes_captions(handler, question)
        return
    company = {"cat": "sofa", "sofa": "none", "dog": "car", "car": "none"}
    about = question.split('"')[1]
    handler.respond(chat(company[about]))


def test_plausible_pairs_and_sentences_are_asked_for_once(tmp_path: Path, endpoint: Model) -> None:
    endpoint.behaviours = [answers]
    bank, notes = built(tmp_path, endpoint, source="llm")
    assert [(prompt.text, prompt.origin) for prompt in bank.compound] == [
        ("cat and sofa", "pair"),
        ("dog and car", "pair"),
        ("A cat right beside a sofa.", "descriptive"),
        ("A dog right beside a car.", "descriptive"),
    ]
    assert notes == []
    requests = len(endpoint.requests)
    assert requests == 4 + 1
    assert built(tmp_path, endpoint, source="llm") == (bank, [])
    assert len(endpoint.requests) == requests
    stored = list((tmp_path / "llm").iterdir())
    assert len(stored) == requests
    assert all(KEY not in path.read_text() for path in stored)


def test_an_endpoint_that_fails_adds_notes_and_all_pairs_are_used(
    tmp_path: Path, endpoint: Model
) -> None:
    endpoint.behaviours = [fails(401)]
    bank, notes = built(tmp_path, endpoint, source="llm")
    assert len(bank.compound) == 6
    assert len(notes) == 2
    assert "401 Unauthorized" in notes[0]
    assert "All pairs are used instead." in notes[0]
    assert "continues without its other sentences" in notes[1]
    assert KEY not in " ".join(notes)


def test_sentences_can_be_left_out(tmp_path: Path, endpoint: Model) -> None:
    endpoint.behaviours = [answers]
    bank, _ = built(tmp_path, endpoint, source="llm", llm={"sentences": False})
    assert {prompt.origin for prompt in bank.compound} == {"pair"}
    assert len(endpoint.requests) == 4


def test_the_timeout_and_the_key_reach_the_endpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    config = LLMConfig(base_url="http://h/v1", model="m", key_env="MY_KEY", timeout_seconds=7)
    assert (endpoint_of(config).timeout_seconds, endpoint_of(config).key) == (7, KEY)
    monkeypatch.delenv("MY_KEY")
    assert endpoint_of(config).key is None
