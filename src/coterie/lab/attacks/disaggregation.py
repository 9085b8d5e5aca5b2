"""Disaggregation: single users' updates out of many rounds' sums, by linear algebra on who took part when.

The sum of round t is z_t = Σ_{i ∈ S(t)} w_i δ_i(x_t), with the weights w_i. If updates hardly change over a window
of rounds, Z = P Δ + noise, and the rows of Δ come out by least squares (app:random-selection). On a batch plan P
has equal columns within a batch, and the solution of minimum norm gives every member its batch's mean: the best
there is.

Kriging is the strongest disaggregation here: each user's update is a Gaussian process over the global models.
Updates follow the model: δ_i(x) ≈ δ_i(x_0) + H_i (x - x_0). The server knows every x, but no H_i. Taken as random,
with variances under which the sums are most likely, they give the linear estimate of least expected error.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from coterie.lab.attacks.score import UpdateErrors, update_errors
from coterie.lab.attacks.view import CHUNK_BYTES, ServerView
from coterie.values import FloatArray

Solver = Callable[[Tensor], Tensor]
"""From a piece of all rounds' sums, rounds × c, to the users' weighted updates w_i δ_i in it, users × c."""


class Method(Protocol):
    """A way to take sums apart; the updates that it estimates are those at the window's first model."""

    @property
    def name(self) -> str:
        """What the method is called in reports."""

    def solver(self, view: ServerView) -> Solver:
        """Return how sums are taken apart, having looked at the whole window once if need be."""


@dataclass(frozen=True)
class LeastSquares:
    """Least squares of minimum norm, Δ̂ = P⁺ Z (eq:recon_ind), for updates that do not change over the window.

    Singular values below `cutoff` times the largest count as zero, so that a rank-deficient P is seen as such.
    """

    cutoff: float = 1e-10
    name = "least squares"

    def solver(self, view: ServerView) -> Solver:
        """Return the multiplication by P⁺."""
        inverse = on_device(view, pseudo_inverse(view.participation, self.cutoff))
        return lambda sums: inverse @ sums

    def operator(self, moments: "Moments") -> FloatArray:
        """Return P⁺, users × rounds: what the sums are multiplied by."""
        return pseudo_inverse(moments.participation, self.cutoff)


@dataclass(frozen=True)
class DiagonalDrift:
    """Least squares for updates that change with the model, the same way for all users, parameter by parameter.

    The server knows the models x_t. If δ_i(x_t) = a_i + b ∘ (x_t - x_0), then z_t = Σ a_i + W_t b ∘ (x_t - x_0).
    What lies outside the span of P is due to b alone: with Q = I - P P⁺, b is found for each parameter by least
    squares of Q Z on Q D, where D has the rows W_t (x_t - x_0). The window must have more rounds than P has rank,
    and D a part outside the span that is no mere rounding; otherwise b is zero.
    """

    cutoff: float = 1e-10
    name = "diagonal drift"

    def solver(self, view: ServerView) -> Solver:
        """Return the estimate of b, its subtraction, and the multiplication by P⁺."""
        matrix = view.participation
        inverse = pseudo_inverse(matrix, self.cutoff)
        outside = on_device(view, np.eye(len(matrix)) - matrix @ inverse)
        spare = len(matrix) - np.linalg.matrix_rank(matrix, tol=self.cutoff * np.linalg.norm(matrix, 2))
        solve, totals = on_device(view, inverse), on_device(view, view.totals)[:, None]

        def without_drift(sums: Tensor) -> Tensor:
            if not spare:
                return solve @ sums
            means = sums / totals
            displacement = totals * (means.cumsum(dim=0) - means)
            seen = outside @ displacement
            size = seen.square().sum(dim=0)
            measurable = size > self.cutoff * displacement.square().sum(dim=0)
            slope = (seen * sums).sum(dim=0) / torch.where(measurable, size, 1.0)
            return solve @ (sums - torch.where(measurable, slope, 0.0) * displacement)

        return without_drift


