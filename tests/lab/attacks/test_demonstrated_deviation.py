"""A deviating server on real images: pictures without a seal, noise or nothing against it."""

import pytest

from coterie.errors import UsageError
from coterie.lab.attacks.demonstration import DeviationSetup
from coterie.lab.attacks.deviation import AttackOutcome
from coterie.lab.attacks.inversion import Inversion
from coterie.lab.training import MNIST_SMALL, LocalTraining, load

SETTINGS = LocalTraining(model="mlp", minibatch=1, shuffled=False, dropout=False)


@pytest.fixture(scope="module")
def pictures():
    """Every attack on one user, and the pictures that come of it, with few steps of a search."""
    setup = DeviationSetup(load(MNIST_SMALL), SETTINGS)
    return setup.pictures(setup.names[5], Inversion(steps=100, restarts=1))


def test_every_attack_works_without_a_seal_and_none_against_it(pictures):
    """The trainer, the model and the images are real ones, and so are all messages."""
    outcomes = {}
    for picture in pictures:
        result = picture.result
        outcomes.setdefault(result.sealed, []).append(result.outcome)
        assert result.sealed or result.error < 1e-9
    assert outcomes[False] == [AttackOutcome.RECOVERED] * 5
    assert len(outcomes[True]) == 10
    assert AttackOutcome.RECOVERED not in outcomes[True]


def test_the_users_picture_comes_out_where_the_update_does(pictures):
    """Inversion shows the image without a seal; of noise it makes nothing like it, and of a refusal nothing."""
    for picture in pictures:
        match picture.result.outcome:
            case AttackOutcome.RECOVERED:
                assert picture.score.psnr > 15
                assert picture.score.ssim > 0.7
            case AttackOutcome.NOISE:
                assert picture.score.psnr < 12
                assert picture.score.ssim < 0.2
            case AttackOutcome.REFUSED:
                assert picture.image is None


def test_users_who_do_not_fill_their_batches_are_refused():
    """Three batches or more, all whole: otherwise no device would agree to a sum."""
    with pytest.raises(UsageError, match="10 users cannot be in three or more batches of 4"):
        DeviationSetup(load(MNIST_SMALL), SETTINGS, users=10)
