"""Prompts from a language model; if it fails, the run continues without them."""

from sparc_dist.prompts.llm.endpoint import Endpoint, EndpointError, LLMError, endpoint_of
from sparc_dist.prompts.llm.questions import Answer, descriptive_sentences, plausible_pairs
from sparc_dist.prompts.llm.replies import Replies, StoredReplies

__all__ = [
    "Answer",
    "Endpoint",
    "EndpointError",
    "LLMError",
    "Replies",
    "StoredReplies",
    "descriptive_sentences",
    "endpoint_of",
    "plausible_pairs",
]