@dataclass(frozen=True, eq=False)
class Moments:
    """All that a linear method looks at before it decides: P, the totals, and Z Zᵀ of the sums."""

    participation: FloatArray
    totals: FloatArray
    gram: FloatArray
    parameters: int

    def window(self, start: int, length: int) -> "Moments":
        """Return the moments of consecutive rounds alone, from a place on."""
        rounds = slice(start, start + length)
        return Moments(self.participation[rounds], self.totals[rounds], self.gram[rounds, rounds], self.parameters)

    def displacement_gram(self) -> FloatArray:
        """Return (x_t - x_0)·(x_s - x_0) for all pairs of rounds, x_0 the window's first model.

        The models are sums of means, x_t - x_0 = Σ_{r < t} z_r / W_r, so Z Zᵀ has it.
        """
        earlier = np.tril(np.ones_like(self.gram), k=-1) / self.totals
        return earlier @ self.gram @ earlier.T


def moments_of(view: ServerView) -> Moments:
    """Return the moments of a view, after one pass over all sums."""
    rounds = len(view.rounds)
    gram = torch.zeros((rounds, rounds), dtype=torch.float64, device=view.model.device)
    for _, sums in view.pieces():
        gram += sums @ sums.T
    return Moments(view.participation, view.totals, gram.cpu().numpy(), view.parameters)


def predicted_error(moments: Moments, cutoff: float = LeastSquares.cutoff) -> float:
    """Return the error that a server must expect of least squares on a window: drift times conditioning.

    What of the sums lies outside the span of P has the variance σ² a round; the inverse lets through
    σ² tr((PᵀP)⁺) of it, which is set in relation to the squared length of the estimates. It is infinite where no
    round is to spare.
    """
    matrix = moments.participation
    inverse = pseudo_inverse(matrix, cutoff)
    spare = len(matrix) - round(float(np.trace(matrix @ inverse)))
    if spare <= 0:
        return float("inf")
    outside = np.eye(len(matrix)) - matrix @ inverse
    variance = float(np.sum(outside * moments.gram)) / spare
    size = float(np.sum((inverse.T @ inverse) * moments.gram))
    return variance * float(np.sum(inverse**2)) / max(size, np.finfo(np.float64).tiny)


def best_window(view: ServerView, choices: int = 12) -> ServerView:
    """Return the latest rounds of a view, as many as promise the least error by `predicted_error`.

    Longer windows are better conditioned, and updates drift further in them. What a window does not show of all
    that the view shows (its rank against the view's) is not estimated at all and counts as an error of 1: a round
    that was merely repeated promises nothing about the others' users. Where no window has a round to spare, it is
    the whole view.
    """
    moments = moments_of(view)
    rank = np.linalg.matrix_rank(moments.participation)
    rounds = len(view.rounds)
    lengths = sorted({*np.linspace(min(rounds, 2), rounds, choices).round().astype(int).tolist()})

    def cost(length: int) -> float:
        latest = moments.window(rounds - length, length)
        share = float(np.linalg.matrix_rank(latest.participation) / rank)
        return share * predicted_error(latest) + 1 - share

    costs = {length: cost(length) for length in lengths}
    length = min(costs, key=lambda each: (costs[each], -each))
    return view.window(rounds - length, length)


def pseudo_inverse(matrix: FloatArray, cutoff: float) -> FloatArray:
    """Return the pseudo-inverse of a participation matrix; singular values below `cutoff` × the largest are zero.

    >>> pseudo_inverse(np.array([[1.0, 1.0], [1.0, 1.0]]), 1e-10).round(3).tolist()
    [[0.25, 0.25], [0.25, 0.25]]
    """
    return np.linalg.pinv(matrix, rcond=cutoff).astype(np.float64)


