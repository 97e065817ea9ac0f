"""The sets of compound prompts that ablations compare, made from a run's prompt bank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import get_args

import numpy as np

from sparc_dist.config import PairTemplate
from sparc_dist.core.order_statistics import Mentions, mentions_of
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
    """The name of the set of filtered pairs in a template."""
    return f"pairs with {template!r}"


def prompts_of(name: str, bank: PromptBank) -> Sequence[CompoundPrompt]:
    """The prompts of a set."""
    classes = bank.classes
    if name == STORED:
        return bank.compound
    if name == ALL_PAIRS:
        return all_pairs(classes)
    if name == RANDOM:
        return random_prompts(classes, RANDOM_PER_CLASS, SEED)
    # Whatever template the run asked in: the pairs are those classes, each pair once.
    sets = dict.fromkeys(p.class_ids for p in bank.compound if p.origin == "pair")
    pairs = from_sets(classes, list(sets))
    templates = [word for word in TEMPLATES if name in (in_template(word), ALL_TEMPLATES)]
    if templates == ["and not"]:  # the paper asks it beside "and", never alone
        templates = ["and", "and not"]
    return in_templates(classes, pairs, templates) if templates else pairs


@dataclass
class Columns:
    """Where each prompt's scores stand: those of the run first, then those to be scored anew.

    more: the prompts that no stored score answers.
    """

    bank: PromptBank
    more: list[CompoundPrompt] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._at = {prompt.text: i for i, prompt in enumerate(self.bank.compound)}

    def mentions(self, name: str) -> Mentions:
        """For each class the columns of a set that mention it."""
        prompts = prompts_of(name, self.bank)
        for prompt in prompts:
            if prompt.text not in self._at:
                self._at[prompt.text] = len(self._at)
                self.more.append(prompt)
        numbers = np.array([self._at[prompt.text] for prompt in prompts], dtype=np.int64)
        found = mentions_of([prompt.class_ids for prompt in prompts], len(self.bank.classes))
        return [numbers[indices] for indices in found]

    def has(self, name: str) -> bool:
        """Whether there is any prompt in a set; the run's own may be empty."""
        return name == STORED or bool(prompts_of(name, self.bank))

    def is_stored(self, name: str) -> bool:
        """Whether a set needs no text that the run has not asked about."""
        known = {prompt.text for prompt in self.bank.compound}
        return all(prompt.text in known for prompt in prompts_of(name, self.bank))
