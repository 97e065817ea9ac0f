"""Drift: chance is not a drift, and a shift is."""

from __future__ import annotations

import numpy as np
import pytest

from sparc_dist.core import Moments, drift
from sparc_dist.core.drift import LARGE, MIN_IMAGES


def moments(images: int, shift: float = 0.0, seed: int = 0) -> Moments:
    return Moments.of(np.random.default_rng(seed).normal(shift, 1.0, (images, 60)))


@pytest.mark.parametrize("images", [MIN_IMAGES, 100, 5000])
def test_chance_is_no_drift(images: int) -> None:
    found = drift(moments(images), fitted_on=1000)
    assert found is not None
    assert found < 0.15


@pytest.mark.parametrize("shift", [-0.8, 0.5])
def test_a_shift_is_found_in_its_size(shift: float) -> None:
    found = drift(moments(400, shift), fitted_on=10**9)
    assert found == pytest.approx(abs(shift), abs=0.03)
    assert found is not None
    assert found > LARGE


def test_few_images_say_nothing() -> None:
    assert drift(moments(MIN_IMAGES - 1, 5.0), 1000) is None
