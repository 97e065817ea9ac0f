"""What the pages say of each class and of each image that they show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core import FUSIONS, ClassCounts, Decision, FinalScores, Scores
from sparc_dist.core.explanation import Explanation
from sparc_dist.pipeline.executor import get, share, submit
from sparc_dist.report.exhibit import (
    ClassExhibit,
    ClassScore,
    Place,
    PromptPart,
    ShownImage,
    verdicts,
)
from sparc_dist.runs import DamagedScores, UnitShards, shard_groups
from sparc_dist.runs.ensemble_file import AnyLabeler
from sparc_dist.runs.run import FinishedUnit
from sparc_dist.runs.shards import read_images
from sparc_dist.runs.slugs import image_key, slugs

#: The most bins of a distribution that are shown.
BINS = 60


@dataclass(frozen=True)
class ShownClasses:
    """The classes of a unit.

    metrics: its metrics.json. most: so many prompts of a class are shown. texts: of all compound
    prompts.
    """

    labeler: AnyLabeler
    counts: ClassCounts
    metrics: Mapping[str, Any]
    most: int
    slugs: Sequence[str]
    texts: Sequence[str]

    @classmethod
    def of(
        cls, labeler: AnyLabeler, counts: ClassCounts, metrics: Mapping[str, Any], most: int
    ) -> ShownClasses:
        """Returns the classes of a labeler."""
        known = (slugs(labeler.names.classes), compound_texts(labeler))
        return cls(labeler, counts, metrics, most, *known)

    @property
    def labelled(self) -> bool:
        """Whether any image has labels."""
        return bool(self.counts.scores[1].any())

    def exhibit(self, index: int, rows: Mapping[str, Sequence[str]]) -> ClassExhibit:
        """Returns what the page of a class shows. rows: the keys of images."""
        name, labeler = self.labeler.names.classes[index], self.labeler
        rule, fusion = labeler.decisions[labeler.primary], labeler.fusion
        by_threshold = labeler.rule.get("top") is None  # else thresholds decide nothing
        prompts = labeler.mentions[index].tolist()
        return ClassExhibit(
            name,
            self.slugs[index],
            rule.status[index],
            _number(rule.prevalence[index]),
            _number(rule.threshold_score[index]) if by_threshold else None,
            _number(rule.threshold_probability[index]) if by_threshold else None,
            *self._distribution(rule, index),
            rows,
            [] if fusion is None else fusion.column_weights(index).tolist(),
            [self.texts[prompt] for prompt in prompts[: self.most]],
            {m: self.metrics[m]["AP"].get(name) for m in FUSIONS if m in self.metrics},
            self.counts.precision_recall(index),
            *self.counts.quality(index),
            more_prompts=max(len(prompts) - self.most, 0),
        )

    def _distribution(self, rule: Decision, index: int) -> tuple[list[float], list[int]]:
        """Returns edges and counts of the scores that are judged; nothing if they do not vary."""
        edges, counts = self.counts.distribution(index, BINS)
        if not rule.sd[index]:
            return [], []
        return (rule.mean[index] + rule.sd[index] * edges).tolist(), counts.tolist()


def compound_texts(labeler: AnyLabeler) -> list[str]:
    """Returns the texts of a labeler's compound prompts."""
    rows = labeler.prompts.select(["kind", "text"]).to_pylist()
    return [row["text"] for row in rows if row["kind"] == "compound"]


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


#: The classes of an image with the highest scores are explained, by so many prompts each.
EXPLAINED, PROMPTS = 3, 8


@dataclass(frozen=True)
class Source:
    """A unit whose images are shown. most: so many classes of an image are listed."""

    unit: FinishedUnit
    labeler: AnyLabeler
    most: int

    @property
    def reader(self) -> UnitShards:
        """Reads its shards, compound scores included."""
        kinds = self.labeler.prompts["kind"].to_pylist()
        parts = (self.unit.data, self.unit.unit, len(self.unit.classes))
        return UnitShards(*parts, kinds.count("compound"), self.unit.background)


@dataclass(frozen=True)
class FoundImage:
    """An image without its thumbnail, and where it is stored."""

    place: Place
    uri: str
    shown: ShownImage


