"""What a run leaves in storage: names, markers, shards, checkpoints of the reduce, results.

Belongs here: the run format (docs/run-format.md), and reading and writing it. Does not: computing
any of it (``pipeline``). Uses: ``config``, ``storage``, ``core``, ``errors``.
"""

from sparc_dist.runs.embedded_run import EmbeddedDataset, EmbeddedRun
from sparc_dist.runs.layout import STAGES, DatasetLayout, RunLayout, UnitLayout, shard_groups
from sparc_dist.runs.markers import Marker, MarkerSummary, Provenance
from sparc_dist.runs.record import claim, names_of_run, read_record, report_files
from sparc_dist.runs.results import (
    NO_LABELS,
    Growing,
    Pending,
    Phase,
    Results,
    Retry,
    UnitKey,
    error_limits,
)
from sparc_dist.runs.shards import UnitShards
from sparc_dist.runs.storing import DamagedScores, Storing

__all__ = [
    "NO_LABELS",
    "STAGES",
    "DamagedScores",
    "DatasetLayout",
    "EmbeddedDataset",
    "EmbeddedRun",
    "Growing",
    "Marker",
    "MarkerSummary",
    "Pending",
    "Phase",
    "Provenance",
    "Results",
    "Retry",
    "RunLayout",
    "Storing",
    "UnitKey",
    "UnitLayout",
    "UnitShards",
    "claim",
    "error_limits",
    "names_of_run",
    "read_record",
    "report_files",
    "shard_groups",
]
