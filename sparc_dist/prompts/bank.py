"""The prompt bank: all prompts of a data set, with their kind and the classes they mention."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from sparc_dist.core import Mentions, mentions_of
from sparc_dist.prompts.compound import CompoundPrompt
from sparc_dist.prompts.matching import ClassMatcher

SCHEMA = pa.schema(
    [
        ("prompt_id", pa.int32()),
        ("text", pa.string()),
        ("kind", pa.string()),
        ("class_ids", pa.list_(pa.int32())),
        ("origin", pa.string()),
    ]
)


@dataclass(frozen=True)
class PromptBank:
    """N singleton prompts, N auxiliary prompts and P compound prompts.

    The class names define the first two: the singleton of a class is the mean of CLIP's 80
    templates with its name, the auxiliary is the name alone.
    """

    classes: tuple[str, ...]
    compound: tuple[CompoundPrompt, ...]

    @property
    def mentions(self) -> Mentions:
        """The indices of the compound prompts that mention each class."""
        return mentions_of([prompt.class_ids for prompt in self.compound], len(self.classes))

    @property
    def sha256(self) -> str:
        """A hash of all prompts; scores are comparable only between banks with the same hash."""
        content = [self.classes, [(p.text, p.class_ids) for p in self.compound]]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def to_table(self) -> pa.Table:
        """Returns the table that is stored as prompts.parquet."""
        rows: list[tuple[str, str, tuple[int, ...], str]] = []
        rows += [(name, "singleton", (i,), "template") for i, name in enumerate(self.classes)]
        rows += [(name, "auxiliary", (i,), "name") for i, name in enumerate(self.classes)]
        rows += [(p.text, "compound", p.class_ids, p.origin) for p in self.compound]
        text, kind, class_ids, origin = zip(*rows, strict=True)
        columns = [range(len(rows)), text, kind, class_ids, origin]
        return pa.table(
            [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)],
            schema=SCHEMA,
        )

    @classmethod
    def from_table(cls, table: pa.Table) -> PromptBank:
        """Returns the bank that a prompts.parquet table describes."""
        rows = table.to_pylist()
        return cls(
            tuple(row["text"] for row in rows if row["kind"] == "singleton"),
            tuple(
                CompoundPrompt(row["text"], tuple(row["class_ids"]), row["origin"])
                for row in rows
                if row["kind"] == "compound"
            ),
        )


def descriptive_prompts(classes: Sequence[str], texts: Iterable[str]) -> list[CompoundPrompt]:
    """Returns a prompt for each distinct text that mentions a class."""
    matcher = ClassMatcher(classes)
    mentioned = ((text, matcher.classes_in(text)) for text in dict.fromkeys(texts))
    return [CompoundPrompt(text, ids, "descriptive") for text, ids in mentioned if ids]
