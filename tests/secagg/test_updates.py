"""What sums say about updates: over any accepted history, a batch's members stand in one fixed proportion.

Real clients live through random histories: rounds with losses, late vectors and broken training, data that grow,
batches that merge, charters that are renewed, owners who override. Each user's update is non-zero in one place of
its own, so that the coefficient of every update can be read off every sum that the server could open.
"""

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from coterie.errors import CoterieError, PeerError, TooFewUsersError, UsageError
from coterie.secagg import PROTOCOLS, RING_16, RING_32, found_batch, run_round, sealed_round, simulated_client
from coterie.secagg.client import rounding_key
from coterie.secagg.crypto.keys import Seed
from coterie.secagg.crypto.masking import quantise_into
from coterie.secagg.protocols import messages_from_client
from support.secagg.batches import SCOPE, configuration, quantiser, rules, terms

USERS = [f"user-{number}" for number in range(8)]
PRIVACY, CAP = 2, 5
SIZES = (1.0, -0.5)
"""What an update has in its user's own place, before its data changed and after."""


class Recorder:
    """A server's round, and every vector that came in it."""

    def __init__(self, server):
        self._server, self.vectors = server, {}

    def receive(self, user, data):
        message, tail = messages_from_client.decode(data)
        if type(message).__name__ == "SealedVector":
            self.vectors[user] = bytes(tail)
        self._server.receive(user, data)

    def __getattr__(self, name):
        return getattr(self._server, name)


