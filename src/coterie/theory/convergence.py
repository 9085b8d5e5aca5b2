"""How fast training converges (thm:convergence): the bound as printed, and what the printed form gets wrong."""

from dataclasses import dataclass

import numpy as np

from coterie.errors import UsageError
from coterie.values.checks import FloatArray, check_count, check_parameters, frozen


@dataclass(frozen=True, eq=False)
class Problem:
    """A federated learning problem, by the constants of assumptions 1-4 (subsec:convergence).

    >>> problem = Problem(
    ...     smoothness=2.0, strong_convexity=1.0, gradient_variances=np.full(4, 0.5), gradient_bound=4.0,
    ...     optimum=1.0, user_optima=np.full(4, 0.125), initial_distance=3.0, local_steps=5,
    ... )
    >>> problem.users, problem.gamma
    (4, 16.0)
    """

    smoothness: float  # ρ: every L_i is ρ-smooth
    strong_convexity: float  # μ: every L_i is μ-strongly convex
    gradient_variances: FloatArray  # σ_i²: variance of user i's stochastic gradients
    gradient_bound: float  # G²: E‖stochastic gradient‖² at most
    optimum: float  # L* = min L
    user_optima: FloatArray  # L_i* = min L_i
    initial_distance: float  # E‖x⁰ - x*‖²
    local_steps: int  # E: SGD steps of a user in a round

    def __post_init__(self) -> None:
        for name in ("gradient_variances", "user_optima"):
            object.__setattr__(self, name, frozen(np.array(getattr(self, name), dtype=np.float64)))
        if self.gradient_variances.shape != (self.users,) or self.users == 0:
            raise UsageError(
                f"gradient variances are given for {self.gradient_variances.shape} users, "
                f"optima for {self.user_optima.shape}; give one of each per user"
            )
        for name in ("smoothness", "strong_convexity", "gradient_bound", "initial_distance"):
            if not 0.0 <= getattr(self, name) < np.inf:
                raise UsageError(f"{name} is {getattr(self, name)}; give a finite number that is not negative")
        if not 0.0 < self.strong_convexity <= self.smoothness:
            raise UsageError(
                f"strong convexity is {self.strong_convexity} and smoothness {self.smoothness}; "
                "0 < strong convexity ≤ smoothness holds for every loss"
            )
        if not np.all((self.gradient_variances >= 0.0) & np.isfinite(self.gradient_variances)):
            raise UsageError("a gradient variance is negative or not finite; give σ² ≥ 0 for every user")
        if not (np.isfinite(self.optimum) and np.all(np.isfinite(self.user_optima))):
            raise UsageError("an optimum is not finite; give the least loss of every user and of all together")
        check_count(self.local_steps, "the number of local steps E")

    @property
    def users(self) -> int:
        """The number of users N."""
        return len(self.user_optima)

    @property
    def gamma(self) -> float:
        """γ = max(8ρ/μ, E), at least 8 because ρ ≥ μ."""
        return max(8.0 * self.smoothness / self.strong_convexity, float(self.local_steps))


def convergence_bound(problem: Problem, users: int, per_round: int, cardinality: float, rounds: int) -> float:
    """Return the bound on E[L(x^J)] - L* exactly as thm:convergence prints it (eq:conv_rate).

        ρ / (γ + (C/K) E J - 1) · (2(α+β)/μ² + (γ/2) E‖x⁰ - x*‖²),
        α = (1/N) Σσ_i² + 6ρΓ + 8(E-1)²G²,  β = 4(N-K) E²G² / (K(N-1)),  Γ = L* - ΣL_i*

    It holds for equal dropout. The printed form gets three things wrong:

    - Γ lacks its 1/N: it should be L* - (1/N) ΣL_i*. As printed it is not even ≥ 0 when losses are large.
    - β is the variance of sampling users. The mean over k of B batches, drawn without replacement, has the
      variance (B-k)/(k(B-1)) times the variance between batches, and that is at most the variance between users
      (Jensen). With B = N/T and k = K/T, the form for batches is β = 4T(N-K) E²G² / (K(N-T)).
    - The number of rounds that run is random, X ~ Bin(J, C/K), and E[1/X] is taken as 1/E[X], which by Jensen is
      too small. The right factor is the mean of 1/(γ+EX-1) over X.

    >>> problem = Problem(2.0, 1.0, np.full(4, 0.5), 4.0, 1.0, np.full(4, 0.125), 3.0, local_steps=5)
    >>> round(convergence_bound(problem, users=4, per_round=2, cardinality=1.5, rounds=100), 3)
    6.809
    """
    check_parameters(users, per_round)
    check_count(rounds, "the number of rounds J", least=0)
    if problem.users != users:
        raise UsageError(f"the problem has {problem.users} users and N is {users}; they must be the same")
    if not 0.0 <= cardinality <= per_round:
        raise UsageError(f"cardinality C is {cardinality}; it lies between 0 and K = {per_round}")
    steps, rho = problem.local_steps, problem.smoothness
    heterogeneity = problem.optimum - float(problem.user_optima.sum())
    drift = 8.0 * (steps - 1) ** 2 * problem.gradient_bound
    alpha = float(problem.gradient_variances.mean()) + 6.0 * rho * heterogeneity + drift
    factor = 0.0 if per_round == users else (users - per_round) / (per_round * (users - 1))
    beta = 4.0 * factor * steps**2 * problem.gradient_bound
    noise = 2.0 * (alpha + beta) / problem.strong_convexity**2
    scale = rho * (noise + problem.gamma / 2.0 * problem.initial_distance)
    return scale / (problem.gamma + cardinality / per_round * steps * rounds - 1.0)
