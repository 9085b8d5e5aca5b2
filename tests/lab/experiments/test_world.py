"""Users' fates come from the seed alone, by chance or by the clock."""

from itertools import islice

import numpy as np

from coterie.lab.experiments.setup import World, drawn_dropout

USERS = 60
DROPOUT = drawn_dropout(0, (0.1, 0.3, 0.5), USERS)


def online(world, start, rounds):
    """Who is available in some rounds."""
    return np.stack(list(islice(world.available(start), rounds)))


def test_a_resumed_run_meets_the_same_rounds():
    """Rounds from the middle on are those that follow the first ones, under daily cycles too."""
    for rounds_per_day in (0, 24):
        world = World(3, DROPOUT, 0.0, rounds_per_day)
        assert np.array_equal(online(world, 0, 30)[10:], online(world, 10, 20))


def test_daily_cycles_keep_everybodys_share_of_absence():
    """Over many days a user is away as often as its dropout says, and at some hours far more than at others."""
    rounds = online(World(0, DROPOUT, 0.0, rounds_per_day=24), 0, 24 * 400)
    assert np.abs(1 - rounds.mean(axis=0) - DROPOUT).max() < 0.03
    by_hour = rounds.reshape(400, 24, USERS).mean(axis=0)
    assert (np.ptp(by_hour, axis=0) > DROPOUT).all()


def test_a_scheme_may_know_who_was_online_together():
    """Batches of such users are whole more often in later rounds than batches of consecutive ones."""
    world = World(0, DROPOUT, 0.0, rounds_per_day=24)
    rounds = online(world, 0, 200)
    whole = {
        name: sum(len(world.selector(name, 12).plan.whole(each)) for each in rounds)
        for name in ("T6", "T6-together")
    }
    assert whole["T6-together"] > 1.2 * whole["T6"]
