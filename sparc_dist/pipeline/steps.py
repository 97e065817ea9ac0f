"""Steps of the map phase that tell what went wrong.

A step works on one row of a Ray data set: a shard, whole from beginning to end. So a shard is
decoded, scored, written and retried as one thing whatever Ray does with blocks, and no row is ever
grouped again. What a row asks for is {shard, backbones}: those of a group under which this shard is
still to be scored. Each step is a module of its own, and only those with models import torch, when
they start: it takes seconds and much memory, which other workers and the driver need not spend.
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
    """A step whose UserErrors travel to the driver as rows {shard, backbones, failure}.

    Of what a step raises, Ray Data keeps neither the type nor the words.
    """

    @wraps(work)
    def step(self: Any, batch: pa.Table) -> pa.Table:
        if "failure" in batch.column_names:
            return batch
        try:
            return work(self, batch)
        except UserError as error:
            asked = {name: batch[name] for name in ("shard", "backbones")}
            return pa.table({**asked, "failure": [str(error)]})

    return step
