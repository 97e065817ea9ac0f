"""The prompt bank of a data set, from its classes and labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sparc_dist.config import DatasetConfig
from sparc_dist.datasets.manifest import Manifest
from sparc_dist.datasets.sources import Labelled, class_names, open_source
from sparc_dist.prompts import BankBuilder, Embed, PromptBank, background_names
from sparc_dist.prompts.llm.replies import StoredReplies
from sparc_dist.runs import DatasetLayout


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
    replies = StoredReplies(layout.replies, f"{llm.base_url} {llm.model}" if llm else "")
    background, left_out = background_names(dataset.background, classes, vocabulary)
    builder = BankBuilder(classes, dataset.prompts, replies, background, left_out, embed)
    table: Labelled | None = None
    if dataset.prompts.source == "labels" and dataset.prompts.labels is not None:
        table = Manifest(dataset.prompts.labels, classes)
    elif dataset.prompts.source == "training":
        source = open_source(dataset, classes)
        table = source if isinstance(source, Labelled) else None
    bank = builder.build(table.labels() if table else ())
    notes = [f"Labels for co-occurrence: {note}" for note in table.notes] if table else []
    return replace(bank, ensemble=dataset.ensemble), notes + builder.notes
