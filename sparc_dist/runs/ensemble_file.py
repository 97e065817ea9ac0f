"""labeler.safetensors of an ensemble: the labeler of every backbone, and what averages them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparc_dist import __version__
from sparc_dist.core import Decision, FinalScores, Mentions, Scores, Standard, average
from sparc_dist.runs.labeler_file import (
    FORMAT,
    Arrays,
    FittedLabeler,
    ImageAnswers,
    Judge,
    arrays_of,
    decision_arrays,
    decision_facts,
    decisions_of,
    facts_of,
    labeler_of,
    read_parts,
    reading,
    write_labeler,
    write_parts,
)
from sparc_dist.runs.shards import ClassNames


@dataclass(frozen=True)
class EnsembleLabeler(Judge):
    """The labeler of an ensemble: works without the run that fitted it.

    members, standards: by the name of a backbone, in the order in which scores are added up. All
    members have the same prompts. images: the number of images that it was fitted on.
    """

    members: Mapping[str, FittedLabeler]
    standards: Mapping[str, Standard]
    decisions: Mapping[str, Decision]
    primary: str
    images: int
    rule: Mapping[str, Any] = field(default_factory=dict)

    @property
    def first(self) -> FittedLabeler:
        """One of the members, for what all have in common."""
        return next(iter(self.members.values()))

    @property
    def names(self) -> ClassNames:
        """The names of classes and background classes."""
        return self.first.names

    @property
    def prompts(self) -> pa.Table:
        """The table of prompts.parquet."""
        return self.first.prompts

    @property
    def mentions(self) -> Mentions:
        """The compound prompts of each column."""
        return self.first.mentions

    @property
    def fusion(self) -> None:
        """None: every member has one of its own."""

    def final(self, scores: Mapping[str, Scores]) -> FinalScores:
        """Returns the final scores of n images from their scores under every member."""
        parts = [
            (member.fusions.final(scores[name]), self.standards[name])
            for name, member in self.members.items()
        ]
        rows = np.arange(len(parts[0][0]))
        return average(((*part, rows) for part in parts), len(rows))

    def answer(self, scores: Mapping[str, Scores]) -> ImageAnswers:
        """Returns what the method that decides says."""
        final = self.final(scores)
        return ImageAnswers(final.methods[self.primary], *self.judge(final))

    def contributions(
        self, scores: Mapping[str, Scores], columns: Sequence[int]
    ) -> list[NDArray[np.float64]]:
        """Returns, per column, what each of its m_i prompts adds to its final score (n, m_i)."""
        found: list[NDArray[np.float64]] = []
        for name, member in self.members.items():
            fusions = member.fusions
            methods, classes = fusions.models, fusions.given.classes
            scale = self.standards[name].scale(self.primary, methods, classes)
            parts = fusions[self.primary].contributions(scores[name], columns)
            shares = scale[list(columns)] / len(self.members)
            own = [part * share for part, share in zip(parts, shares, strict=True)]
            found = [a + b for a, b in zip(found, own, strict=True)] if found else own
        return found


#: The labeler of a unit.
AnyLabeler = FittedLabeler | EnsembleLabeler


def write_any_labeler(url: str, labeler: AnyLabeler) -> None:
    """Writes the labeler of a backbone or of an ensemble; floats keep every bit."""
    if isinstance(labeler, FittedLabeler):
        write_labeler(url, labeler)
        return
    arrays: Arrays = decision_arrays(labeler.decisions)
    for number, (name, member) in enumerate(labeler.members.items()):
        standard = labeler.standards[name]
        own = {**arrays_of(member), "standard.mean": standard.mean, "standard.sd": standard.sd}
        arrays |= {f"member {number}.{key}": array for key, array in own.items()}
    write_parts(url, _facts(labeler), arrays)


def read_any_labeler(url: str) -> AnyLabeler:
    """Reads any labeler; raises UserError if it is missing, damaged or of another format."""
    with reading(url):
        facts, arrays = read_parts(url)
        return _ensemble(facts, arrays) if "members" in facts else labeler_of(facts, arrays)


def _facts(labeler: EnsembleLabeler) -> dict[str, Any]:
    """Returns the JSON of an ensemble; the prompts of all members are in it once."""
    whole = facts_of(labeler.first)
    common = {key: whole[key] for key in ("classes", "background", "prompts")}
    members = [
        {"name": name} | {key: v for key, v in facts_of(member).items() if key not in common}
        for name, member in labeler.members.items()
    ]
    return {
        "format": FORMAT,
        "sparc_dist": __version__,
        "images": labeler.images,
        "primary": labeler.primary,
        "rule": dict(labeler.rule),
        "decisions": decision_facts(labeler.decisions),
        "members": members,
        **common,
    }


def _ensemble(facts: Mapping[str, Any], arrays: Arrays) -> EnsembleLabeler:
    members, standards = {}, {}
    for number, own in enumerate(facts["members"]):
        prefix = f"member {number}."
        parts = {
            key.removeprefix(prefix): array
            for key, array in arrays.items()
            if key.startswith(prefix)
        }
        mean, sd = parts.pop("standard.mean"), parts.pop("standard.sd")
        standards[own["name"]] = Standard(mean, sd)
        members[own["name"]] = labeler_of({**facts, **own}, parts)
    decisions = decisions_of(facts, arrays)
    fitted = (facts["primary"], facts["images"], facts["rule"])
    return EnsembleLabeler(members, standards, decisions, *fitted)