def find_images(source: Source, chosen: Mapping[Place, set[int]], limit: float) -> list[FoundImage]:
    """Returns the chosen images in the order of shards and rows; reads no other shards.

    chosen: the classes that each image is shown for.
    """
    places: dict[int, dict[int, set[int]]] = {}
    for (shard, row), classes in sorted(chosen.items()):
        places.setdefault(shard, {})[row] = classes
    shards, shared = list(places.items()), share(source)
    jobs = [
        submit(_of_shards, shared, shards[group.start : group.stop])
        for group in (shard_groups(len(shards)) if shards else ())
    ]
    return [found for job in jobs for found in get(job, limit, "Explaining images")]


def _of_shards(
    source: Source, shards: Sequence[tuple[int, Mapping[int, set[int]]]]
) -> list[FoundImage]:
    return [found for shard, rows in shards for found in _of_shard(source, shard, rows)]


def _of_shard(source: Source, shard: int, rows: Mapping[int, set[int]]) -> Iterator[FoundImage]:
    """Yields the images of a shard. rows: the classes that each is shown for."""
    order, unit = list(rows), source.unit
    ids, final = source.reader.final(shard)
    columns = ["image_id", "uri", "labels"]
    images = read_images(unit.data, shard, columns).to_pylist()
    facts = {image["image_id"]: image for image in images}
    explained = ExplainedImages.of(source, final[order], _stored_scores(source, shard, order))
    decided = verdicts(source.labeler, final[order])
    for number, row in enumerate(order):
        image = facts[ids[row]]
        labels = image["labels"]
        truth = None if labels is None else [unit.classes[index] for index in labels]
        classes = explained.classes(number, rows[row])
        named = (image_key(shard, ids[row]), ids[row], None, None, truth, classes)
        yield FoundImage((shard, row), image["uri"], ShownImage(*named, decided[number]))


def _stored_scores(source: Source, shard: int, rows: list[int]) -> Scores | None:
    """Returns the similarities of some images of a shard; None if they were not kept."""
    if not source.reader.has_scores(shard):
        return None
    try:
        fusion = source.labeler.fusion
        embedded = fusion is not None and fusion.needs_embeddings
        return source.reader.scores(shard, embedded)[1][rows]
    except DamagedScores:
        return None


@dataclass(frozen=True)
class ExplainedImages:
    """Some images of a shard. score, probability, present, debiased: (n, N)."""

    source: Source
    texts: Sequence[str]
    similarity: NDArray[np.floating]
    debiased: NDArray[np.floating]
    score: NDArray[np.floating]
    probability: NDArray[np.floating]
    present: NDArray[np.bool_]
    scores: Scores | None
    explanation: Explanation | None

    @classmethod
    def of(cls, source: Source, final: FinalScores, scores: Scores | None) -> ExplainedImages:
        """Returns what is known of images; without ``scores``, no class is explained."""
        labeler, classes = source.labeler, len(source.unit.classes)
        before, after = final.columns(labeler.primary)
        judged = before if labeler.decisions[labeler.primary].before_rival else after
        explanation = None
        if scores is not None and labeler.fusion is not None:
            explanation = Explanation.of(labeler.fusion, scores)
        debiased: Any = final.debiased if explanation is None else explanation.singleton
        known = (final.similarity, debiased[:, :classes], judged[:, :classes])
        texts, judgement = compound_texts(labeler), labeler.judge(final)
        return cls(source, texts, *known, *judgement, scores, explanation)

    def classes(self, image: int, shown_for: set[int]) -> list[ClassScore]:
        """Returns the classes of an image, the highest score first."""
        order = np.argsort(-self.score[image], kind="stable").tolist()
        explained = {*order[:EXPLAINED], *shown_for}
        kept = {*order[: self.source.most], *explained}
        return [self._class(image, i, i in explained) for i in order if i in kept]

    def _class(self, image: int, index: int, explained: bool) -> ClassScore:
        probability = float(self.probability[image, index])
        score = float(self.score[image, index])
        facts = (
            self.source.unit.classes[index],
            score,
            None if np.isnan(probability) else probability,
            bool(self.present[image, index]),
            float(self.similarity[image, index]),
            float(self.debiased[image, index]),
        )
        if not explained or self.explanation is None or self.scores is None:
            return ClassScore(*facts)
        parts = self.explanation.parts(image, index)
        similarity = self.scores.compound[image]
        prompts = [
            PromptPart(self.texts[p], float(similarity[p]), float(d), float(w), float(d * w))
            for p, d, w in zip(parts.prompts[:PROMPTS], parts.debiased, parts.weights, strict=False)
        ]
        rest = score - parts.own - sum(prompt.added for prompt in prompts)
        return ClassScore(*facts, parts.own, prompts, rest)
