"""Exports: the labels of a finished unit in the formats of other tools, one module per tool.

Each function reads one shard at a time and writes one file, whole or not at all. Images without
scores are left out, and URLs lose their keys.
"""

from collections.abc import Callable, Mapping

from sparc_dist.report.export import fiftyone, hugging_face, label_studio, tables
from sparc_dist.runs.run import FinishedUnit

FORMATS: Mapping[str, Callable[[FinishedUnit, str], None]] = {
    "csv": tables.write_csv,
    "csv-long": tables.write_long_csv,
    "parquet": tables.write_parquet,
    "parquet-long": tables.write_long_parquet,
    "fiftyone": fiftyone.write,
    "label-studio": label_studio.write,
    "label-studio-config": label_studio.write_config,
    "hf": hugging_face.write,
}
