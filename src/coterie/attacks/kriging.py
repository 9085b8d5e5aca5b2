"""The strongest disaggregation here: each user's update as a Gaussian process over the global models.

Updates follow the model: δ_i(x) ≈ δ_i(x_0) + H_i (x - x_0). The server knows every x, but no H_i. Taken as random,
with variances under which the sums are most likely, they give the linear estimate of least expected error.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from coterie.attacks.disaggregation import Moments, Solver, moments_of, on_device
from coterie.attacks.view import ServerView
from coterie.values import FloatArray

ITERATIONS, NEAR = 40, 1e-3
"""The search ends after so many steps, or when the log-likelihood changes by less."""
STARTS = ((0.7, 0.1, 0.1, 0.1, 0.01), (0.8, 0.01, 0.02, 5.0, 0.01))
"""Shares of the sums' variance from which the search begins: the likelihood can have a maximum with little drift
and one with much, where shared drift and users' own updates nearly cancel. The higher one counts."""


@dataclass(frozen=True)
class Kriging:
    """Estimate updates at the window's first model by the conditional mean of a Gaussian process (kriging).

    Across parameters, updates of users i, j at the models x_t, x_s have the covariance

        [i = j] (α + κ q_ts) + β + λ q_ts,    q_ts = (x_t - x_0)·(x_s - x_0) / scale:

    α is what users differ in, β what they share, κ and λ how both turn with the model. With a remainder σ² for
    each user in a sum, K is the covariance of the sums, and the estimate is Cov(δ, Z) K⁻¹ Z. The five variances
    maximise the likelihood of the sums, which depends on them through Z Zᵀ alone: every parameter is one
    observation, so there are as many as the model is large. It needs no full rank, and no window longer than N.
    """

    name = "kriging"

    def solver(self, view: ServerView) -> Solver:
        """Return the multiplication by Cov(δ, Z) K⁻¹, after one pass over all sums."""
        operator = on_device(view, self.operator(moments_of(view)))
        return lambda sums: operator @ sums

    def operator(self, moments: Moments) -> FloatArray:
        """Return users × rounds: what the sums are multiplied by."""
        matrix = torch.from_numpy(moments.participation)
        observed = torch.from_numpy(moments.gram / moments.parameters)
        scale = observed.diagonal().mean()
        terms = _covariances(moments)
        variances = _most_likely(terms, observed / scale)
        covariance = _sum(terms, variances)
        own, shared = variances[0], variances[1]
        cross = own * matrix.T + shared * matrix.sum(dim=1)
        operator = torch.linalg.solve(covariance, cross.T).T
        return np.asarray(operator, dtype=np.float64)


def _covariances(moments: Moments) -> list[Tensor]:
    """Return what each of the variances α, β, κ, λ, σ² is multiplied by in the covariance of the sums."""
    matrix = moments.participation
    sizes = matrix.sum(axis=1)
    together = matrix @ matrix.T
    shared = np.outer(sizes, sizes)
    displacement = moments.displacement_gram()
    displacement = displacement / max(float(np.diag(displacement).mean()), np.finfo(np.float64).tiny)
    terms = [together, shared, displacement * together, displacement * shared, np.diag(sizes)]
    return [torch.from_numpy(term) for term in terms]


def _sum(terms: list[Tensor], variances: Tensor) -> Tensor:
    covariance = torch.stack([variance * term for variance, term in zip(variances, terms, strict=True)]).sum(dim=0)
    # Rounding must not make a covariance look indefinite.
    return covariance + 1e-10 * covariance.diagonal().mean() * torch.eye(len(covariance), dtype=covariance.dtype)


def _most_likely(terms: list[Tensor], observed: Tensor) -> Tensor:
    """Return the variances under which sums with these second moments are most likely."""
    return min((_climb(terms, observed, start) for start in STARTS), key=lambda each: each[0])[1]


def _climb(terms: list[Tensor], observed: Tensor, shares: tuple[float, ...]) -> tuple[float, Tensor]:
    """Return the least negative log-likelihood that is reached from a start, and the variances there."""
    typical = [float(term.diagonal().mean()) for term in terms]
    logs = torch.tensor(
        [np.log(share / max(size, 1e-12)) for share, size in zip(shares, typical, strict=True)],
        dtype=torch.float64,
        requires_grad=True,
    )
    optimiser = torch.optim.LBFGS(
        [logs], max_iter=ITERATIONS, tolerance_grad=NEAR, tolerance_change=NEAR, line_search_fn="strong_wolfe"
    )

    def loss() -> float:
        optimiser.zero_grad()
        root = torch.linalg.cholesky(_sum(terms, logs.clamp(-40, 40).exp()))
        spread = torch.cholesky_solve(observed, root).diagonal().sum()
        value = root.diagonal().log().sum() + spread / 2
        value.backward()
        return float(value.detach())

    optimiser.step(loss)  # type: ignore[no-untyped-call]
    return loss(), logs.detach().clamp(-40, 40).exp()
