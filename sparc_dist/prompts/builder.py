"""Builds a data set's prompt bank as its config asks for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sparc_dist import storage
from sparc_dist.config import LLMConfig, PromptsConfig
from sparc_dist.errors import UserError, quoted
from sparc_dist.prompts.bank import PromptBank, descriptive_prompts
from sparc_dist.prompts.compound import (
    CompoundPrompt,
    Cooccurrence,
    Partners,
    all_pairs,
    background_pairs,
    from_cooccurrence,
    from_sets,
    in_templates,
    nearest_partners,
    random_prompts,
)
from sparc_dist.prompts.llm import Replies, descriptive_sentences, endpoint_of, plausible_pairs
from sparc_dist.prompts.matching import ClassMatcher

#: Returns the embeddings (n, d) of texts.
Embed = Callable[[Sequence[str]], NDArray[np.float32]]

#: With more classes than the first, each is paired with the second number of others.
MANY_CLASSES, PAIRS_PER_CLASS = 40, 30

#: A worker must hold the rank statistics several times.
MOST_RANK_BYTES = 2e9


def check_rank_statistics(mentions: Sequence[int]) -> None:
    """Raises UserError if they would not fit. mentions: the number of prompts of each class."""
    size = 8.0 * sum((1 + count) ** 2 for count in mentions)
    if size > MOST_RANK_BYTES:
        raise UserError(
            f"{len(mentions):,} classes with up to {max(mentions):,} compound prompts each need "
            f"{size / 1e9:,.0f} GB of rank statistics, and {MOST_RANK_BYTES / 1e9:.0f} GB fit; "
            f"lower prompts.pairs_per_class (by default {PAIRS_PER_CLASS} above {MANY_CLASSES} "
            "classes), or use the source `llm` or `list`."
        )


@dataclass
class BankBuilder:
    """Builds a prompt bank; ``notes`` says what failed or was left out.

    embed: a model's text tower, to find the nearest partners of each class if it is not paired with
    all others. Without it, as many pairs are made as there can be.
    """

    classes: tuple[str, ...]
    config: PromptsConfig
    replies: Replies
    background: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)
    embed: Embed | None = None

    def build(self, training: Iterable[Sequence[Sequence[int]]]) -> PromptBank:
        """Returns the bank; ``training``: batches of label lists, to count co-occurrence in."""
        prompts = in_templates(self.classes, self._formulaic(training), self.config.templates)
        sets = [prompt.class_ids for prompt in prompts]
        if self.config.source not in ("none", "random"):
            prompts += background_pairs(self.classes, self.background)
        if self.config.descriptive is not None:
            prompts += self._from_file(self.config.descriptive)
        if self.config.llm is not None and self.config.llm.sentences:
            prompts += self._from_llm(self.config.llm, sets)
        # The first of equal texts stays: the classes of a pair are known, of a sentence guessed.
        distinct: dict[str, CompoundPrompt] = {}
        for prompt in prompts:
            distinct.setdefault(prompt.text, prompt)
        bank = PromptBank(self.classes, tuple(distinct.values()), self.background)
        check_rank_statistics(list(map(len, bank.mentions)))
        return bank

    def _formulaic(self, training: Iterable[Sequence[Sequence[int]]]) -> Sequence[CompoundPrompt]:
        config, classes = self.config, self.classes
        if config.source in ("training", "labels"):
            counted = self._count(training)
            return from_cooccurrence(classes, counted, (config.tau2, config.tau3), config.direction)
        if config.source == "list" and config.sets is not None:
            return from_sets(classes, self._read_sets(config.sets))
        if config.source == "llm" and config.llm is not None:
            return self._llm_pairs(config.llm)
        if config.source == "random":
            return random_prompts(classes, config.random_per_class, config.seed)
        return self._all_pairs() if config.source == "all-pairs" else ()

    def _all_pairs(self) -> list[CompoundPrompt]:
        """Returns the pairs of all classes, as many of each class as the config asks for."""
        limit, count = self.config.pairs_per_class, len(self.classes)
        if limit == "auto":
            limit = PAIRS_PER_CLASS if count > MANY_CLASSES else "all"
        if limit == "all" or limit >= count - 1:
            check_rank_statistics([count - 1] * count)  # before millions of prompts are written
            return all_pairs(self.classes)
        return all_pairs(self.classes, self._partners(limit))

    def _partners(self, k: int) -> Partners:
        """Returns k partners of each class (N, k): the nearest or, without a model, the next."""
        if self.embed is not None:
            return nearest_partners(self.embed(self.classes), k)
        count = len(self.classes)
        # Few classes are each other's next, so no other choice makes more pairs.
        return (np.arange(count)[:, None] + np.arange(1, k + 1)) % count

    def _count(self, training: Iterable[Sequence[Sequence[int]]]) -> Cooccurrence:
        total: Cooccurrence | None = None
        for batch in training:
            counts = Cooccurrence.of(batch, len(self.classes))
            total = counts if total is None else total + counts
        if total is None or not total.counts.any():
            where = self.config.labels or "The training split"
            raise UserError(f"{where} has no labels; provide a table with labels of the classes.")
        return total

    def _read_sets(self, url: str) -> list[tuple[int, ...]]:
        """Reads pairs and triplets: class names separated by commas or the word "and"."""
        matcher = ClassMatcher(self.classes)
        sets = []
        for number, line in enumerate(storage.read_lines(url), 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            names = [name for name in re.split(r",|\band\b", line) if name.strip()]
            found = [matcher.classes_in(name) for name in names]
            ids = tuple(sorted({index for classes in found for index in classes}))
            if len(ids) not in (2, 3) or any(len(classes) != 1 for classes in found):
                raise UserError(
                    f"{url}, line {number}: {quoted(line.strip())} does not name two or three "
                    "classes; separate their names with commas."
                )
            sets.append(ids)
        if not sets:
            raise UserError(f"{url} names no pair of classes; write one per line.")
        return list(dict.fromkeys(sets))

    def _from_file(self, url: str) -> list[CompoundPrompt]:
        texts = (line.strip() for line in storage.read_lines(url))
        lines = list(dict.fromkeys(text for text in texts if text))
        prompts = descriptive_prompts(self.classes, lines, self.background)
        if not prompts:
            raise UserError(
                f"No line of {url} mentions a class; check the names, or remove `descriptive`."
            )
        if len(prompts) < len(lines):
            self.notes.append(
                f"{len(lines) - len(prompts)} of {len(lines)} descriptive prompts mention no class "
                "and were left out."
            )
        return prompts

    def _llm_pairs(self, config: LLMConfig) -> list[CompoundPrompt]:
        answer = plausible_pairs(self.classes, endpoint_of(config), self.replies)
        if answer.problem:
            self.notes.append(f"{answer.problem} All pairs are used instead.")
            return self._all_pairs()
        return from_sets(self.classes, answer.found)

    def _from_llm(self, config: LLMConfig, sets: Sequence[tuple[int, ...]]) -> list[CompoundPrompt]:
        """Returns captions for sets of classes."""
        answer = descriptive_sentences(
            self.classes, sets, endpoint_of(config), self.replies, self.background
        )
        if answer.problem:
            self.notes.append(f"{answer.problem} The run continues without its other sentences.")
        return list(answer.found)
