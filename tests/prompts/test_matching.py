import pytest

from sparc_dist.prompts import ClassMatcher

COCO_SOME = ["person", "dog", "hot dog", "bear", "teddy bear", "knife", "mouse", "bus", "sheep"]
VOC_SOME = ["pottedplant", "diningtable", "tvmonitor", "person", "sofa"]


def found(classes: list[str], text: str) -> set[str]:
    return {classes[index] for index in ClassMatcher(classes).classes_in(text)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A hot dog on a plate.", {"hot dog"}),
        ("two hot dogs and a dog", {"hot dog", "dog"}),
        ("teddy bears", {"teddy bear"}),
        ("a bear beside a teddy-bear", {"bear", "teddy bear"}),
        ("People with KNIVES!", {"person", "knife"}),
        ("mice, buses, and persons", {"mouse", "bus", "person"}),
        ("two buss", {"bus"}),
        ("three sheep", {"sheep"}),
        ("business as usual, doggedly", set()),
        ("", set()),
    ],
)
def test_coco_names(text: str, expected: set[str]) -> None:
    assert found(COCO_SOME, text) == expected


def test_a_hot_dog_is_a_dog_unless_it_is_a_class() -> None:
    assert found(["dog", "person"], "A hot dog on a plate.") == {"dog"}
    assert found(["dog", "hot dog"], "A hot dog on a plate.") == {"hot dog"}


@pytest.mark.parametrize("text", ["potted plants and a tv monitor", "pottedplant and tvmonitors"])
def test_voc_names_match_in_both_spellings(text: str) -> None:
    assert found(VOC_SOME, text) == {"pottedplant", "tvmonitor"}


def test_a_natural_name_matches_the_joined_spelling() -> None:
    assert found(["dining table", "table"], "a diningtable") == {"dining table"}


def test_an_exact_name_takes_precedence_over_a_plural_of_another() -> None:
    assert found(["glass", "glasses"], "glasses") == {"glasses"}
    assert found(["glass", "glasses"], "a glass") == {"glass"}


def test_plural_names_match_their_singular() -> None:
    assert found(["skis", "scissors", "leaves"], "one ski and a leaf") == {"skis", "leaves"}


def test_words_are_joined_within_a_phrase_only() -> None:
    classes = ["cat", "catfish", "fish"]
    assert found(classes, "cat, fish, and a boat") == {"cat", "fish"}
    assert found(classes, "cat fish") == {"catfish"}


def test_names_with_digits_hyphens_and_other_scripts() -> None:
    classes = ["t-shirt", "a380", "Äpfel", "собака"]
    assert found(classes, "T-shirts, an A380, äpfel и собака") == set(classes)


def test_marks_belong_to_their_letters() -> None:
    assert found(["दिन", "दान"], "एक दान") == {"दान"}


def test_aliases_match_their_class() -> None:
    matcher = ClassMatcher(["motorcycle", "car"], {"motor bike": "motorcycle", "food bowl": "bowl"})
    assert matcher.classes_in("car and motor bikes") == (0, 1)
    assert matcher.classes_in("food bowl") == ()
