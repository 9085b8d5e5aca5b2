"""Masks are a function of their key and place, as the integers say, and drop the right share."""

import numpy as np
import torch

from coterie.lab.training.models import Draws, KeyedDropout, client_keys, counters, levels, share, step_keys

WORD = 2**64


def scrambled(word):
    """The finaliser of splitmix64 in exact integers."""
    word %= WORD
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % WORD
    return word ^ (word >> 31)


def test_levels_are_what_exact_integers_give():
    """Torch's wrapped arithmetic gives the levels that unbounded integers modulo 2^64 give."""
    keys = torch.tensor([-(2**63), 5, 2**63 - 1])
    drawn = levels(step_keys(keys, torch.tensor(6)), counters(10, 3, torch.device("cpu")))
    for row, key in enumerate(keys.tolist()):
        of_step = scrambled(key + 6 * 0x9E3779B97F4A7C15)
        words = [scrambled(of_step + (place + 3 * 2**40) * 0x9E3779B97F4A7C15) for place in range(3)]
        assert drawn[row].tolist() == np.array(words, dtype=np.uint64).view(np.int16).tolist()


def test_the_right_share_is_dropped_and_the_mean_is_kept():
    """Over a million places the share dropped is p to five standard deviations, and neighbours are unrelated."""
    for probability in (0.2, 0.5, 0.9):
        drop = KeyedDropout(probability, Draws())
        drop.key = torch.tensor(12345)
        kept = drop(torch.ones(1000, 1000))
        share_dropped = float((kept == 0).float().mean())
        assert abs(share_dropped - probability) < 5 * (probability * (1 - probability) / 1e6) ** 0.5 + 2**-16
        assert set(torch.unique(kept).tolist()) == {0.0, np.float32(share(probability)[1])}
        zeros = (kept.flatten() == 0).double()
        for distance in (1, 4, 1000):
            together = np.corrcoef(zeros[:-distance], zeros[distance:])[0, 1]
            assert abs(together) < 5e-3


def test_everybodys_masks_differ_and_do_not_depend_on_company():
    """A user's key in a round is the same in any company; keys of other users, rounds and seeds differ."""
    keys = [client_keys(seed, round_, np.array([3, 9])) for seed in (0, 1) for round_ in (0, 1)]
    assert len(set(np.concatenate(keys).tolist())) == 8
    assert client_keys(0, 1, np.array([9])).tolist() == keys[1][1:].tolist()


def test_a_layer_that_is_called_twice_draws_two_masks():
    """Within a pass every call draws anew; the next pass draws the same again; a tested model drops nothing."""
    draws = Draws()
    drop = KeyedDropout(0.5, draws)
    ones = torch.ones(100)
    first, second = drop(ones), drop(ones)
    draws.start()
    assert torch.equal(drop(ones), first)
    assert not torch.equal(first, second)
    assert torch.equal(drop.eval()(ones), ones)
