"""How fast training converges (thm:convergence): the bound as printed, and a careful one for batches."""

from dataclasses import dataclass

import numpy as np

from coterie.errors import UsageError
from coterie.theory.measures import binomial
from coterie.values.checks import FloatArray, check_count, check_divides, check_parameters, frozen


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

    def local_error(self, heterogeneity: float) -> float:
        """Return α = (1/N) Σσ_i² + 6ρΓ + 8(E-1)²G², with Γ = `heterogeneity`."""
        drift = 8.0 * (self.local_steps - 1) ** 2 * self.gradient_bound
        return float(self.gradient_variances.mean()) + 6.0 * self.smoothness * heterogeneity + drift

    def error_scale(self, alpha: float, beta: float) -> float:
        """Return ρ (2(α+β)/μ² + (γ/2) E‖x⁰ - x*‖²): what eq:conv_rate divides by γ + steps - 1."""
        noise = 2.0 * (alpha + beta) / self.strong_convexity**2
        return self.smoothness * (noise + self.gamma / 2.0 * self.initial_distance)


def convergence_bound(problem: Problem, users: int, per_round: int, cardinality: float, rounds: int) -> float:
    """Return the bound on E[L(x^J)] - L* exactly as thm:convergence prints it (eq:conv_rate).

        ρ / (γ + (C/K) E J - 1) · (2(α+β)/μ² + (γ/2) E‖x⁰ - x*‖²),
        α = (1/N) Σσ_i² + 6ρΓ + 8(E-1)²G²,  β = 4(N-K) E²G² / (K(N-1)),  Γ = L* - ΣL_i*

    It holds for equal dropout. See `batch_convergence_bound` for what the printed form leaves out.

    >>> problem = Problem(2.0, 1.0, np.full(4, 0.5), 4.0, 1.0, np.full(4, 0.125), 3.0, local_steps=5)
    >>> round(convergence_bound(problem, users=4, per_round=2, cardinality=1.5, rounds=100), 3)
    6.809
    """
    share = _check(problem, users, per_round, cardinality, rounds)
    alpha = problem.local_error(problem.optimum - float(problem.user_optima.sum()))
    beta = _sampling_error(problem, users, per_round)
    steps = share * problem.local_steps * rounds
    return problem.error_scale(alpha, beta) / (problem.gamma + steps - 1.0)


def batch_convergence_bound(  # noqa: PLR0917 - a formula has as many parameters as it has
    problem: Problem, users: int, per_round: int, privacy: int, cardinality: float, rounds: int
) -> float:
    """Return our careful form of thm:convergence: the bound for whole batches. T divides N and K.

    It differs from `convergence_bound` in three places:

    - Γ = L* - (1/N) ΣL_i*: the printed Γ lacks the 1/N, and is not even ≥ 0 when losses are large.
    - β = 4T(N-K) E²G² / (K(N-T)). The mean over k of B batches, drawn without replacement, has the variance
      (B-k)/(k(B-1)) times the variance between batches, and that is at most the variance between users
      (Jensen). With B = N/T and k = K/T this is T(N-K)/(K(N-T)); the printed β is the case T = 1.
    - 1/(γ+EX-1) is averaged over the number of completed rounds X ~ Bin(J, C/K). The printed bound puts the
      mean of X into it, which by Jensen is too small.

    >>> problem = Problem(2.0, 1.0, np.full(4, 0.5), 4.0, 1.0, np.full(4, 0.125), 3.0, local_steps=5)
    >>> round(batch_convergence_bound(problem, 4, 2, privacy=2, cardinality=1.5, rounds=100), 3)
    9.62
    """
    batches, needed = check_divides(users, per_round, privacy)
    share = _check(problem, users, per_round, cardinality, rounds)
    alpha = problem.local_error(problem.optimum - float(problem.user_optima.mean()))
    beta = _sampling_error(problem, batches, needed)
    completed = np.arange(rounds + 1)
    steps = problem.gamma + problem.local_steps * completed - 1.0
    return problem.error_scale(alpha, beta) * float(binomial(rounds, share, completed) @ (1.0 / steps))


def _check(problem: Problem, users: int, per_round: int, cardinality: float, rounds: int) -> float:
    """Return C/K, the share of rounds that run, once all parameters fit together."""
    check_parameters(users, per_round)
    check_count(rounds, "the number of rounds J", least=0)
    if problem.users != users:
        raise UsageError(f"the problem has {problem.users} users and N is {users}; they must be the same")
    if not 0.0 <= cardinality <= per_round:
        raise UsageError(f"cardinality C is {cardinality}; it lies between 0 and K = {per_round}")
    return cardinality / per_round


def _sampling_error(problem: Problem, units: int, sample: int) -> float:
    """Return β = 4(n-k) E²G² / (k(n-1)) for k of n units (users or batches) drawn without replacement."""
    if sample == units:
        return 0.0
    factor = (units - sample) / (sample * (units - 1))
    return 4.0 * factor * problem.local_steps**2 * problem.gradient_bound
