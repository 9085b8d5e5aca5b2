"""Kill -9 at random instants, with real processes: a ledger forgets nothing that it took, and doubles nothing."""

import random
import time

from coterie.federation.ledger import Ledger, State
from coterie.federation.ledger.ledger import verify
from support.forked import CONTEXT
from support.ledgers import NAMES, PLAN, cohort_of, known


def _coordinate_for_ever(location, seed, pipe):
    """Enrol, open, and close rounds, telling of each only when it is stored; until killed."""
    rng = random.Random(seed)
    with Ledger.open(location) as ledger, ledger.claim(wait=20) as left:
        pipe.send(("left", left))
        while True:
            if rng.random() < 0.1:
                pipe.send(("enrolled", ledger.enrol([f"newcomer {ledger.users}"]).start))
            batches = rng.sample(range(4), rng.randint(1, 4))
            number = ledger.open_round(cohort_of(PLAN, batches), sealed=True, protocol="open")
            pipe.send(("opened", number))
            users = cohort_of(PLAN, batches).users.tolist()
            if rng.random() < 0.9:
                ledger.commit_round(number, [users], metrics={"loss": rng.random()})
                pipe.send(("committed", (number, users)))
            else:
                ledger.abandon_round(number, "drawn")
                pipe.send(("abandoned", number))


def _heard(pipe):
    """Yield what a process told before it was killed."""
    try:
        while True:
            yield pipe.recv()
    except (EOFError, ConnectionResetError):
        pipe.close()


def test_a_coordinator_that_is_killed_loses_and_doubles_nothing(location, request, record_property):
    """Over many kills: every round that was told committed is there, once, as told; no number is used again; the
    chain is sound; and what a new process resumes from is what the records add up to."""
    with Ledger.create(location) as ledger:
        ledger.enrol(NAMES)
        ledger.publish_plan(PLAN)
    chance = random.Random(0)
    record_property("faults", request.config.getoption("--kills"))
    told = {"opened": [], "committed": [], "abandoned": [], "enrolled": [], "left": []}
    for life in range(request.config.getoption("--kills")):
        here, there = CONTEXT.Pipe(duplex=False)
        process = CONTEXT.Process(target=_coordinate_for_ever, args=(location, life, there))
        process.start()
        there.close()
        if here.poll(30):
            time.sleep(chance.random() * 0.5)
        process.kill()
        process.join()
        for what, which in _heard(here):
            told[what].append(which)
    with Ledger.open(location) as ledger, ledger.claim(wait=20) as left:
        told["left"].append(left)
        rounds = list(ledger.rounds())
        with Ledger.open(location, read_only=True) as again:
            assert known(again) == known(ledger)
    assert verify(location).findings == ()
    assert len(set(told["opened"])) == len(told["opened"]) > 20
    assert [each.number for each in rounds] == list(range(len(rounds)))
    committed = {each.number: each for each in rounds if each.state is State.COMMITTED}
    for number, users in told["committed"]:
        assert [learned.tolist() for learned in committed[number].learned] == [users]
    # A kill between storing and telling can leave one more of each per life, not fewer.
    lives = request.config.getoption("--kills")
    assert 0 <= len(committed) - len(told["committed"]) <= lives
    assert {each.number for each in rounds if each.state is State.ABANDONED} >= set(told["abandoned"])
    assert {each.number for each in rounds if each.state is State.UNFINISHED} >= set(told["left"]) - {None}
    assert sorted(told["enrolled"]) == sorted(set(told["enrolled"]))
    with Ledger.open(location, read_only=True) as ledger:
        assert all(ledger.names[user] == f"newcomer {user}" for user in told["enrolled"])
