"""The claim about updates (docs/threat-model.md), tried on random histories of what a server may do with devices.

A server founds batches, merges them, lets them grow and tries to split them, with the rules of before or with
others; it calls any charter to any round, with losses, old charters and steps that go back. Devices refuse what
they refuse. Meanwhile data grow, weights move, updates are at times not finite, and owners override records.

(`test_updates.py` compares sums with their exact words, over all protocols, where a server keeps to the rules.)

Every user has coordinates of its own, one for each version of its update, so that what a sum holds of each update
can be read off the sum itself.
"""

import random
from collections import defaultdict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import PeerError, TooFewUsersError
from coterie.secagg import (
    RING_32,
    BatchRules,
    DeviceConfiguration,
    Quantiser,
    Terms,
    found_batch,
    sealed_round,
    simulated_client,
    write_recipe,
)
from coterie.secagg.server import round_call
from coterie.secagg.wire.framing import encode

SCOPE = "keyboard"
PRIVACY = 3
USERS = tuple(f"user-{number:02}" for number in range(14))
VERSIONS = 3
"""How many different updates a user has; what is not finite is the version after the last."""
SIZE = 0.25
QUANTISER = Quantiser(RING_32, clip=1.0, weight_cap=20, cohort=len(USERS))
RULES = BatchRules(SCOPE, PRIVACY, QUANTISER, "open", recipe=write_recipe({"epochs": 1}))
CONFIGURATION = DeviceConfiguration(scopes={SCOPE}, least_privacy=PRIVACY, protocols={"open"})


def update(user, version):
    """The update of one user and version: a value at a coordinate of its own."""
    values = np.full(len(USERS) * VERSIONS, 0.0 if version < VERSIONS else np.nan)
    if version < VERSIONS:
        values[USERS.index(user) * VERSIONS + version] = SIZE
    return values


class History:
    """Devices, and a server that does whatever the dice say; it records each sum, and what was in it."""

    def __init__(self, dice):
        self.dice = dice
        self.actions = (*2 * (self.found,), *5 * (self.call,), *dice.choice(((), (self.override,))))
        self.clients = {user: simulated_client(user, CONFIGURATION) for user in USERS}
        self.charters = []
        self.round, self.step = 0, 0
        self.weights = {}
        """The weight that each user offered with its first seal."""
        self.overridden = set()
        self.sums = []
        """Of each sum the users, their versions, and the sum."""
        self.accepted = 0

    def act(self):
        """Do one thing."""
        self.dice.choice(self.actions)()

    # --- batches

    def members(self):
        """Users for a next batch: a merger, one that grows, a new one, or any users at all."""
        recent = self.charters[-3:]
        old = [list(charter.identities) for charter in self.dice.sample(recent, k=min(2, len(recent)))]
        known = {user for charter in self.charters for user in charter.identities}
        fresh = [user for user in USERS if user not in known]
        group = fresh[: self.dice.choice((1, 3, 3, 4))]
        kinds = [group, self.dice.sample(USERS, k=self.dice.randint(3, 8))]
        if old:
            union = [user for users in old for user in users]
            kinds += [old[0] + group, old[0] + group, union, union, old[0], old[0][:-1]]
        return sorted(set(self.dice.choice(kinds)))

    def found(self):
        """Try to found a batch, at times with another quantiser, recipe or T."""
        other = {
            "clip": {"quantiser": Quantiser(RING_32, 0.5, 20, len(USERS))},
            "weight cap": {"quantiser": Quantiser(RING_32, 1.0, self.dice.choice((2, 40)), len(USERS))},
            "recipe": {"recipe": write_recipe({"epochs": 2})},
            "T": {"privacy": self.dice.choice((2, 4))},
            "nothing": {},
        }
        change = self.dice.choices(tuple(other), weights=(1, 1, 1, 1, 8))[0]
        options = {
            "scope": SCOPE,
            "privacy": PRIVACY,
            "quantiser": QUANTISER,
            "recipe": RULES.recipe,
            **other[change],
        }
        users = self.members()
        if len(users) < options["privacy"]:
            return
        try:
            clients = [self.clients[user] for user in users]
            self.charters.append(found_batch(BatchRules(**options, inner="open"), clients, first=self.round))
        except PeerError:
            return
        self.accepted += 1

    def override(self):
        """Let one owner, or all of a batch, let go of the charter that they sealed under."""
        users = self.dice.choice([[self.dice.choice(USERS)], *(list(c.identities) for c in self.charters)])
        for user in users:
            membership = self.clients[user].membership
            with membership.record(SCOPE) as record:
                bound = bool(record.sealed_charter)
            if bound:
                membership.override(SCOPE)
                self.overridden.add(user)

    # --- rounds

    def call(self):
        """Call a batch, also one that is no more, to the next round; some members may be lost."""
        if not self.charters:
            return
        charter = self.dice.choice([*self.charters, *3 * self.charters[-3:]])
        self.step += self.dice.choice((0, 0, 1))
        step = max(0, self.step - self.dice.choice((0, 0, 0, 0, 0, 1)))
        terms = Terms(self.dice.choice((b"model", b"another")), len(USERS) * VERSIONS, step=step)
        server, call = sealed_round([charter], self.round, terms), encode(round_call(charter, self.round, terms))
        lost = self.dice.sample(USERS, k=self.dice.choice((0, 0, 0, 0, 0, 0, 2)))
        versions = {
            user: self.dice.choices(range(VERSIONS + 1), weights=(12, 1, 1, 1))[0] for user in charter.identities
        }
        for user, version in versions.items():
            if user not in lost:
                self._seal(server, user, call, version)
        self.round += 1
        server.advance()
        try:
            learned = server.finish().learned
        except TooFewUsersError:
            learned = ()
        self.sums += [(part.users, versions, part.sum) for part in learned]
        assert [part.users for part in learned] == list(server.exposure().learned)

    def _seal(self, server, user, call, version):
        """Let a device answer, with a weight that grows with its data."""
        client = self.clients[user]
        try:
            task = client.receive(call)
        except PeerError:
            return
        weight = 1 + USERS.index(user) % 5 + self.round // 3
        with client.membership.record(SCOPE) as record:
            cap = record.in_force.quantiser.weight_cap
        sealed = client.seal(task, update(user, version), weight=weight)
        self.weights.setdefault(user, min(weight, cap))
        server.receive(user, sealed)


