"""Kill -9 at random instants, with real processes: a coordinator goes on as if it had never stopped."""

import random
import signal
import time
from itertools import islice

from coterie.federation.ledger import State
from support.federation.aggregations import check_sound
from support.federation.processes import ENDED, by_step, create, mostly, run_steps, start, told, uninterrupted

STEPS = 1000


def test_a_coordinator_killed_again_and_again_runs_the_same_federation(location):
    """Over a thousand steps every one happens once, with the same cohort and the same learned set.

    No round that was told is lost or told otherwise, and no round has the number of another.
    """
    create(location)
    chance, heard, kills = random.Random(0), {}, 0
    while True:
        process, pipe = start(run_steps, location, STEPS)
        news = told(pipe)
        before = list(islice(news, chance.randint(1, 200)))
        time.sleep(chance.random() * 0.005)
        process.kill()
        process.join()
        for round_, learned in (*before, *news):
            assert round_ not in heard, f"round {round_} was told twice"
            heard[round_] = learned
        assert process.exitcode in (0, -signal.SIGKILL)
        if process.exitcode == 0:  # all steps were done before it could be killed
            break
        kills += 1
    assert kills >= 3
    rounds = check_sound(location)
    assert {each.state for each in rounds} >= {State.COMMITTED, State.ABANDONED, State.SKIPPED}
    assert by_step(rounds) == uninterrupted(STEPS, mostly)
    for round_, learned in heard.items():
        assert rounds[round_].state in ENDED
        assert [users.tolist() for users in rounds[round_].learned] == learned
    # What a process had stored when it was killed, and not yet told: one round at most.
    assert STEPS - len(heard) <= kills
