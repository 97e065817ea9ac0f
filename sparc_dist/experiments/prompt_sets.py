"""The sets of compound prompts that ablations compare, built from a run's prompt bank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import get_args

import numpy as np

from sparc_dist.config import PairTemplate
from sparc_dist.core import Mentions, mentions_of
from sparc_dist.core.variants import STORED
from sparc_dist.prompts import (
    CompoundPrompt,
    PromptBank,
    all_pairs,
    from_sets,
    in_templates,
    random_prompts,
)

ALL_PAIRS, PAIRS, RANDOM = "all pairs", "filtered pairs", "random"
ALL_TEMPLATES = "all templates"
TEMPLATES: tuple[PairTemplate, ...] = get_args(PairTemplate)
RANDOM_PER_CLASS, SEED = 30, 0


def in_template(template: str) -> str:
    """Returns the name of the set of filtered pairs in a template."""
    return f"pairs with {template!r}"


def prompts_of(name: str, bank: PromptBank) -> Sequence[CompoundPrompt]:
    """Returns the prompts of a set."""
    classes = bank.classes
    if name == STORED:
        return bank.compound
    if name == ALL_PAIRS:
        return all_pairs(classes)
    if name == RANDOM:
        return random_prompts(classes, RANDOM_PER_CLASS, SEED)
    # Each pair of classes once, whatever template the run used; none with a background class.
    pairs_of_run = (p.class_ids for p in bank.compound if p.origin == "pair")
    sets = dict.fromkeys(ids for ids in pairs_of_run if max(ids) < len(classes))
    pairs = from_sets(classes, list(sets))
    templates = [word for word in TEMPLATES if name in (in_template(word), ALL_TEMPLATES)]
    if templates == ["and not"]:  # the paper uses it together with "and", never alone
        templates = ["and", "and not"]
    return in_templates(classes, pairs, templates) if templates else pairs


@dataclass
class Columns:
    """The column of each prompt's scores: the run's prompts first, then the extra ones.

    extra: the prompts that the run has no scores of.
    """

    bank: PromptBank
    extra: list[CompoundPrompt] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._column = {prompt.text: i for i, prompt in enumerate(self.bank.compound)}

    def mentions(self, name: str) -> Mentions:
        """Returns for each class the columns of a set's prompts that mention it."""
        prompts = prompts_of(name, self.bank)
        for prompt in prompts:
            if prompt.text not in self._column:
                self._column[prompt.text] = len(self._column)
                self.extra.append(prompt)
        columns = np.array([self._column[prompt.text] for prompt in prompts], dtype=np.int64)
        mentions = mentions_of([prompt.class_ids for prompt in prompts], len(self.bank.columns))
        return [columns[indices] for indices in mentions[: len(self.bank.classes)]]

    def is_available(self, name: str) -> bool:
        """Whether a set has prompts; the run's own set is available even if empty."""
        return name == STORED or bool(prompts_of(name, self.bank))

    def is_stored(self, name: str) -> bool:
        """Whether the run has scores of all prompts of a set."""
        stored = {prompt.text for prompt in self.bank.compound}
        return all(prompt.text in stored for prompt in prompts_of(name, self.bank))
