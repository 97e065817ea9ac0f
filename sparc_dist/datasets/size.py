"""The size of a data set, before or after it is prepared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparc_dist.config import DatasetConfig
from sparc_dist.datasets.bank import dataset_bank
from sparc_dist.datasets.sources import class_names, open_source
from sparc_dist.prompts import PromptBank
from sparc_dist.runs import DatasetLayout
from sparc_dist.runs.outcome import read_dataset_facts

BANK_FACTS = ("background", "texts", "rank_numbers")


@dataclass(frozen=True)
class DatasetSize:
    """The number of a data set's images, classes, compound prompts and background classes.

    texts: to be embedded. rank_numbers: of the rank statistics, which grow with the square of the
    prompts that mention a class.
    """

    images: int
    classes: int
    compounds: int
    background: int = 0
    texts: int = 0
    rank_numbers: int = 0

    @property
    def columns(self) -> int:
        """The number of classes that are scored, reported or not."""
        return self.classes + self.background

    @property
    def prompts(self) -> int:
        """The number of scores of an image: singleton, auxiliary and compound."""
        return 2 * self.columns + self.compounds


def size_of(
    dataset: DatasetConfig, layout: DatasetLayout, vocabulary: Sequence[str]
) -> DatasetSize:
    """Returns a data set's size: from the run if it is prepared, else by listing its images."""
    facts = read_dataset_facts(layout)
    if facts is not None:
        counts = (facts["images"], facts["classes"], facts["compound"])
        return DatasetSize(*counts, *(facts[name] for name in BANK_FACTS))
    # An estimate asks no language model and loads no text tower: it counts all pairs, or as many as
    # pairs_per_class can make.
    prompts = dataset.prompts.model_copy(update={"llm": None})
    if prompts.source == "llm":
        prompts = prompts.model_copy(update={"source": "all-pairs"})
    bank, _ = dataset_bank(dataset.model_copy(update={"prompts": prompts}), layout, vocabulary)
    images = sum(len(batch) for batch in open_source(dataset, class_names(dataset)).images())
    facts = bank_facts(bank)
    counts = (images, facts["classes"], facts["compound"])
    return DatasetSize(*counts, *(facts[name] for name in BANK_FACTS))


def bank_facts(bank: PromptBank) -> dict[str, int]:
    """Returns the numbers of a bank that dataset.json keeps."""
    return {
        "classes": len(bank.classes),
        "compound": len(bank.compound),
        "background": len(bank.background),
        "texts": bank.texts,
        "rank_numbers": sum((1 + len(prompts)) ** 2 for prompts in bank.mentions),
    }
