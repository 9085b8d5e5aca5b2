"""The account never flatters: what a round says it exposed is no less than what all received bytes would open."""
# ruff: noqa: SLF001 - the truth is known inside the machines: who is whose neighbour, who holds which share

from collections import Counter

import flint
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import PeerError, TooFewUsersError
from coterie.secagg import PROTOCOLS, Task, sealed_round, unsealed_round
from coterie.secagg.protocols import messages_from_client
from coterie.secagg.protocols.agreement.messages import MaskedVector
from coterie.secagg.protocols.open import SealedVector
from coterie.secagg.protocols.pairwise import Unmasking
from support.secagg.batches import Batches, Loners, quantiser, terms

ROUNDS = 2
SEALED = [("open", True), ("secagg", True), ("secagg+", True)]
KINDS = [*SEALED, ("secagg", False), ("secagg+", False)]


class Federation:
    """Nine users: three batches of three, or nobody in any batch."""

    def __init__(self, inner, *, sealed):
        self.sealed = sealed
        if sealed:
            self.users = Batches(3, 3, inner=inner, common={"quantiser": quantiser(cohort=12)})
            self.batch_of = {name: name.rsplit("-", 1)[0] for name in self.users.clients}
        else:
            self.users = Loners(9, common={"inner": inner, "quantiser": quantiser(cohort=12)})
            self.batch_of = {name: name for name in self.users.clients}
        self.names = sorted(self.users.clients)

    def round(self, number):
        """The server's side of a round."""
        inner = self.users.rules.inner
        sizes, privacy = ([3], 3) if self.sealed else ([1], 1)
        asked = terms(min_included=PROTOCOLS[inner].least_included(sizes, privacy))
        if self.sealed:
            return sealed_round(self.users.charters, number, asked)
        return unsealed_round(self.users.rules, self.users.identities, number, asked)


class Wire:
    """Carries one round's messages with their fates, and remembers what bytes the server got, and when."""

    def __init__(self, federation, server, fates):
        self.federation, self.server, self._fates = federation, server, fates
        self.vectors, self.shares = set(), Counter()
        self._late = []

    def play(self):
        """Run the round to its end or as far as it comes; what is late arrives a phase later, or after the end."""
        try:
            outgoing, phase = self.server.start(), 0
            while outgoing:
                arrived, self._late = self._late, []
                for user, answer in [*arrived, *self._answers(outgoing, phase)]:
                    self._arrive(user, answer)
                outgoing, phase = self.server.advance(), phase + 1
            self.server.finish()
        except TooFewUsersError:
            pass
        for user, answer in self._late:
            self._arrive(user, answer)

    def _answers(self, outgoing, phase):
        clients, updates = self.federation.users.clients, self.federation.users.updates
        for user, data in outgoing.items():
            fate = self._fates.get((user, phase), "arrives")
            if fate == "lost on the way there":
                continue
            try:
                answer = clients[user].receive(data)
                if isinstance(answer, Task):
                    answer = clients[user].seal(answer, updates[user])
            except PeerError:
                continue
            if answer is None or fate == "lost on the way back":
                continue
            raw = bytes(answer)
            self._note(user, raw)
            if fate == "garbled":
                raw = raw[:-1] + bytes([raw[-1] ^ 0xFF])
            if fate == "late":
                self._late.append((user, raw))
            else:
                yield user, raw

    def _arrive(self, user, answer):
        try:
            self.server.receive(user, answer)
        except PeerError:
            return

    def _note(self, user, raw):
        """Everything that is sent arrives some time, as it was or garbled: it counts as seen."""
        message, _ = messages_from_client.decode(raw)
        if isinstance(message, (SealedVector, MaskedVector)):
            self.vectors.add(user)
        if isinstance(message, Unmasking):
            roster, included = self.server._roster, frozenset(self.server._included)
            sharers = frozenset(self.server._sharers)
            for owner in roster.graph.holders(roster.position[user]):
                if owner in sharers:
                    kind = "seed" if owner in included else "key"
                    self.shares[kind, roster.lines[owner].user] += 1

    def combinations(self):
        """The combinations of vectors in which every mask cancels that the server cannot compute."""
        vectors, unknown = sorted(self.vectors), {}
        batch_of, sealed = self.federation.batch_of, self.federation.sealed
        for place, user in enumerate(vectors):
            for other in self.federation.names:
                if sealed and other != user and batch_of[other] == batch_of[user]:
                    pair = unknown.setdefault(("seal", *sorted((user, other))), [0] * len(vectors))
                    pair[place] = 1 if user < other else -1
            if self.federation.users.rules.inner != "open":
                self._pairwise_masks(unknown, vectors, place, user)
        if not vectors:
            return []
        rows = [list(column) for column in unknown.values()] or [[0] * len(vectors)]
        kernel, rank = flint.fmpz_mat(rows).nullspace()
        return [{user: int(kernel[place, column]) for place, user in enumerate(vectors)} for column in range(rank)]

    def _pairwise_masks(self, unknown, vectors, place, user):
        roster = self.server._roster
        needed, sharers = roster.graph.neighbourhood.shares_needed, frozenset(self.server._sharers)
        opened = {key for key, count in self.shares.items() if count >= needed}
        if ("seed", user) not in opened:
            unknown.setdefault(("self", user), [0] * len(vectors))[place] = 1
        for at in roster.graph.neighbours(roster.position[user]):
            other = roster.lines[at].user
            if at not in sharers or self.federation.batch_of[other] == self.federation.batch_of[user]:
                continue
            if not {("key", user), ("key", other)} & opened:
                pair = unknown.setdefault(("pair", *sorted((user, other))), [0] * len(vectors))
                pair[place] = 1 if user < other else -1


