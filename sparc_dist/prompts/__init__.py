"""Prompts: the prompt bank, the sources of its prompts, and the classes they mention.

Belongs here: wording, co-occurrence, finding class names in sentences, background classes, language
models (``llm``). Does not: reading labels (``datasets``), the text tower (``backbones``). Uses:
``runs``, ``config``, ``storage``, ``core``, ``errors``.
"""

from sparc_dist.prompts.background import background_names, general_vocabulary
from sparc_dist.prompts.bank import PromptBank, TextEmbeddings, descriptive_prompts, summary
from sparc_dist.prompts.builder import BankBuilder, Embed
from sparc_dist.prompts.compound import (
    CompoundPrompt,
    Cooccurrence,
    all_pairs,
    from_cooccurrence,
    from_sets,
    in_templates,
    nearest_partners,
    pair_prompt,
    random_prompts,
)
from sparc_dist.prompts.matching import ClassMatcher

__all__ = [
    "BankBuilder",
    "ClassMatcher",
    "CompoundPrompt",
    "Cooccurrence",
    "Embed",
    "PromptBank",
    "TextEmbeddings",
    "all_pairs",
    "background_names",
    "descriptive_prompts",
    "from_cooccurrence",
    "from_sets",
    "general_vocabulary",
    "in_templates",
    "nearest_partners",
    "pair_prompt",
    "random_prompts",
    "summary",
]
