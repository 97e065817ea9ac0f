"""Compound prompts from co-occurrence: the paper's Algorithm 2."""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sparc_dist.config import PairTemplate
from sparc_dist.core.states import State

Direction = Literal["either", "forward"]
Partners = NDArray[np.int64]

#: The number of classes whose similarities to all others are held at a time.
ROWS = 1024


@dataclass(frozen=True)
class CompoundPrompt:
    """A prompt, the classes it mentions, and where it comes from.

    class_ids: the index of each class, or N + the index of a background class; sorted.
    """

    text: str
    class_ids: tuple[int, ...]
    origin: Literal["pair", "triplet", "descriptive", "random"]


@dataclass(frozen=True)
class Cooccurrence(State):
    """The number of images with each class, pair and triplet; counts of shards add up.

    counts: (N, N, N); its diagonals are the pairs (i, i, j) and single classes (i, i, i).
    """

    counts: NDArray[np.int64]

    @classmethod
    def of(cls, labels: Iterable[Sequence[int]], classes: int) -> Cooccurrence:
        """Counts the label lists of a shard."""
        lists = list(labels)
        present = np.zeros((len(lists), classes))
        for row, indices in zip(present, lists, strict=True):
            row[list(indices)] = 1.0
        # Sums of 0 and 1 in float64 are exact counts, and BLAS makes them fast.
        images_of = (present[present[:, index] > 0] for index in range(classes))
        return cls(np.stack([rows.T @ rows for rows in images_of]).astype(np.int64))

    def single(self, i: int) -> int:
        """Returns the number of images with class i."""
        return int(self.counts[i, i, i])

    def pair(self, i: int, j: int) -> int:
        """Returns the number of images with both classes."""
        return int(self.counts[i, i, j])


def from_cooccurrence(
    classes: Sequence[str],
    seen: Cooccurrence,
    thresholds: tuple[float, float] = (0.05, 0.025),
    direction: Direction = "either",
) -> list[CompoundPrompt]:
    """Returns the plausible pairs, then the likeliest triplet of each without duplicates.

    thresholds: τ₂ for P(j|i) and τ₃ for P(k|i,j), both strict.
    """
    tau2, tau3 = (Fraction(str(tau)) for tau in thresholds)
    pairs = [
        (i, j)
        for i, j in combinations(range(len(classes)), 2)
        if seen.pair(i, j) > tau2 * seen.single(i)
        or (direction == "either" and seen.pair(i, j) > tau2 * seen.single(j))
    ]
    triplets = _distinct_triplets(classes, seen, pairs, tau3)
    return [pair_prompt(classes, *pair) for pair in pairs] + [
        triplet_prompt(classes, *triplet) for triplet in triplets
    ]


def all_pairs(classes: Sequence[str], partners: Partners | None = None) -> list[CompoundPrompt]:
    """Returns every pair of classes, for data without co-occurrence statistics.

    partners: (N, k), the classes that each class is paired with, if not with all others
    """
    pairs = set(combinations(range(len(classes)), 2))
    if partners is not None:
        rows = enumerate(partners.tolist())
        pairs = {(min(i, j), max(i, j)) for i, row in rows for j in row}
    return [pair_prompt(classes, i, j) for i, j in sorted(pairs)]


def nearest_partners(embeddings: NDArray[np.floating], k: int) -> Partners:
    """Returns the k other classes most similar to each class (N, k), the nearest first; k < N.

    embeddings: (N, d), compared by their cosine; of equally similar classes the first is nearer.
    """
    vectors = embeddings.astype(np.float64)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(float).tiny)
    partners = np.empty((len(vectors), k), dtype=np.int64)
    for start in range(0, len(vectors), ROWS):
        # Rounded, so that the last bits of a sum decide nothing.
        distances = -np.round(vectors[start : start + ROWS] @ vectors.T, 6)
        own = np.arange(len(distances))
        distances[own, start + own] = np.inf
        partners[start : start + ROWS] = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return partners


def background_pairs(classes: Sequence[str], background: Sequence[str]) -> list[CompoundPrompt]:
    """Returns the pair "A and B" of every class with every background class."""
    columns = [*classes, *background]
    others = range(len(classes), len(columns))
    return [pair_prompt(columns, i, j) for i in range(len(classes)) for j in others]


def from_sets(classes: Sequence[str], sets: Iterable[Sequence[int]]) -> list[CompoundPrompt]:
    """Returns the prompts of given pairs and triplets of classes."""
    return [
        pair_prompt(classes, ids[0], ids[1])
        if len(ids) == 2
        else triplet_prompt(classes, ids[0], ids[1], ids[2])
        for ids in sets
    ]


def in_templates(
    classes: Sequence[str],
    prompts: Iterable[CompoundPrompt],
    templates: Sequence[PairTemplate],
) -> list[CompoundPrompt]:
    """Returns the prompts with every pair in each template; other prompts are unchanged."""
    expanded = []
    for prompt in prompts:
        if prompt.origin == "pair":
            i, j = prompt.class_ids
            expanded += [pair_prompt(classes, i, j, word) for word in templates]
        else:
            expanded.append(prompt)
    return expanded


def random_prompts(classes: Sequence[str], per_class: int, seed: int) -> list[CompoundPrompt]:
    """Returns WaffleCLIP-style prompts, a control: class names with meaningless characters.

    Every class gets the same random characters.
    """
    rng = np.random.default_rng(seed)
    letters = np.array(list(string.ascii_lowercase + string.digits))
    endings = ["".join(rng.choice(letters, 10)) for _ in range(per_class)]
    return [
        CompoundPrompt(f"A photo of a {name}, which is {ending}", (index,), "random")
        for index, name in enumerate(classes)
        for ending in endings
    ]


def pair_prompt(
    classes: Sequence[str], i: int, j: int, template: PairTemplate = "and"
) -> CompoundPrompt:
    """Returns "A and B", or the two classes with another word between them."""
    return CompoundPrompt(f"{classes[i]} {template} {classes[j]}", tuple(sorted((i, j))), "pair")


def triplet_prompt(classes: Sequence[str], i: int, j: int, k: int) -> CompoundPrompt:
    """Returns "A, B, and C"."""
    text = f"{classes[i]}, {classes[j]}, and {classes[k]}"
    return CompoundPrompt(text, tuple(sorted((i, j, k))), "triplet")


def _distinct_triplets(
    classes: Sequence[str],
    seen: Cooccurrence,
    pairs: Sequence[tuple[int, int]],
    tau3: Fraction,
) -> list[tuple[int, int, int]]:
    """Returns each pair with its likeliest third class; equal sets keep the likelier order."""
    best: dict[frozenset[int], tuple[Fraction, tuple[int, int, int]]] = {}
    for i, j in pairs:
        if not (together := seen.pair(i, j)):
            continue
        # Ties are broken by name, so that the order of the classes does not matter.
        others = [k for k in range(len(classes)) if k not in (i, j)]
        others.sort(key=lambda k: (-seen.counts[i, j, k], classes[k]))
        for k in others[:1]:
            probability = Fraction(int(seen.counts[i, j, k]), together)
            previous = best.get(frozenset((i, j, k)))
            if probability > tau3 and (previous is None or probability > previous[0]):
                best[frozenset((i, j, k))] = (probability, (i, j, k))
    return [triplet for _, triplet in best.values()]
