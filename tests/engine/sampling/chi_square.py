"""Pearson's chi-square test: do counts come from a distribution?"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

_Z = 5.0  # standard deviations: a right sampler fails once in three million seeds


def chi_square_statistic(counts: ArrayLike, probabilities: ArrayLike) -> float:
    """Sum (observed - expected)**2 / expected over possible outcomes; inf if others happened."""
    observed, expected = np.asarray(counts), np.asarray(probabilities)
    expected = expected / expected.sum() * observed.sum()
    possible = expected > 0
    if observed[~possible].any():
        return math.inf
    return float(((observed - expected)[possible] ** 2 / expected[possible]).sum())


def chi_square_limit(degrees: int) -> float:
    """Return the statistic that a right sampler exceeds with probability 3e-7.

    Wilson and Hilferty, "The distribution of chi-square", PNAS 1931.
    """
    variance = 2 / (9 * degrees)
    return float(degrees * (1 - variance + _Z * math.sqrt(variance)) ** 3)
