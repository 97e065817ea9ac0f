"""A short text about a prompt bank."""

from __future__ import annotations

from collections import Counter
from statistics import median

from sparc_dist.prompts.bank import TEMPLATES, PromptBank

#: A class with fewer compound prompts has hardly any order statistics.
FEW = 4


def summary(bank: PromptBank) -> str:
    """Returns the counts by kind and origin, prompts per class, and the classes with few."""
    counts = [len(indices) for indices in bank.mentions[: len(bank.classes)]]
    origins = Counter(prompt.origin for prompt in bank.compound)
    by_origin = ", ".join(f"{count} {origin}" for origin, count in origins.items()) or "none"
    lines = [
        f"singleton  {len(bank.columns)} (each the mean of {TEMPLATES[bank.templates]} templates)",
        f"auxiliary  {len(bank.columns)}",
        f"compound   {len(bank.compound)}: {by_origin}",
        f"per class  min {min(counts)}, median {median(counts):g}, max {max(counts)}",
    ]
    if bank.background:
        lines.insert(0, f"background {len(bank.background)} classes, scored and never reported")
    few = [
        f"{name} ({count})" for name, count in zip(bank.classes, counts, strict=True) if count < FEW
    ]
    if few:
        lines.append(f"fewer than {FEW}: {', '.join(few)}")
    return "\n".join(lines)
