"""Coordinators in processes of their own, for tests that kill them and let them race."""

import contextlib
import random
import time

import numpy as np

from coterie.errors import TooFewUsersError
from coterie.federation.coordinator import Coordinator
from coterie.federation.ledger import BusyError, Ledger, State
from coterie.selection import BatchSelector, consecutive
from support.federation.aggregations import outcome_of
from support.forked import CONTEXT

SEED = 3
PLAN = consecutive(users=12, privacy=2)
SELECTOR = BatchSelector(PLAN, per_round=6)
ENDED = (State.COMMITTED, State.ABANDONED, State.SKIPPED)


def create(location):
    """Make the ledger that the processes run on."""
    with Ledger.create(location) as ledger:
        ledger.enrol([f"user-{i}" for i in range(PLAN.users)])
        ledger.publish_plan(PLAN)


def always(step):
    """Everybody is there in every step."""
    del step
    return np.ones(PLAN.users, dtype=bool)


def mostly(step):
    """Who is there is drawn for every step; now and then too few are."""
    return np.random.default_rng([SEED, 1, step]).random(PLAN.users) < 0.9


def learned(step, cohort):
    """Return the users of the batches that come through in a step: all batches, some, or none."""
    through = np.random.default_rng([SEED, 2, step]).random(len(cohort.batches)) < 0.8
    return PLAN.users_of(cohort.batches[through])


class Cheap:
    """An aggregation that takes no time, and gives the same for the same step whatever number its round has."""

    name, sealed, terms_digest = "cheap", True, b""

    def __init__(self, coordinator):
        self._coordinator = coordinator

    def ready(self, plan):
        del plan

    def gather(self, round_, cohort, ended):
        del ended
        users = learned(self._coordinator.step, cohort)
        if len(users) == 0:
            raise TooFewUsersError("no batch came through")
        return outcome_of(round_, cohort, [users], users.mean(keepdims=True))


def uninterrupted(steps, presence):
    """Return what steps give without a ledger, without another coordinator, and without an accident."""
    counts, found = np.zeros(PLAN.users, dtype=np.int64), []
    for step in range(steps):
        cohort = SELECTOR.choose(presence(step), counts, np.random.default_rng([SEED, step]))
        users = [] if cohort is None else learned(step, cohort).tolist()
        counts[users] += 1
        found.append(users)
    return found


def by_step(rounds):
    """Return what the steps gave, of the rounds of a ledger: a round that died is no step."""
    return [np.concatenate([[], *each.learned]).tolist() for each in rounds if each.state in ENDED]


def start(target, *args):
    """Start a process; return it, and the pipe with what it tells: `target` gets the other end last."""
    here, there = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=target, args=(*args, there), daemon=True)
    process.start()
    there.close()
    return process, here


def run_steps(location, steps, pipe):
    """Run rounds until there are enough steps, and tell of each when it is over."""
    with Ledger.open(location) as ledger:
        coordinator = _coordinator(ledger)
        while coordinator.step < steps:
            with contextlib.suppress(
                BusyError
            ):  # a database may need a moment to notice that a process was killed
                pipe.send(_told(coordinator.run_round(mostly(coordinator.step), Cheap(coordinator))))


def run_rounds(location, rounds, seed, pipe):
    """Run some rounds beside other coordinators, each after a moment, and tell of each when it is over."""
    chance = random.Random(seed)
    with Ledger.open(location) as ledger:
        coordinator = _coordinator(ledger)
        while rounds:
            time.sleep(chance.random() * 0.01)
            with contextlib.suppress(BusyError):
                pipe.send(_told(coordinator.run_round(always(coordinator.step), Cheap(coordinator))))
                rounds -= 1


def _coordinator(ledger):
    return Coordinator(ledger, lambda plan: BatchSelector(plan, SELECTOR.per_round), SEED)


def _told(outcome):
    """The round's number and what was learned in it."""
    return outcome.round, [users.tolist() for users in outcome.learned]


def told(pipe):
    """Yield what a process tells until it ends."""
    try:
        while True:
            yield pipe.recv()
    except (EOFError, ConnectionResetError):
        pipe.close()
