"""The paper's closed forms, with their assumptions, and what they leave out. Pure functions of numbers.

In: N, K, T, dropout probabilities.
Out: the closed forms' values, and bounds.
"""

from coterie.theory.convergence import Problem, convergence_bound
from coterie.theory.exposure import (
    Estimate,
    bernoulli_exposure_bound,
    bernoulli_exposure_probability,
    uniform_exposure_bound,
    uniform_exposure_probability,
)
from coterie.theory.measures import (
    at_least,
    cardinality,
    cardinality_of_batches,
    fairness_gap,
    family_size,
    family_size_bound,
    participation_rates,
    poisson_binomial,
)

__all__ = [
    "Estimate",
    "Problem",
    "at_least",
    "bernoulli_exposure_bound",
    "bernoulli_exposure_probability",
    "cardinality",
    "cardinality_of_batches",
    "convergence_bound",
    "fairness_gap",
    "family_size",
    "family_size_bound",
    "participation_rates",
    "poisson_binomial",
    "uniform_exposure_bound",
    "uniform_exposure_probability",
]
