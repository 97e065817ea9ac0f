"""States come back bit by bit, and damaged ones are not read."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sparc_dist.core.baselines import PromptMoments
from sparc_dist.core.moments import Moments
from sparc_dist.runs import reduce_checkpoints

STATE = PromptMoments(Moments(3, np.array([0.1, 0.2]), np.array([0.3, 0.4])), 1)


def same(found: PromptMoments) -> bool:
    pairs = zip(found.arrays(), STATE.arrays(), strict=True)
    return all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in pairs)


def test_a_state_is_restored_with_its_key_and_hashes(tmp_path: Path) -> None:
    url = str(tmp_path / "state.npz")
    reduce_checkpoints.save(url, "key", STATE, ["a", "b"])
    state, hashes, key = reduce_checkpoints.load_any(url, PromptMoments) or (None, [], "")
    assert state is not None
    assert same(state)
    assert (hashes, key) == (["a", "b"], "key")
    assert reduce_checkpoints.load(url, "other", PromptMoments) is None


def test_a_damaged_state_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    reduce_checkpoints.save(str(path), "key", STATE)
    content = path.read_bytes()
    for place in range(0, len(content), 7):
        path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        assert reduce_checkpoints.load(str(path), "key", PromptMoments) is None
