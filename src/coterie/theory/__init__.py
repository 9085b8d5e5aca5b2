"""The paper's closed forms, with their assumptions, and what they leave out. Pure functions of numbers."""

from coterie.theory.cardinality import at_least, cardinality, cardinality_of_batches, poisson_binomial
from coterie.theory.convergence import Problem, batch_convergence_bound, convergence_bound
from coterie.theory.exposure import (
    Estimate,
    bernoulli_exposure_bound,
    bernoulli_exposure_probability,
    expected_rounds_to_exposure,
    uniform_exposure_bound,
    uniform_exposure_probability,
)
from coterie.theory.fairness import fairness_gap, participation_rates
from coterie.theory.family import bernoulli_family_size, family_size, family_size_bound

__all__ = [
    "Estimate",
    "Problem",
    "at_least",
    "batch_convergence_bound",
    "bernoulli_exposure_bound",
    "bernoulli_exposure_probability",
    "bernoulli_family_size",
    "cardinality",
    "cardinality_of_batches",
    "convergence_bound",
    "expected_rounds_to_exposure",
    "fairness_gap",
    "family_size",
    "family_size_bound",
    "participation_rates",
    "poisson_binomial",
    "uniform_exposure_bound",
    "uniform_exposure_probability",
]
