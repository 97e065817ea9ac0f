"""Made-up and golden score sets for the tests of core."""

from __future__ import annotations

import json
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core import Mentions, Positives, Reached, Scores, mentions_of
from sparc_dist.core.average_precision import average_precision
from sparc_dist.core.bootstrap import Ranking, columns_of
from sparc_dist.prompts import ClassMatcher

GOLDEN = Path(__file__).parents[1] / "golden"


def golden() -> tuple[Scores, Mentions, NDArray[np.bool_], dict[str, Any]]:
    """The reference's input (scores, mentions, labels) and its answer."""
    arrays = np.load(GOLDEN / "scores.npz")
    prompts = json.loads((GOLDEN / "prompts.json").read_text())
    expected = json.loads((GOLDEN / "expected.json").read_text())["expected"]
    matcher = ClassMatcher(prompts["classes"])
    mentions = mentions_of([matcher.classes_in(text) for text in prompts["prompts"]], 20)
    scores = Scores(arrays["singleton"], arrays["auxiliary"], arrays["compound"])
    return scores, mentions, arrays["labels"].astype(bool), expected


def golden_answer(name: str) -> dict[str, Any]:
    """An answer of golden/ that is kept in a file of its own: ``duo`` or ``decisions``."""
    answer: dict[str, Any] = json.loads((GOLDEN / f"{name}_expected.json").read_text())
    return answer


def write_three_classes(folder: Path) -> tuple[Path, Path]:
    """Writes three classes of the golden set, with its others as background, for ``fuse``."""
    arrays, case = dict(np.load(GOLDEN / "scores.npz")), golden_answer("duo")["three classes"]
    bank = json.loads((GOLDEN / "prompts.json").read_text())
    columns = [bank["classes"].index(name) for name in case["classes"] + case["background"]]
    prompts = [bank["prompts"].index(text) for text in case["prompts"]]
    scores, texts = folder / "three.npz", folder / "three.json"
    np.savez(
        scores,
        singleton=arrays["singleton"][:, columns],
        auxiliary=arrays["auxiliary"][:, columns],
        compound=arrays["compound"][:, prompts],
        labels=arrays["labels"][:, columns[:3]],
    )
    texts.write_text(json.dumps({k: case[k] for k in ("classes", "background", "prompts")}))
    return scores, texts


def made_up(
    seed: int, images: int = 40, classes: int = 5, prompts: int = 12
) -> tuple[Scores, list[tuple[int, ...]]]:
    """Random scores, and the classes that each compound prompt mentions: all pairs in turn."""
    rng = np.random.default_rng(seed)
    pairs: list[tuple[int, ...]] = list(combinations(range(classes), 2)) or [(0,)]
    mentioned = [pairs[index % len(pairs)] for index in range(prompts)]
    parts = (rng.normal(0.2, 0.05, (images, width)) for width in (classes, classes, prompts))
    return Scores(*parts), mentioned


def cut(scores: Scores, pieces: int) -> list[Scores]:
    """The same images in so many uneven shards, an empty one among them when there are many."""
    edges = np.unique(np.linspace(0, len(scores) ** 0.5, pieces + 1) ** 2).astype(int)
    edges[-1] = len(scores)
    return [scores[a:b] for a, b in pairwise(edges)]


def ap(scores: NDArray[np.floating], labels: NDArray[np.bool_]) -> list[float | None]:
    """AP of each column in one piece."""
    positives = Positives.of(scores, labels)
    return average_precision(positives, Reached.of(scores, positives))


def resampled_ap(
    scores: NDArray[np.floating], labels: NDArray[np.bool_], weights: NDArray[np.integer]
) -> NDArray[np.float64]:
    """AP of one class (M,) in each draw of weights (draws, M)."""
    return Ranking.of(scores, labels).average_precision(columns_of(weights))
