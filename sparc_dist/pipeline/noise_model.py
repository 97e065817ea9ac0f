"""The noise model on Ray: a unit's pair scores are read once and stay with the workers.

A fit takes dozens of passes. So each group's pair scores and labels become an object of Ray's, and
a pass is a task on each of them; should a node be lost, they are read again.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray

from sparc_dist.core.moments import Floats
from sparc_dist.core.noise_cells import Balance, CellCounts, CellSums, Pairs
from sparc_dist.core.noise_model import NoiseFit, fit
from sparc_dist.errors import UserError
from sparc_dist.pipeline.passes import Group, remote
from sparc_dist.pipeline.unit import Unit
from sparc_dist.pipeline.waiting import result
from sparc_dist.prompts.bank import PromptBank
from sparc_dist.prompts.compound import pair_prompt
from sparc_dist.shards import UnitShards

STAGE = "noise_model"
MOST_PASSES = 60
#: Two scores of an image are explained by its own θ₀ and θ₁, whatever the classes.
LEAST_PAIRS = 3


def noise_models(unit: Unit) -> dict[str, NoiseFit]:
    """The seven models of a unit's pair prompts, fitted to its raw scores and labels."""
    columns, classes = pair_columns(unit.data.bank)
    if len(columns) < LEAST_PAIRS:
        raise UserError(
            f"The prompts of {unit.key[0]} hold {len(columns)} pairs such as 'A and B', of which "
            f"the noise model is; take a run with {LEAST_PAIRS} or more."
        )
    passes, stages = unit.passes(), unit.stages
    stages.start(STAGE, sum(passes.images) * (MOST_PASSES + 1))
    parts = passes.each(STAGE, partial(_pairs, unit.shards, columns, classes))

    def summed(work: Any, *arguments: Any) -> Any:
        return passes.merged_over(parts, STAGE, stages.watch, work, *arguments)

    balance = remote(_balance).remote(summed(CellCounts.of))

    def one_pass(tables: Floats) -> CellSums:
        found: CellSums = result(
            summed(CellSums.of, ray.put(tables), balance), passes.limit, "A pass of the noise model"
        )
        return found

    known = result(balance, passes.limit, "The first pass of the noise model")
    fits = fit(one_pass, known, classes, len(unit.data.bank.classes), most_passes=MOST_PASSES)
    stages.say(f"noise model  {max(found.passes for found in fits.values())} passes")
    return fits


def pair_columns(bank: PromptBank) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The columns of the bank's "A and B" prompts (P,) and their classes (P, 2)."""
    columns, classes = [], []
    for column, prompt in enumerate(bank.compound):
        if prompt.origin == "pair":
            i, j = prompt.class_ids
            ways = (pair_prompt(bank.classes, *way).text for way in ((i, j), (j, i)))
            if prompt.text in ways:
                columns.append(column)
                classes.append((i, j))
    return np.array(columns, dtype=np.int64), np.array(classes, dtype=np.int64).reshape(-1, 2)


def _balance(counts: CellCounts) -> Balance:
    return Balance.of(counts)


def _pairs(
    shards: UnitShards, columns: NDArray[np.int64], classes: NDArray[np.int64], group: Group
) -> Pairs:
    """The pair scores and labels of a group's labelled images."""
    scores, labels = [], []
    for shard in group.shards:
        ids, stored = shards.scores(shard)
        labelled, present = shards.labels(shard, ids.to_pylist())
        scores.append(stored.compound[labelled][:, columns])
        labels.append(present[labelled])
    return Pairs(np.concatenate(scores), np.concatenate(labels), classes)