def level(rows, names):
    """The least number of users who are alike in all rows and in one of them at all; all if there is no row."""
    columns = Counter(tuple(row.get(name, 0) for row in rows) for name in names)
    return min((count for column, count in columns.items() if any(column)), default=len(names))


def reported(exposures, names):
    """The level of an account: learned sets as rows, unknown users each alone."""
    rows = [dict.fromkeys(users, 1) for exposure in exposures for users in exposure.learned]
    rows += [{user: 1} for exposure in exposures for user in exposure.unknown]
    return level(rows, names)


FATES = st.sampled_from(["lost on the way there", "lost on the way back", "late", "garbled"])


@pytest.mark.parametrize(("inner", "sealed"), KINDS)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_no_account_is_above_the_truth(inner, sealed, data):
    """With losses, late messages and lies at any moment, the level reported is at most the true one."""
    federation = Federation(inner, sealed=sealed)
    phases = PROTOCOLS[inner].phases
    keys = st.tuples(st.sampled_from(federation.names), st.integers(0, phases - 1))
    wires = []
    for number in range(ROUNDS):
        fates = data.draw(st.dictionaries(keys, FATES, max_size=4), label=f"fates of round {number}")
        wires.append(Wire(federation, federation.round(number), fates))
        wires[-1].play()
    true = level([row for wire in wires for row in wire.combinations()], federation.names)
    account = reported([wire.server.exposure() for wire in wires], federation.names)
    assert account <= true
    if sealed:
        assert account >= 3


def test_the_oracle_finds_what_a_split_batch_shows():
    """The truth is not trivially high: two unsealed rounds that differ in one user show that user alone."""
    federation = Federation("secagg", sealed=False)
    first, second = (Wire(federation, federation.round(number), {}) for number in range(2))
    first.play()
    second._fates = {("user-4", PROTOCOLS["secagg"].upload_phase): "lost on the way there"}
    second.play()
    rows = [*first.combinations(), *second.combinations()]
    assert len(rows) == 2
    assert level(rows, federation.names) == 1
    assert [abs(row.get("user-4", 0)) for row in rows] == [1, 0]