def estimated_weights(view: ServerView | Moments) -> FloatArray:
    """Return what the totals W say of each user's weight: as near to equal weights as they allow.

    w = w̄ + P⁺ (W - P w̄), where w̄ is the mean weight of a user in a sum. Users of equal weight are seen as such
    even where rounds are fewer than users. Members of a batch get the mean weight of their batch, as they get its
    mean update. A user who was never in a sum gets w̄, as does one for whom the totals suggest no positive weight.
    """
    participation = view.participation
    sizes = participation.sum(axis=1)
    typical = float(view.totals.sum() / sizes.sum())
    surplus = view.totals - typical * sizes
    weights = typical + pseudo_inverse(participation, LeastSquares.cutoff) @ surplus
    return np.where(weights > 0, weights, typical)


def disaggregate(view: ServerView, method: Method, memory: int = CHUNK_BYTES) -> Iterator[tuple[slice, Tensor]]:
    """Yield the estimates of all users' updates in pieces, users × some parameters, and where they belong.

    Memory stays bounded, whatever the size of the model: `memory` bytes for a piece of all sums.

    >>> learned = [[0, 1], [1, 2], [0, 2]]
    >>> updates = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> means = torch.stack([updates[members].mean(dim=0) for members in learned])
    >>> view = ServerView.of(users=3, learned=learned, means=means, model=torch.zeros(2))
    >>> [(_, estimate)] = disaggregate(view, LeastSquares())
    >>> estimate.numpy().round(6).tolist()
    [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    """
    solver, weights = method.solver(view), on_device(view, estimated_weights(view))[:, None]
    for place, sums in view.pieces(memory):
        yield place, solver(sums) / weights


def estimated_updates(view: ServerView, method: Method) -> Tensor:
    """Return the estimates of all users' updates at once, users × D: for models that fit into memory."""
    whole = torch.empty((view.users, view.parameters), device=view.model.device)
    for place, estimate in disaggregate(view, method):
        whole[:, place] = estimate.float()
    return whole


def disaggregation_errors(view: ServerView, method: Method, truth: Tensor) -> UpdateErrors:
    """Return how far the estimates are from the real updates `truth` (users × D) at the window's first model."""
    solver, weights = method.solver(view), on_device(view, estimated_weights(view))[:, None]
    total = float(view.totals.sum())

    def pieces() -> Iterator[tuple[slice, Tensor, Tensor]]:
        for place, sums in view.pieces():
            yield place, solver(sums) / weights, sums.sum(dim=0) / total

    return update_errors(pieces(), truth)


class LinearMethod(Protocol):
    """A method whose estimate is a matrix times the sums, which it chooses by the sums' moments."""

    name: str

    def operator(self, moments: Moments) -> FloatArray:
        """Return users × rounds: what the sums are multiplied by."""


def errors_by_moments(
    method: LinearMethod, moments: Moments, cross: FloatArray, sizes: FloatArray
) -> UpdateErrors:
    """Return the errors of a linear method without a look at any vector, for studies of many windows.

    `cross[t, i]` is z_t·δ_i with the real updates, and `sizes[i]` is ‖δ_i‖². With the operator B, user i errs by
    (‖δ_i‖² - 2 B_i·cross_i + B_i Z Zᵀ B_iᵀ) / ‖δ_i‖².
    """
    weights = estimated_weights(moments)[:, None]
    common = np.full((1, len(moments.totals)), 1 / moments.totals.sum())

    def errors(operator: FloatArray) -> FloatArray:
        agreement = np.einsum("it,ti->i", operator, cross)
        length = np.einsum("it,ts,is->i", operator, moments.gram, operator, optimize=True)
        relative: FloatArray = np.maximum(sizes - 2 * agreement + length, 0.0) / sizes
        return relative

    everybody = np.repeat(common, len(sizes), axis=0)
    return UpdateErrors(errors(method.operator(moments) / weights), errors(everybody))


def on_device(view: ServerView, values: FloatArray) -> Tensor:
    """Return values where the view's vectors are."""
    return torch.from_numpy(np.ascontiguousarray(values)).to(view.model.device)


# --- kriging

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
