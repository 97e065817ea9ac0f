"""Prompts from a language model; if it fails, the run continues without them."""

from sparc_dist.prompts.llm.endpoint import endpoint_of
from sparc_dist.prompts.llm.questions import Answer, descriptive_sentences, plausible_pairs
from sparc_dist.prompts.llm.replies import Replies

__all__ = [
    "Answer",
    "Replies",
    "descriptive_sentences",
    "endpoint_of",
    "plausible_pairs",
]