class History:
    """Users in batches, and every sum that their server could open."""

    def __init__(self, inner, ring):
        self.rules = rules(inner=inner, privacy=PRIVACY, quantiser=quantiser(ring=ring, weight_cap=CAP, cohort=8))
        self.clients = {user: simulated_client(user, configuration()) for user in USERS}
        self.declared = {user: 1 + number % 3 for number, user in enumerate(USERS)}
        self.pinned, self.version = {}, dict.fromkeys(USERS, 0)
        self.round, self.overrides, self.sums = 0, 0, []
        self.batches, self.opened = [], set()
        for start in range(0, len(USERS), PRIVACY):
            self.found(USERS[start : start + PRIVACY])

    def found(self, users):
        """Let users found a batch, in place of those that they were in."""
        charter = found_batch(self.rules, [self.clients[user] for user in users], self.round)
        self.batches = [old for old in self.batches if not set(old.identities) & set(users)] + [charter]

    def groups(self):
        """The members of every batch in force."""
        return [sorted(charter.identities) for charter in self.batches]

    def update(self, user, spoilt):
        """A user's update: non-zero in its own place only; or not finite."""
        values = np.zeros(len(USERS))
        values[USERS.index(user)] = np.nan if user in spoilt else SIZES[self.version[user]]
        return values

    # --- what happens

    def run(self, rng):
        """One round, in which some are lost, some are late, and some have a broken training."""
        inner = PROTOCOLS[self.rules.inner]
        least = inner.least_included([len(group) for group in self.groups()], PRIVACY)
        spoilt = {user for user in USERS if rng.random() < 0.15}
        lost = {user: int(rng.integers(inner.upload_phase + 1)) for user in USERS if rng.random() < 0.15}
        way = "to" if rng.random() < 0.3 else "from"
        conditions = terms(model=bytes([int(rng.integers(2))]), dimension=len(USERS), min_included=least)
        try:
            recorder = Recorder(sealed_round(self.batches, self.round, conditions))
        except UsageError:  # too few users for any sum
            return
        called = {user for group in self.groups() for user in group}

        def loses(user, phase, direction):
            return user in lost and (phase > lost[user] or (phase == lost[user] and direction == way))

        for user in called:
            if not loses(user, 0, "to"):
                self.pinned.setdefault(user, min(self.declared[user], CAP))
        updates = {user: self.update(user, spoilt) for user in called}
        learned = ()
        try:
            result = run_round(
                recorder, self.clients, lambda user, _: updates[user], weights=self.declared, loses=loses
            )
            learned = result.learned
        except TooFewUsersError:
            pass
        if inner.name == "open":
            self.keep_open(recorder, conditions, updates, {user for user in lost if rng.random() < 0.5})
        else:
            for part in learned:
                words = np.rint((part.sum.values + part.sum.weight) / self.rules.quantiser.step)
                self.keep(part.users, words.astype(np.int64), part.sum.weight, conditions, updates)
        self.round += 1

    def keep_open(self, recorder, conditions, updates, late):
        """Add up the vectors of every batch of which all came, those that came late too."""
        for user in late:
            try:
                recorder.receive(user, self.clients[user].resend_sealed(SCOPE, self.round))
            except PeerError:  # refused, and seen
                pass
            except UsageError:  # it was never called
                continue
        ring = self.rules.quantiser.ring
        for group in self.groups():
            if recorder.vectors.keys() >= set(group):
                words = sum(
                    np.frombuffer(recorder.vectors[user], dtype=ring.dtype).astype(np.int64) for user in group
                )
                words %= ring.modulus
                weight, *checks = words[-self.rules.quantiser.extra_words :].tolist()
                assert checks == [len(group)] * ring.check_words
                self.keep(group, words[: len(USERS)], weight, conditions, updates)

    def keep(self, users, words, weight, conditions, updates):
        """Check a sum exactly, word by word; remember the coefficient of every update in it."""
        exact = np.zeros(len(USERS), dtype=np.int64)
        for user in users:
            with self.clients[user].membership.record(SCOPE) as record:
                key, pinned = rounding_key(record.rounding_secret, conditions), record.weight
            assert pinned == self.pinned[user]
            vector = np.empty(len(USERS) + self.rules.quantiser.extra_words, dtype=self.rules.quantiser.ring.dtype)
            quantise_into(vector, updates[user], pinned, self.rules.quantiser, Seed(key.reveal()))
            exact += vector[: len(USERS)].astype(np.int64)
        self.opened |= {frozenset(group) for group in self.groups() if set(group) <= set(users)}
        assert words.tolist() == exact.tolist()
        assert weight == sum(self.pinned[user] for user in users)
        values = words * self.rules.quantiser.step - weight * self.rules.quantiser.clip
        self.sums.append(
            {
                user: None if np.isnan(updates[user]).any() else values[place] / SIZES[self.version[user]]
                for place, user in enumerate(USERS)
                if user in users
            }
        )

    def merge(self, rng):
        """Two batches become one, if all of them have sealed; else devices refuse it, and stay where they are."""
        groups = self.groups()
        if len(groups) > 1:
            one, other = rng.choice(len(groups), 2, replace=False)
            self.attempt([*groups[one], *groups[other]])

    def renew(self, rng):
        """A batch gets a new charter with the same members."""
        groups = self.groups()
        self.attempt(groups[rng.integers(len(groups))])

    def split(self, rng):
        """A server that cuts a batch in two is refused by whoever sealed in it, as long as one of them did."""
        group = self.groups()[rng.integers(len(self.batches))]
        half = group[: len(group) // 2]
        if len(half) < PRIVACY:
            return
        sealed = [self.sealed_under(user) for user in half]
        if any(charter is not None and not charter.identities.keys() <= set(half) for charter in sealed):
            with pytest.raises(PeerError):
                found_batch(self.rules, [self.clients[user] for user in half], self.round)
        else:
            self.attempt(half)

    def override(self, rng):
        """All owners of two batches let go of them, and the users found two others among themselves."""
        groups = self.groups()
        chosen = rng.choice(len(groups), min(2, len(groups)), replace=False)
        users = rng.permutation([user for number in chosen for user in groups[number]]).tolist()
        if len(users) < 2 * PRIVACY:
            return
        for user in users:
            if self.sealed_under(user) is not None:
                self.clients[user].membership.override(SCOPE)
                self.overrides += 1
        self.attempt(sorted(users[: len(users) // 2]))
        self.attempt(sorted(users[len(users) // 2 :]))

    def grow(self, rng):
        """A user has more examples, and says so."""
        self.declared[str(rng.choice(USERS))] += int(rng.integers(1, 4))

    def learn(self, rng):
        """A user's data change, and its update with them."""
        self.version[str(rng.choice(USERS))] = 1

    def attempt(self, users):
        """Found a batch, if its devices agree."""
        try:
            self.found(users)
        except CoterieError:
            event("a charter was refused")

    def sealed_under(self, user):
        """The charter that binds a device, if one does."""
        with self.clients[user].membership.record(SCOPE) as record:
            return record.sealed_under

    # --- what must hold

    def classes(self):
        """The common refinement of all batches that were ever in a sum."""
        found = {}
        for user in set().union(*self.opened):
            found.setdefault(frozenset(batch for batch in self.opened if user in batch), []).append(user)
        return [sorted(users) for users in found.values()]


EVENTS = ["run", "run", "run", "grow", "learn", "merge", "renew", "split", "override"]


@pytest.mark.parametrize("inner", ["open", "secagg"])
@pytest.mark.parametrize("ring", [RING_16, RING_32], ids=["2^16", "2^32"])
@settings(max_examples=12)
@given(story=st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 2**32)), min_size=4, max_size=14))
def test_coefficients_within_a_batch_are_one_fixed_vector(inner, ring, story):
    """In every sum that the server could open, exactly, a class of the refinement is whole or not there at all.

    And its members' updates have the coefficients that their first seals fixed, whatever happened since: so every
    combination of sums has them in one proportion. Without an override no class has fewer than T users.
    """
    history = History(inner, ring)
    for what, seed in story:
        getattr(history, what)(np.random.default_rng(seed))
    event(f"{min(len(history.sums), 6)} sums")
    for members in history.classes():
        assert history.overrides or len(members) >= PRIVACY
        for coefficients in history.sums:
            present = [user for user in members if user in coefficients]
            assert present in ([], members)
            for user in present:
                if coefficients[user] is not None:  # not finite: the zero update, of which no sum says anything
                    assert coefficients[user] == pytest.approx(history.pinned[user], abs=0.1)
