"""What the steps of the map phase have in common.

A step works on one row of a Ray data set: one shard, whole from start to end. So a shard is
decoded, scored, written and retried as one thing whatever Ray does with blocks, and rows are never
regrouped. A row asks for {shard, backbones}: the backbones of a group with which this shard is
still to be scored. Each step is its own module, and only the steps with models load torch, when
they start: it takes seconds and much memory, which other workers and the driver do not need.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import pyarrow as pa

from sparc_dist.errors import UserError


def errors_as_rows(
    work: Callable[[Any, pa.Table], pa.Table],
) -> Callable[[Any, pa.Table], pa.Table]:
    """Makes a step return a UserError as a row {shard, backbones, failure}.

    Ray Data keeps neither the type nor the message of what a step raises.
    """

    @wraps(work)
    def step(self: Any, batch: pa.Table) -> pa.Table:
        if "failure" in batch.column_names:
            return batch
        try:
            return work(self, batch)
        except UserError as error:
            request = {name: batch[name] for name in ("shard", "backbones")}
            return pa.table({**request, "failure": [str(error)]})

    return step
