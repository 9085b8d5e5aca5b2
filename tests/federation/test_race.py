"""Coordinators racing in real processes: one of them runs each round, and together they are as one alone."""

from support.federation.aggregations import check_sound
from support.federation.processes import always, by_step, create, run_rounds, start, told, uninterrupted

RUNNERS, ROUNDS = 3, 60


def test_of_racing_coordinators_exactly_one_runs_each_round(location):
    """Three processes run rounds of one ledger: none is run by two, and all together are as one's alone."""
    create(location)
    running = [start(run_rounds, location, ROUNDS, number) for number in range(RUNNERS)]
    heard = {}
    for number, (process, pipe) in enumerate(running):
        for round_, learned in told(pipe):
            assert round_ not in heard, f"round {round_} was run by {number} and by {heard[round_][0]}"
            heard[round_] = (number, learned)
        process.join()
        assert process.exitcode == 0
    rounds = check_sound(location)
    assert sorted(heard) == list(range(len(rounds))) == list(range(RUNNERS * ROUNDS))
    assert by_step(rounds) == uninterrupted(len(rounds), always)
    runner = {}
    for each in rounds:
        number, learned = heard[each.number]
        assert [users.tolist() for users in each.learned] == learned
        assert runner.setdefault(each.coordinator, number) == number
    assert len(runner) == RUNNERS
