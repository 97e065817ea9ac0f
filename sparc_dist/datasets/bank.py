"""The prompt bank of a data set: its classes, and its own or other labels, in prompts."""

from __future__ import annotations

from collections.abc import Iterable

from sparc_dist.config import DatasetConfig
from sparc_dist.datasets.kinds import Labelled, class_names, open_source
from sparc_dist.datasets.manifest import Manifest
from sparc_dist.layout import DatasetLayout
from sparc_dist.prompts.bank import PromptBank
from sparc_dist.prompts.source import BankBuilder, StoredReplies


def dataset_bank(dataset: DatasetConfig, layout: DatasetLayout) -> tuple[PromptBank, list[str]]:
    """The bank, and what its user should know of how it came about."""
    classes = class_names(dataset)
    builder = BankBuilder(classes, dataset.prompts, StoredReplies(layout.replies))
    notes: list[str] = []
    training: Iterable[list[list[int]]] = ()
    table = None
    if dataset.prompts.source == "labels" and dataset.prompts.labels is not None:
        table = Manifest(dataset.prompts.labels, classes)
        training = table.labels()
    elif dataset.prompts.source == "training":
        source = open_source(dataset, classes)
        training = source.labels() if isinstance(source, Labelled) else ()
    bank = builder.build(training)
    if table is not None:
        notes += table.notes
    return bank, notes + builder.notes
