"""How large a data set is, before or after it is prepared."""

from __future__ import annotations

from sparc_dist import storage
from sparc_dist.config import DatasetConfig
from sparc_dist.datasets.bank import dataset_bank
from sparc_dist.datasets.kinds import class_names, open_source
from sparc_dist.estimate import Extent
from sparc_dist.layout import DatasetLayout


def extent_of(dataset: DatasetConfig, layout: DatasetLayout) -> Extent:
    """From the run if it has begun; else the images are counted and the prompts made."""
    facts = storage.read_own_json(layout.marker)
    if facts is not None:
        return Extent(facts["images"], facts["classes"], facts["compound"])
    # A language model is not asked for an estimate; formulaic prompts of all pairs are more.
    prompts = dataset.prompts.model_copy(update={"llm": None})
    if prompts.source == "llm":
        prompts = prompts.model_copy(update={"source": "all-pairs"})
    bank, _ = dataset_bank(dataset.model_copy(update={"prompts": prompts}), layout)
    images = sum(len(batch) for batch in open_source(dataset, class_names(dataset)).images())
    return Extent(images, len(bank.classes), len(bank.compound))
