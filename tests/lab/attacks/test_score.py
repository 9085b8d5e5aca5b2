"""Scores against formulas written out anew."""

import numpy as np
import pytest
import torch

from coterie.errors import UsageError
from coterie.lab.attacks.score import UpdateErrors, image_score, ssim, update_errors


def ssim_by_loops(x, y):
    """SSIM of one channel straight from its definition: a window of weights at every place."""
    places = np.arange(11) - 5
    weights = np.exp(-(places[:, None] ** 2 + places[None, :] ** 2) / (2 * 1.5**2))
    weights /= weights.sum()
    values = []
    for row in range(x.shape[0] - 10):
        for column in range(x.shape[1] - 10):
            a, b = x[row : row + 11, column : column + 11], y[row : row + 11, column : column + 11]
            mean_a, mean_b = (weights * a).sum(), (weights * b).sum()
            var_a, var_b = (weights * (a - mean_a) ** 2).sum(), (weights * (b - mean_b) ** 2).sum()
            cov = (weights * (a - mean_a) * (b - mean_b)).sum()
            values.append(
                (2 * mean_a * mean_b + 1e-4) * (2 * cov + 9e-4)
                / ((mean_a**2 + mean_b**2 + 1e-4) * (var_a + var_b + 9e-4))
            )  # fmt: skip
    return np.mean(values)


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.5])
def test_ssim_is_that_of_its_definition(noise):
    """On colour images, the mean over channels; 1 for the same image."""
    rng = np.random.default_rng(1)
    x = rng.random((3, 20, 17))
    y = np.clip(x + noise * rng.standard_normal(x.shape), 0, 1)
    expected = np.mean([ssim_by_loops(a, b) for a, b in zip(x, y, strict=True)])
    assert ssim(torch.from_numpy(x), torch.from_numpy(y)) == pytest.approx(expected, abs=1e-12)
    assert (noise > 0) == (expected < 1 - 1e-9)


def test_the_same_image_has_no_error_and_an_infinite_psnr():
    """MSE 0, PSNR infinite, SSIM 1."""
    image = torch.rand(1, 28, 28)
    score = image_score(image, image)
    assert (score.mse, score.psnr) == (0.0, float("inf"))
    assert score.ssim == pytest.approx(1.0)


def test_images_of_different_shapes_are_refused():
    """They cannot be compared."""
    with pytest.raises(UsageError, match="cannot be compared"):
        image_score(torch.zeros(1, 28, 28), torch.zeros(3, 28, 28))


def test_errors_are_relative_squared_and_judge_in_pieces():
    """An estimate of zero errs by 1, the truth by 0, twice the truth by 1; below 0.1 a user is found."""
    truth = torch.tensor([[1.0, 2.0, 3.0]]).repeat(4, 1)
    estimate = torch.tensor([0.0, 1.0, 2.0, 0.7])[:, None] * truth
    pieces = [(slice(k, k + 1), estimate[:, k : k + 1], torch.zeros(1)) for k in range(3)]
    result = update_errors(pieces, truth)
    assert result.errors == pytest.approx([1.0, 0.0, 1.0, 0.09])
    assert result.found_users.tolist() == [1, 3]
    assert result.chance == pytest.approx(np.ones(4))
    assert UpdateErrors(result.errors, np.zeros(4)).found_by_chance == 4


def test_a_user_that_sent_nothing_has_no_relative_error():
    """An update of zero is refused in words, not answered with infinity."""
    with pytest.raises(UsageError, match="zero"):
        update_errors([(slice(0, 1), torch.zeros(1, 1), torch.zeros(1))], torch.zeros(1, 1))
