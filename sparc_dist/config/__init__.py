"""The configuration of a run: one typed object, read from YAML and checked at the start.

Belongs here: the schema, config files, presets, rules for class names. Does not: reading the data
and models of a config (``datasets``, ``backbones``). Uses: ``core`` (the method), ``storage``,
``errors``.
"""

from sparc_dist.config.backbone import (
    ENSEMBLE,
    OPENAI,
    SIMULATED,
    TINY,
    BackboneConfig,
    Features,
    is_file_name,
)
from sparc_dist.config.file import (
    LABEL_MODEL,
    LABEL_UNIT,
    find_config,
    label_config,
    label_terms,
    load_config,
    parse,
    resolve,
)
from sparc_dist.config.kinds import DATASET_KINDS, DECIDES, DatasetKind
from sparc_dist.config.names import check_classes, letters, names_in, words_of
from sparc_dist.config.schema import (
    MAX_IMAGE_BYTES,
    Config,
    DatasetConfig,
    LLMConfig,
    PairTemplate,
    PromptsConfig,
    ResourcesConfig,
    Store,
    StoredPrecision,
)

__all__ = [
    "DATASET_KINDS",
    "DECIDES",
    "ENSEMBLE",
    "LABEL_MODEL",
    "LABEL_UNIT",
    "MAX_IMAGE_BYTES",
    "OPENAI",
    "SIMULATED",
    "TINY",
    "BackboneConfig",
    "Config",
    "DatasetConfig",
    "DatasetKind",
    "Features",
    "LLMConfig",
    "PairTemplate",
    "PromptsConfig",
    "ResourcesConfig",
    "Store",
    "StoredPrecision",
    "check_classes",
    "find_config",
    "is_file_name",
    "label_config",
    "label_terms",
    "letters",
    "load_config",
    "names_in",
    "parse",
    "resolve",
    "words_of",
]
