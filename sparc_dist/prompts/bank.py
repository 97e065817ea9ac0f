"""The prompt bank: all prompts of a data set, with their kind and the classes they mention."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from sparc_dist.core import Mentions, mentions_of
from sparc_dist.prompts.compound import CompoundPrompt
from sparc_dist.prompts.matching import ClassMatcher
from sparc_dist.runs.shards import ClassNames

SCHEMA = pa.schema(
    [
        ("prompt_id", pa.int32()),
        ("text", pa.string()),
        ("kind", pa.string()),
        ("class_ids", pa.list_(pa.int32())),
        ("origin", pa.string()),
    ]
)

#: The templates of singleton prompts: open_clip's 7 simple ones, or the paper's 80.
Templates = Literal["simple", "openai"]
#: The number of each.
TEMPLATES: dict[Templates, int] = {"simple": 7, "openai": 80}
#: The origin of singleton prompts with each.
ORIGINS: dict[Templates, str] = {"simple": "simple template", "openai": "template"}
#: The origin of the singleton and auxiliary prompts of background classes.
BACKGROUND = "background"


@dataclass(frozen=True)
class PromptBank:
    """N + B singleton prompts, N + B auxiliary prompts and P compound prompts.

    The names of the N classes and the B background classes define the first two: the singleton is
    the mean of all templates with the name, the auxiliary is the name alone.
    """

    classes: tuple[str, ...]
    compound: tuple[CompoundPrompt, ...]
    background: tuple[str, ...] = ()
    templates: Templates = "openai"

    @property
    def columns(self) -> tuple[str, ...]:
        """The classes, then the background classes; ``class_ids`` of prompts are indices of it."""
        return self.classes + self.background

    @property
    def texts(self) -> int:
        """The number of texts to embed: templates, names and compound prompts."""
        return (TEMPLATES[self.templates] + 1) * len(self.columns) + len(self.compound)

    @property
    def names(self) -> ClassNames:
        """The names of the columns, as tables of scores keep them."""
        return ClassNames(self.classes, self.background)

    @property
    def mentions(self) -> Mentions:
        """The indices of the compound prompts that mention each column."""
        return mentions_of([prompt.class_ids for prompt in self.compound], len(self.columns))

    @property
    def sha256(self) -> str:
        """A hash of all prompts; scores are comparable only between banks with the same hash."""
        compound = [(prompt.text, prompt.class_ids) for prompt in self.compound]
        content = [self.classes, compound, self.background, self.templates]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def to_table(self) -> pa.Table:
        """Returns the table that is stored as prompts.parquet."""
        rows: list[tuple[str, str, tuple[int, ...], str]] = []
        for kind, origin in (("singleton", ORIGINS[self.templates]), ("auxiliary", "name")):
            origins = [origin] * len(self.classes) + [BACKGROUND] * len(self.background)
            names = enumerate(zip(self.columns, origins, strict=True))
            rows += [(name, kind, (i,), where) for i, (name, where) in names]
        rows += [(p.text, "compound", p.class_ids, p.origin) for p in self.compound]
        columns = [range(len(rows)), *zip(*rows, strict=True)]
        return pa.table(
            [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)],
            schema=SCHEMA,
        )

    @classmethod
    def from_table(cls, table: pa.Table) -> PromptBank:
        """Returns the bank that a prompts.parquet table describes."""
        rows = table.to_pylist()
        singletons = [row for row in rows if row["kind"] == "singleton"]
        return cls(
            tuple(row["text"] for row in singletons if row["origin"] != BACKGROUND),
            tuple(
                CompoundPrompt(row["text"], tuple(row["class_ids"]), row["origin"])
                for row in rows
                if row["kind"] == "compound"
            ),
            tuple(row["text"] for row in singletons if row["origin"] == BACKGROUND),
            "simple" if singletons and singletons[0]["origin"] == ORIGINS["simple"] else "openai",
        )


def descriptive_prompts(
    classes: Sequence[str], texts: Iterable[str], background: Sequence[str] = ()
) -> list[CompoundPrompt]:
    """Returns a prompt for each distinct text that mentions a class.

    The background classes that it mentions too are counted, with indices after the classes.
    """
    matcher = ClassMatcher([*classes, *background])
    mentioned = ((text, matcher.classes_in(text)) for text in dict.fromkeys(texts))
    return [
        CompoundPrompt(text, ids, "descriptive")
        for text, ids in mentioned
        if ids and ids[0] < len(classes)
    ]
