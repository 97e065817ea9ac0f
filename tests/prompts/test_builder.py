"""The prompt bank from every source a config may name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sparc_dist.config import DatasetConfig
from sparc_dist.datasets import dataset_bank
from sparc_dist.errors import UserError
from sparc_dist.prompts import PromptBank, summary
from sparc_dist.runs import DatasetLayout

CLASSES = ["cat", "dog", "sofa"]


def built(tmp_path: Path, **prompts: Any) -> tuple[PromptBank, list[str]]:
    config = DatasetConfig.model_validate(
        {"name": "pets", "kind": "folder", "images": "x", "classes": CLASSES, "prompts": prompts}
    )
    return dataset_bank(config, DatasetLayout(str(tmp_path / "run" / "pets")), ())


def texts(tmp_path: Path, **prompts: Any) -> list[str]:
    return [prompt.text for prompt in built(tmp_path, **prompts)[0].compound]


def test_all_pairs_and_none(tmp_path: Path) -> None:
    assert texts(tmp_path) == ["cat and dog", "cat and sofa", "dog and sofa"]
    assert texts(tmp_path, source="none") == []


def test_a_label_table(tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    table.write_text("labels\n" + "cat;sofa\n" * 3 + "dog\n" * 3 + "emu\n")
    bank, notes = built(tmp_path, source="labels", labels=str(table))
    assert [prompt.text for prompt in bank.compound] == ["cat and sofa"]
    (note,) = notes
    assert note.endswith("1 labels of 1 unknown classes, such as 'emu', were left out.")


def test_a_label_table_without_labels(tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    table.write_text("uri\na.jpg\n")
    with pytest.raises(UserError, match="no column `labels`"):
        built(tmp_path, source="labels", labels=str(table))
    table.write_text("labels\n")
    with pytest.raises(UserError, match=r"labels.csv has no labels"):
        built(tmp_path, source="labels", labels=str(table))


def test_a_list_of_pairs_and_triplets(tmp_path: Path) -> None:
    sets = tmp_path / "sets.txt"
    sets.write_text("# what my cameras see\ncats, sofas\n\nsofa and cat\ndog, cat, sofa\n")
    assert texts(tmp_path, source="list", sets=str(sets)) == ["cat and sofa", "cat, dog, and sofa"]
    sets.write_text("cat, boat\n")
    with pytest.raises(UserError, match=r"line 1: 'cat, boat' does not name two or three"):
        texts(tmp_path, source="list", sets=str(sets))
    sets.write_text("cat, dog, sofaa\n")
    with pytest.raises(UserError, match="does not name two or three classes"):
        texts(tmp_path, source="list", sets=str(sets))
    sets.write_text("\n")
    with pytest.raises(UserError, match="names no pair of classes"):
        texts(tmp_path, source="list", sets=str(sets))


def test_templates_apply_to_pairs_only(tmp_path: Path) -> None:
    sets = tmp_path / "sets.txt"
    sets.write_text("cat, sofa\ndog, cat, sofa\n")
    words = ["and", "or", "with", "next to", "and not"]
    assert texts(tmp_path, source="list", sets=str(sets), templates=words) == [
        "cat and sofa",
        "cat or sofa",
        "cat with sofa",
        "cat next to sofa",
        "cat and not sofa",
        "cat, dog, and sofa",
    ]
    assert "cat or dog" in texts(tmp_path, templates=["or"])
    assert "cat and dog" not in texts(tmp_path, templates=["or"])


def test_the_random_control_has_the_same_endings_for_every_class(tmp_path: Path) -> None:
    bank, _ = built(tmp_path, source="random")
    assert len(bank.compound) == 30 * 3
    ends = {
        index: [p.text.rsplit(maxsplit=1)[1] for p in bank.compound if p.class_ids == (index,)]
        for index in range(3)
    }
    assert ends[0] == ends[1] == ends[2]
    assert len(set(ends[0])) == 30
    assert {len(end) for end in ends[0]} == {10}
    assert bank.compound[0].text.startswith("A photo of a cat, which is ")
    assert bank == built(tmp_path, source="random")[0]
    assert bank != built(tmp_path, source="random", seed=1)[0]
    assert len(built(tmp_path, source="random", random_per_class=2)[0].compound) == 6


def test_descriptive_sentences_are_added(tmp_path: Path) -> None:
    more = tmp_path / "more.txt"
    more.write_text("Two cats on a sofa.\ncat and dog\nA boat.\n")
    bank, notes = built(tmp_path, descriptive=str(more))
    assert [(p.text, p.origin) for p in bank.compound][2:] == [
        ("dog and sofa", "pair"),
        ("Two cats on a sofa.", "descriptive"),
    ]
    assert notes == ["1 of 3 descriptive prompts mention no class and were left out."]
    more.write_text("A boat.\n")
    with pytest.raises(UserError, match=r"No line of .*more.txt mentions a class"):
        built(tmp_path, descriptive=str(more))


def test_a_summary_names_the_classes_with_few_prompts(tmp_path: Path) -> None:
    sets = tmp_path / "sets.txt"
    sets.write_text("cat, sofa\n")
    templates = ["and", "or", "with", "next to", "and not"]
    text = summary(built(tmp_path, source="list", sets=str(sets), templates=templates)[0])
    assert "compound   5: 5 pair" in text
    assert "per class  min 0, median 5, max 5" in text
    assert text.endswith("fewer than 4: dog (0)")


def many(count: int, **prompts: Any) -> DatasetConfig:
    names = [f"thing {index}" for index in range(count)]
    return DatasetConfig.model_validate(
        {"name": "d", "images": "i.csv", "classes": names, "prompts": prompts, "background": "none"}
    )


@pytest.mark.parametrize(
    ("count", "prompts", "expected"),
    [
        (40, {}, 40 * 39 // 2),
        (41, {}, 41 * 40 // 2),
        (100, {}, 100 * 30),
        (100, {"pairs_per_class": "all"}, 100 * 99 // 2),
        (41, {"pairs_per_class": 4}, 41 * 4),
        (10, {"pairs_per_class": 4}, 10 * 4),
        (5, {"pairs_per_class": 3}, 10),
        (5, {"pairs_per_class": 9}, 10),
    ],
)
def test_without_a_model_there_are_as_many_pairs_as_there_can_be(
    tmp_path: Path, count: int, prompts: dict[str, Any], expected: int
) -> None:
    bank, _ = dataset_bank(many(count, **prompts), DatasetLayout(str(tmp_path)), ())
    assert len(bank.compound) == expected


def on_a_line(names: Sequence[str]) -> NDArray[np.float32]:
    """Embeds "thing 7" at 7 degrees, so that neighbours in number are nearest."""
    angles = np.radians([float(name.split()[1]) for name in names])
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


@pytest.mark.parametrize(("count", "prompts", "k"), [(120, {}, 30), (9, {"pairs_per_class": 2}, 2)])
def test_classes_are_paired_with_the_nearest(
    tmp_path: Path, count: int, prompts: dict[str, Any], k: int
) -> None:
    config = many(count, **prompts)
    bank, _ = dataset_bank(config, DatasetLayout(str(tmp_path)), (), on_a_line)
    pairs = {prompt.class_ids for prompt in bank.compound}
    assert {(0, j) for j in range(1, k + 1)} <= pairs
    middle = count // 2
    assert {pair for pair in pairs if middle in pair} == {
        (min(middle, j), max(middle, j))
        for j in range(middle - k // 2, middle + k // 2 + 1)
        if j != middle
    }


@pytest.mark.parametrize(
    ("count", "prompts"),
    [
        (40, {}),
        (50, {"pairs_per_class": "all"}),
        (4, {"pairs_per_class": 3}),
        (50, {"source": "none"}),
        (50, {"source": "random"}),
    ],
)
def test_names_are_embedded_only_if_partners_are_chosen(
    tmp_path: Path, count: int, prompts: dict[str, Any]
) -> None:
    asked: list[Sequence[str]] = []

    def embed(names: Sequence[str]) -> NDArray[np.float32]:
        asked.append(names)
        return on_a_line(names)

    dataset_bank(many(count, **prompts), DatasetLayout(str(tmp_path)), (), embed)
    assert asked == []


def test_rank_statistics_that_would_not_fit_are_refused(tmp_path: Path) -> None:
    config, layout = many(2000, pairs_per_class="all"), DatasetLayout(str(tmp_path))
    with pytest.raises(UserError, match=r"need 64 GB of rank .*; lower prompts\.pairs_per_class"):
        dataset_bank(config, layout, ())
    assert len(dataset_bank(many(2000), layout, ())[0].compound) == 60_000


def test_the_ensemble_is_kept_in_the_table_and_changes_the_hash(tmp_path: Path) -> None:
    bank, _ = dataset_bank(many(2), DatasetLayout(str(tmp_path)), ())
    assert bank.templates == "simple"
    assert bank.texts == 2 * 8 + 1
    assert PromptBank.from_table(bank.to_table()) == bank
    paper = PromptBank(bank.classes, bank.compound)
    assert paper.templates == "openai"
    assert paper.sha256 != bank.sha256
    assert PromptBank.from_table(paper.to_table()) == paper
