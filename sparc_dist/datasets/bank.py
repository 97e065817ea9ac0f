"""The prompt bank of a data set, from its classes and labels, and the size that follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sparc_dist.config import DatasetConfig
from sparc_dist.datasets.manifest import Manifest
from sparc_dist.datasets.sources import Labelled, class_names, open_source
from sparc_dist.prompts import BankBuilder, Embed, PromptBank, background_names
from sparc_dist.prompts.llm import Replies
from sparc_dist.runs import DatasetLayout
from sparc_dist.runs.results import read_dataset_facts

BANK_FACTS = ("background", "texts", "rank_numbers")


def dataset_bank(
    dataset: DatasetConfig,
    layout: DatasetLayout,
    vocabulary: Sequence[str],
    embed: Embed | None = None,
) -> tuple[PromptBank, list[str]]:
    """Returns the bank, and notes on what failed or was left out.

    vocabulary: the names that ``background: auto`` may add. embed: a model's text tower, called
    with the class names if each is paired with its nearest others; without it, the bank has as many
    pairs as there can be.
    """
    classes = class_names(dataset)
    llm = dataset.prompts.llm
    replies = Replies(layout.replies, f"{llm.base_url} {llm.model}" if llm else "")
    background, left_out = background_names(dataset.background, classes, vocabulary)
    builder = BankBuilder(classes, dataset.prompts, replies, background, left_out, embed)
    table: Labelled | None = None
    if dataset.prompts.source == "labels" and dataset.prompts.labels is not None:
        table = Manifest(dataset.prompts.labels, classes)
    elif dataset.prompts.source == "training":
        source = open_source(dataset)
        table = source if isinstance(source, Labelled) else None
    bank = builder.build(table.labels() if table else ())
    notes = [f"Labels for co-occurrence: {note}" for note in table.notes] if table else []
    return replace(bank, templates=dataset.templates), notes + builder.notes


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
    images = sum(len(batch) for batch in open_source(dataset).images())
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
