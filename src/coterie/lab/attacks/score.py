"""How good an attack was: errors of updates, users found, and how alike two images are."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from coterie.errors import UsageError
from coterie.values import FloatArray, IntArray

FOUND = 0.1
"""A user is found if the squared relative error of the estimate of its update is below this."""
WINDOW, SPREAD = 11, 1.5
"""Side and standard deviation of the Gaussian window of SSIM, as its authors have them."""


@dataclass(frozen=True, eq=False)
class UpdateErrors:
    """The squared relative error e_i = ‖δ_i - δ̂_i‖² / ‖δ_i‖² of each user's update (eq:recon_error).

    An estimate of zero has the error 1. `chance[i]` is the error of a guess that needs no disaggregation: the mean
    of all aggregates of the window, the same for everybody.
    """

    errors: FloatArray
    chance: FloatArray

    @property
    def found_users(self) -> IntArray:
        """The users whose updates were found."""
        return np.flatnonzero(self.errors < FOUND)

    @property
    def found_by_chance(self) -> int:
        """How many users the guess without disaggregation would find."""
        return int(np.count_nonzero(self.chance < FOUND))

    def summary(self) -> dict[str, float]:
        """Return the median, mean and least error.

        >>> UpdateErrors(np.array([0.5, 0.25, 3.0]), np.ones(3)).summary()
        {'median': 0.5, 'mean': 1.25, 'least': 0.25}
        """
        errors = self.errors
        return {"median": float(np.median(errors)), "mean": float(errors.mean()), "least": float(errors.min())}


def update_errors(pieces: Iterable[tuple[slice, Tensor, Tensor]], truth: Tensor) -> UpdateErrors:
    """Return the errors of estimates that come in pieces: their place, users × parameters, and the chance guess.

    `truth` holds the users' real updates, users × D, which no server has: it is the judge's alone.
    """
    users = len(truth)
    wrong, guess, size = (torch.zeros(users, dtype=torch.float64, device=truth.device) for _ in range(3))
    for place, estimate, common in pieces:
        real = truth[:, place].double()
        wrong += (real - estimate.to(real)).square().sum(dim=1)
        guess += (real - common.to(real)).square().sum(dim=1)
        size += real.square().sum(dim=1)
    if not bool((size > 0).all()):
        raise UsageError("a user's real update is zero: no relative error can be given")
    return UpdateErrors((wrong / size).cpu().numpy(), (guess / size).cpu().numpy())


@dataclass(frozen=True)
class ImageScore:
    """How near an image is to the original: mean squared error, PSNR in decibel, and SSIM (1 for the same)."""

    mse: float
    psnr: float
    ssim: float


def image_score(image: Tensor, original: Tensor) -> ImageScore:
    """Compare two images of channels × height × width with values from 0 to 1.

    PSNR = -10 log10 MSE, which is infinite for the same image.

    >>> grey = torch.full((1, 16, 16), 0.5)
    >>> score = image_score(grey + 0.1, grey)
    >>> round(score.mse, 6), round(score.psnr, 3)
    (0.01, 20.0)
    """
    if image.shape != original.shape or image.ndim != 3:  # noqa: PLR2004 - channels × height × width
        raise UsageError(
            f"images of shapes {tuple(image.shape)} and {tuple(original.shape)} cannot be compared; give two of "
            "channels × height × width"
        )
    mse = float((image.double() - original.double()).square().mean())
    psnr = -10 * float(np.log10(mse)) if mse > 0 else float("inf")
    return ImageScore(mse, psnr, ssim(image, original))


def ssim(image: Tensor, original: Tensor) -> float:
    """Return the structural similarity of two images with values from 0 to 1 (Wang et al. 2004).

    With means μ, variances σ² and the covariance under a Gaussian window, and C1 = 0.01², C2 = 0.03², it is the
    mean over all places where the window fits, and over channels, of

        (2 μ_x μ_y + C1) (2 σ_xy + C2) / ((μ_x² + μ_y² + C1) (σ_x² + σ_y² + C2)).
    """
    side = min(WINDOW, *image.shape[-2:])
    places = torch.arange(side, dtype=torch.float64) - (side - 1) / 2
    weights = torch.exp(-places.square() / (2 * SPREAD**2))
    window = torch.outer(weights, weights)[None, None] / weights.sum().square()

    def local_mean(values: Tensor) -> Tensor:
        return functional.conv2d(values[:, None], window)

    x, y = image.double().cpu(), original.double().cpu()
    mean_x, mean_y = local_mean(x), local_mean(y)
    variance_x = local_mean(x * x) - mean_x.square()
    variance_y = local_mean(y * y) - mean_y.square()
    covariance = local_mean(x * y) - mean_x * mean_y
    c1, c2 = 0.01**2, 0.03**2
    likeness = (2 * mean_x * mean_y + c1) * (2 * covariance + c2)
    scale = (mean_x.square() + mean_y.square() + c1) * (variance_x + variance_y + c2)
    return float((likeness / scale).mean())
