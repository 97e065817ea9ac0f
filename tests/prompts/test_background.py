"""Background classes: which names there are, and what the prompt bank makes of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from sparc_dist.backbones import vocabulary_for
from sparc_dist.config import DATASET_KINDS, TINY, BackboneConfig, DatasetConfig, letters
from sparc_dist.datasets import dataset_bank
from sparc_dist.errors import UserError
from sparc_dist.prompts import (
    PromptBank,
    all_pairs,
    background_names,
    descriptive_prompts,
    general_vocabulary,
    summary,
)
from sparc_dist.prompts.background import KINDS, SYNONYMS, overlaps
from sparc_dist.runs import DatasetLayout

CLASSES = ("cat", "dog", "sofa")
VOCABULARY = general_vocabulary()
TINY_CONFIG = BackboneConfig(name="a", model=TINY)
CLIP_CONFIG = BackboneConfig(name="b", model="RN50-quickgelu", weights="openai")


def config(**fields: Any) -> DatasetConfig:
    data = {"name": "pets", "kind": "folder", "images": "x", "classes": CLASSES}
    return DatasetConfig.model_validate(data | fields)


def built(tmp_path: Path, **fields: Any) -> tuple[PromptBank, list[str]]:
    return dataset_bank(config(**fields), DatasetLayout(str(tmp_path / "run")), VOCABULARY)


def auto(*classes: str) -> tuple[str, ...]:
    return background_names("auto", classes, VOCABULARY)[0]


def test_the_vocabulary_has_distinct_lower_case_names() -> None:
    assert 100 <= len(VOCABULARY) <= 140
    assert len({letters(name) for name in VOCABULARY}) == len(VOCABULARY)
    assert all(name == " ".join(name.lower().split()) and name for name in VOCABULARY)


def test_the_vocabulary_has_no_two_names_of_a_thing() -> None:
    alike = [
        {one, other}
        for one, other in combinations(VOCABULARY, 2)
        if letters(other) in overlaps([one])
    ]
    # Seen in different photos, but each is left out where the other is a class.
    assert alike == [{"mountain", "volcano"}, {"tree", "forest"}]


@pytest.mark.parametrize("names", SYNONYMS, ids=lambda names: str(names[0]))
def test_synonyms_are_symmetric(names: tuple[str, ...]) -> None:
    for one in names:
        for other in names:
            assert letters(other) in overlaps([one])


@pytest.mark.parametrize("thing", KINDS)
def test_a_thing_overlaps_with_its_kinds_and_they_with_it(thing: str) -> None:
    for kind in KINDS[thing]:
        assert letters(kind) in overlaps([thing])
        assert letters(thing) in overlaps([kind])


def test_kinds_of_a_thing_do_not_overlap() -> None:
    assert "woman" not in overlaps(["man"])
    assert "church" not in overlaps(["castle"])


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("Dog", "dog"),
        ("dogs", "dog"),
        ("knives", "knife"),
        ("glass", "glasses"),
        ("couch", "sofa"),
        ("Couches", "sofa"),
        ("tv monitor", "television"),
        ("tvmonitor", "television"),
        ("TV", "television"),
        ("aeroplane", "airplane"),
        ("planes", "airplane"),
        ("motor-bike", "motorcycle"),
        ("cellphone", "phone"),
        ("bikes", "bicycle"),
        ("people", "person"),
        ("woman", "person"),
        ("men", "person"),
        ("diningtable", "table"),
        ("sports ball", "soccer ball"),
        ("harbour", "harbor"),
        ("building", "skyscraper"),
    ],
)
def test_auto_leaves_out_what_a_class_names(label: str, name: str) -> None:
    assert name in VOCABULARY
    assert name not in background_names("auto", [label], VOCABULARY * 2)[0]


def test_a_name_within_a_class_name_is_no_overlap() -> None:
    assert {"car", "bed"} <= {*auto("car seat", "bedrock")}


@pytest.mark.parametrize(
    ("name", "left_out"),
    [
        ("tabby cat", {"cat"}),
        ("animal", {"dog", "cat", "horse", "elephant", "butterfly"}),
        ("vehicle", {"car", "bus", "train", "airplane"}),
        ("fruit", {"apple", "banana"}),
        ("human face", {"person"}),
    ],
)
def test_kinds_of_a_thing_overlap_with_it(name: str, left_out: set[str]) -> None:
    assert left_out <= {*VOCABULARY}
    assert left_out.isdisjoint(auto(name))


@pytest.mark.parametrize(("classes", "expected"), [(1, 79), (3, 77), (39, 41), (40, 0), (200, 0)])
def test_auto_makes_80_columns_of_fewer_than_40_classes(classes: int, expected: int) -> None:
    names = auto(*(f"class {index}" for index in range(classes)))
    assert names == VOCABULARY[:expected]


def test_auto_finds_enough_names_beside_39_classes_of_the_vocabulary() -> None:
    assert len(auto(*VOCABULARY[:39])) == 41


def test_given_names_are_used_except_for_overlaps(tmp_path: Path) -> None:
    expected = ["zebra", "Puppet"]
    names = ["couch", "zebra", "dogs", "Puppet"]
    file = tmp_path / "names.txt"
    file.write_text("\n couch\nzebra\n\ndogs\nPuppet\n")
    for choice in (names, str(file)):
        found, notes = background_names(choice, CLASSES, VOCABULARY)
        assert list(found) == expected
        assert notes == [
            "The background class 'couch' was left out, because it overlaps with the class 'sofa'.",
            "The background class 'dogs' was left out, because it overlaps with the class 'dog'.",
        ]
    assert background_names("none", CLASSES, VOCABULARY) == ((), [])


def test_a_wrong_file_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "names.txt"
    with pytest.raises(UserError, match="no file"):
        background_names(str(file), CLASSES, VOCABULARY)
    for content, problem in (("", "no classes"), ("a\n?!\n", "no letter"), ("a\na\n", "duplicate")):
        file.write_text(content)
        with pytest.raises(UserError, match=f"names.txt: .*{problem}"):
            background_names(str(file), CLASSES, VOCABULARY)


def test_official_data_sets_have_none_unless_asked_for() -> None:
    for name, kind in DATASET_KINDS.items():
        fields = {"kind": name, "classes": None if kind.official else CLASSES}
        assert config(**fields).background == ("none" if kind.official else "auto")
        assert config(**fields, background="auto").background == "auto"


def test_a_config_checks_given_names() -> None:
    assert config(background=[]).background == ()
    assert config(background=["emu"]).background_file is None
    assert config(background="none").background_file is None
    assert config(background="names.txt").background_file == "names.txt"
    for wrong in (["emu", "emu"], ["?"], None, "s3://user:key@bucket/names.txt"):
        with pytest.raises(ValidationError):
            config(background=wrong)


def test_a_bank_has_the_pairs_of_every_class_with_every_name(tmp_path: Path) -> None:
    bank, notes = built(tmp_path, background=["boat", "couch", "tree"])
    assert bank.background == ("boat", "tree")
    assert bank.columns == (*CLASSES, "boat", "tree")
    assert [(p.text, p.class_ids, p.origin) for p in bank.compound[3:]] == [
        ("cat and boat", (0, 3), "pair"),
        ("cat and tree", (0, 4), "pair"),
        ("dog and boat", (1, 3), "pair"),
        ("dog and tree", (1, 4), "pair"),
        ("sofa and boat", (2, 3), "pair"),
        ("sofa and tree", (2, 4), "pair"),
    ]
    assert [len(prompts) for prompts in bank.mentions] == [4, 4, 4, 3, 3]
    assert len(notes) == 1


def test_templates_are_not_for_pairs_with_the_background(tmp_path: Path) -> None:
    bank, _ = built(tmp_path, background=["boat"], prompts={"templates": ["or", "with"]})
    with_boat = [prompt.text for prompt in bank.compound if "boat" in prompt.text]
    assert with_boat == ["cat and boat", "dog and boat", "sofa and boat"]


@pytest.mark.parametrize(("source", "count"), [("none", 0), ("random", 90)])
def test_sources_without_pairs_have_none_with_the_background(
    tmp_path: Path, source: str, count: int
) -> None:
    bank, _ = built(tmp_path, background=["boat"], prompts={"source": source})
    assert (len(bank.compound), bank.background) == (count, ("boat",))


def test_one_class_has_pairs_too(tmp_path: Path) -> None:
    bank, _ = built(tmp_path, classes=["cat"])
    assert (len(bank.background), len(bank.compound)) == (79, 79)


def test_a_sentence_counts_the_background_names_that_it_mentions(tmp_path: Path) -> None:
    more = tmp_path / "more.txt"
    more.write_text("A cat in two boats.\nA boat.\n")
    bank, notes = built(tmp_path, background=["boat"], prompts={"descriptive": str(more)})
    assert bank.compound[-1].text == "A cat in two boats."
    assert bank.compound[-1].class_ids == (0, 3)
    assert notes == ["1 of 2 descriptive prompts mention no class and were left out."]


def test_a_bank_can_be_stored_with_its_background(tmp_path: Path) -> None:
    bank, _ = built(tmp_path)
    table = bank.to_table()
    assert len(bank.background) == 77
    assert PromptBank.from_table(table) == bank
    rows = [row for row in table.to_pylist() if row["origin"] == "background"]
    assert [row["kind"] for row in rows] == ["singleton"] * 77 + ["auxiliary"] * 77
    assert [row["class_ids"] for row in rows] == [[index] for index in range(3, 80)] * 2
    assert "background 77 classes" in summary(bank)
    assert "singleton  80" in summary(bank)


def test_other_background_classes_and_templates_have_another_hash() -> None:
    prompts = (*all_pairs(CLASSES), *descriptive_prompts(CLASSES, ["Cats on a sofa."]))
    named = [PromptBank(CLASSES, prompts, names) for names in ((), ("a",), ("b",), ("a", "b"))]
    banks = [*named, *(replace(bank, templates="simple") for bank in named)]
    assert len({bank.sha256 for bank in banks}) == len(banks)


def test_the_bundled_model_brings_its_own_names() -> None:
    names = vocabulary_for([TINY_CONFIG])
    assert len(names) == 28
    assert vocabulary_for([TINY_CONFIG, CLIP_CONFIG]) == vocabulary_for([CLIP_CONFIG]) == VOCABULARY
    assert len(background_names("auto", CLASSES, names)[0]) == 25
    assert background_names("auto", names, names) == ((), [])
