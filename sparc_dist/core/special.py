"""Functions of scipy.special, which is imported at the first call.

Its import takes a quarter of a second, which commands such as `sparc-dist view` need not wait for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def expit(x: ArrayLike) -> NDArray[Any]:
    """Returns 1 / (1 + exp(-x)), of the shape of x."""
    from scipy.special import expit as compute

    return np.asarray(compute(x))


def logit(p: ArrayLike) -> NDArray[Any]:
    """Returns log(p / (1 - p)), of the shape of p."""
    from scipy.special import logit as compute

    return np.asarray(compute(p))


def ndtr(x: ArrayLike) -> NDArray[Any]:
    """Returns the standard normal distribution function, of the shape of x."""
    from scipy.special import ndtr as compute

    return np.asarray(compute(x))
