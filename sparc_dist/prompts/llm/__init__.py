"""Prompts from a language model; if it fails, the run continues without them."""

from sparc_dist.prompts.llm.endpoint import endpoint_of
from sparc_dist.prompts.llm.questions import Answer, Replies, descriptive_sentences, plausible_pairs

__all__ = [
    "Answer",
    "Replies",
    "descriptive_sentences",
    "endpoint_of",
    "plausible_pairs",
]