def classes(sums):
    """Users who are in the same sums, all of them."""
    columns = {user: tuple(user in users for users, _, _ in sums) for user in USERS}
    found = defaultdict(list)
    for user, column in columns.items():
        if any(column):
            found[column].append(user)
    return list(found.values())


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32))
def test_updates_that_repeat_come_in_fixed_proportions(seed):
    """Of users who are always in the same sums, each sum holds updates in one fixed proportion: their weights.

    So it is in every sum in which all of them give the update that they give again and again, whatever else the
    history holds. Nobody without an override is ever in a class of fewer than T users.
    """
    history = History(random.Random(seed))
    for _ in range(40):
        history.act()
    for users, versions, total in history.sums:
        held = np.rint(total.values / SIZE).astype(int).reshape(len(USERS), VERSIONS)
        assert abs(total.values / SIZE - held.ravel()).max() < 1e-3
        for number, user in enumerate(USERS):
            expected = np.zeros(VERSIONS + 1, dtype=int)
            if user in users:
                expected[versions[user]] = history.weights[user]
            assert held[number].tolist() == expected[:VERSIONS].tolist()
        assert total.weight == sum(history.weights[user] for user in users)
    for users in classes(history.sums):
        weights = np.array([history.weights[user] for user in users])
        rows = [
            [total.values[USERS.index(user) * VERSIONS] / SIZE for user in users]
            for present, versions, total in history.sums
            if users[0] in present and all(versions[user] == 0 for user in users)
        ]
        for row in rows:
            assert np.allclose(row, row[0] / weights[0] * weights, atol=1e-3)
        if not history.overridden:
            assert len(users) >= PRIVACY


def test_the_histories_are_worth_the_name():
    """The dice give histories with many sums, mergers and refusals: otherwise the claim above would be empty."""
    histories = [History(random.Random(seed)) for seed in range(12)]
    for history in histories:
        for _ in range(40):
            history.act()
    assert sum(len(history.sums) for history in histories) > 40
    assert sum(history.accepted for history in histories) > 30
    assert any(history.overridden for history in histories)
    merged = [h for h in histories if len({frozenset(users) for users, _, _ in h.sums}) > len(classes(h.sums))]
    assert merged
