"""A federation over its whole life: whatever happens to it, no combination of rounds covers fewer than T users."""

import contextlib
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coterie.errors import UsageError
from coterie.federation.ledger import Ledger, State
from coterie.leakage import strong_level
from coterie.secagg.loopback import Arrival
from coterie.selection import consecutive, join, leave, merge
from federation.conftest import MEMORY
from support.federation.aggregations import Scripted, check_sound, outcome_of
from support.federation.federation import INNER, Federation

SEEDS = st.integers(0, 2**32 - 1)
SHARES = st.sampled_from([0.0, 0.03, 0.15])


class Died(Exception):  # noqa: N818 - it names what happened
    """The coordinator's process ends."""


class Dying:
    """A transport in whose middle the coordinator dies: after some answers, or before the first message."""

    def __init__(self, users, answers):
        self._users, self._answers = users, answers

    def exchange(self, outgoing, moment):
        if self._answers == 0:
            raise Died
        for answer in self._users.exchange(outgoing, moment):
            yield answer
            self._answers -= 1
            if self._answers == 0:
                raise Died


def chance_of_loss(seed, share):
    """Lose every message by itself, or let it be late."""
    chance = np.random.default_rng(seed)

    def network(user, moment, way):
        del user, moment, way
        if chance.random() >= share:
            return Arrival.IN_TIME
        return Arrival.LATE if chance.random() < 0.5 else Arrival.LOST

    return network


class Life(RuleBasedStateMachine):
    """Rounds, losses, crashes, restarts, and users who come and go, over a ledger on the disk."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self.ledger = Ledger.create(Path(self.folder.name))

    def teardown(self):
        self.ledger.close()
        self.folder.cleanup()

    @initialize(
        inner=st.sampled_from(INNER),
        privacy=st.integers(2, 3),
        batches=st.integers(2, 4),
        extra=st.integers(0, 1),
    )
    def begin(self, inner, privacy, batches, extra):
        """Some batches, one perhaps a user larger, all formed."""
        self.privacy = privacy
        self.federation = Federation(self.ledger, consecutive(privacy * batches + extra, privacy), inner)
        assert self.federation.form_batches(self.federation.reach()) == {}
        self.coordinator = self.federation.coordinator(per_round=2 * privacy + 2)

    def available(self, seed):
        return np.random.default_rng(seed).random(self.ledger.users) < 0.93

    def ask(self, seed, transport):
        """Run a round among most users; None if its cohort is one small batch, which no pairwise protocol asks."""
        available = np.random.default_rng(seed).random(self.ledger.users) < 0.95
        try:
            return self.coordinator.run_round(available, self.federation.aggregation(transport))
        except UsageError as error:
            if "min_included" not in str(error):
                raise
            return None

    @rule(seed=SEEDS, share=SHARES)
    def run_round(self, seed, share):
        """Learned are whole batches that were asked, and the mean is theirs."""
        outcome = self.ask(seed, self.federation.reach(chance_of_loss(seed, share)))
        if outcome is None or outcome.state != "committed":
            return
        plan, lost = self.ledger.plan, outcome.lost.keys()
        complete = np.array([batch for batch in outcome.cohort.batches.tolist() if batch not in lost])
        users = plan.users_of(complete)
        learned = [users] if self.federation.inner != "open" else [np.sort(plan.batch(b)) for b in complete]
        assert [each.tolist() for each in outcome.learned] == [each.tolist() for each in learned]
        assert np.abs(outcome.mean - self.federation.mean(users)).max() < 1e-6

    @rule(seed=SEEDS, share=SHARES, answers=st.integers(0, 12))
    def die_in_a_round(self, seed, share, answers):
        """The coordinator's process ends in the middle of a round, and another one starts."""
        with contextlib.suppress(Died):
            self.ask(seed, Dying(self.federation.reach(chance_of_loss(seed, share)), answers))
        self.restart()

    @rule()
    def restart(self):
        """A new coordinator knows what the disk says, and nothing else."""
        self.ledger.close()
        self.ledger = self.federation.ledger = Ledger.open(Path(self.folder.name))
        self.coordinator = self.federation.coordinator(per_round=2 * self.privacy + 2)

    @rule(which=SEEDS)
    def restart_a_device(self, which):
        """A device goes on from what it stored."""
        self.federation.restart(f"user-{which % self.ledger.users}")

    def publish(self, plan):
        """Plans change between rounds: a round that a dead coordinator left open is closed first."""
        with self.ledger.claim():
            pass
        self.ledger.publish_plan(plan)

    @rule(count=st.integers(1, 2))
    @precondition(lambda self: self.ledger.users < 30)
    def enrol(self, count):
        """Newcomers wait for others."""
        self.federation.join(count)

    @rule(seed=SEEDS, share=SHARES)
    @precondition(lambda self: self.ledger.users - self.ledger.plan.users >= self.privacy)
    def plan_newcomers(self, seed, share):
        """Newcomers form batches of their own as soon as they are T."""
        plan = self.ledger.plan
        self.publish(join(plan, self.ledger.users - plan.users, self.ledger.names[plan.users :]))
        self.form_batches(seed, share)

    @rule(which=SEEDS)
    @precondition(lambda self: len(self.ledger.plan) > 2)
    def leave(self, which):
        """A user leaves for good, and its batch retires."""
        members = self.ledger.plan.members
        self.publish(leave(self.ledger.plan, [members[which % len(members)]]))

    @rule(seed=SEEDS, share=SHARES)
    @precondition(lambda self: len(self.ledger.plan) > 2)
    def merge(self, seed, share):
        """Two batches go on as one."""
        batches = np.random.default_rng(seed).choice(len(self.ledger.plan), 2, replace=False)
        self.publish(merge(self.ledger.plan, batches))
        self.form_batches(seed, share)

    @rule(seed=SEEDS, share=SHARES)
    def form_batches(self, seed, share):
        """Batches without a charter try to form, over a transport that loses messages too."""
        failed = self.federation.form_batches(self.federation.reach(chance_of_loss(seed, share)))
        assert failed.keys() == set(range(len(self.ledger.plan))) - self.ledger.charters.keys()

    @invariant()
    def nobody_is_singled_out(self):
        """No linear combination of all that was, or may have been, learned covers fewer than T users."""
        assert strong_level(self.ledger.log()) >= self.privacy
        assert self.ledger.snapshot().unknown_rounds == ()

    @invariant()
    def the_ledger_is_sound(self):
        """What is on the disk reads back whole, and its rounds and counts add up."""
        rounds = check_sound(Path(self.folder.name))
        died = [each.number for each in rounds if each.state in (State.UNFINISHED, State.OPEN)]
        assert list(self.ledger.snapshot().assumed_rounds) == died


Life.TestCase.settings = settings(max_examples=12, stateful_step_count=25)
TestLife = Life.TestCase


def test_without_a_seal_the_same_life_singles_users_out(tmp_path):
    """The same losses under survivors' sums, as plain secure aggregation gives them, bring the level below T."""
    chance = np.random.default_rng(1)

    def survivors(round_, cohort):
        left = cohort.users[chance.random(len(cohort.users)) >= 0.15]
        return outcome_of(round_, cohort, [left], left.mean(keepdims=True))

    with Ledger.create(tmp_path) as ledger:
        federation = Federation(ledger, consecutive(12, 3))
        coordinator = federation.coordinator(per_round=6)
        levels = []
        for _ in range(20):
            coordinator.run_round(federation.everyone, Scripted(survivors, name="secagg"))
            levels.append(strong_level(ledger.log()))
    check_sound(tmp_path)
    assert levels[-1] == 1
