"""A federation in this process: a ledger, users with devices in memory, and a network that follows a script."""

import msgspec
import numpy as np

from coterie.federation.aggregation import SealedAggregation, form_batches
from coterie.federation.coordinator import Coordinator
from coterie.secagg import (
    PROTOCOLS,
    BatchRules,
    DeviceConfiguration,
    Quantiser,
    SealedClient,
    Terms,
    simulated_client,
)
from coterie.secagg.loopback import Arrival, Contribution, SimulatedUsers, perfect_network
from coterie.secagg.wire.framing import encode
from coterie.selection import BatchSelector, consecutive
from support.secagg.midway import from_client

SCOPE = "keyboard"
USERS, SIZE = 12, 2
NAMES = [f"user-{i}" for i in range(USERS)]
DIMENSION = 7
WEIGHT_CAP = 9
INNER = list(PROTOCOLS)
"""The inner protocols that the tests of sealed rounds run with."""
PHASES = {inner: PROTOCOLS[inner].phases for inner in INNER}
UPLOADED = {inner: PROTOCOLS[inner].upload_phase for inner in INNER}
"""The last phase in which a silent user costs its batch the round."""


def configuration(inner, **changes):
    """What a device's owner allows."""
    return DeviceConfiguration(**{"scopes": {SCOPE}, "least_privacy": 2, "protocols": {inner}, **changes})


class ScriptedNetwork:
    """Decides about messages by (user, round, phase, way); remembers the answers that will come late."""

    def __init__(self, script=None):
        self.script = {} if script is None else script
        self.late, self.latest = [], None

    def __call__(self, user, moment, way):
        self.latest = moment
        arrival = self.script.get((user, moment.round, moment.phase, way), Arrival.IN_TIME)
        if arrival is Arrival.LATE and way == "from":
            self.late.append((user, moment))
        return arrival

    def spoils(self, user, round_, phases):
        """Whether a message to or from a user is lost or late in one of the first phases of a round."""
        keys = ((user, round_, phase, way) for phase in range(phases) for way in ("to", "from"))
        return any(self.script.get(key, Arrival.IN_TIME) is not Arrival.IN_TIME for key in keys)

    def heard(self):
        """Return the senders of the late answers that have come by now: with the next messages that went out."""
        come = [(user, moment) for user, moment in self.late if moment < self.latest]
        self.late = self.late[len(come) :]
        return {user for user, _ in come}


class Federation:
    """Users with devices, enrolled in a ledger under a plan; users' updates and weights never change."""

    def __init__(self, ledger, plan, inner="open", *, weighted=False):
        self.ledger, self.inner, self.weighted = ledger, inner, weighted
        self.clients, self.updates, self.weights = {}, {}, {}
        self.join(plan.users)
        ledger.publish_plan(plan)

    def join(self, count, **changes):
        """Enrol users, each with a new device; return their names."""
        names = [f"user-{len(self.clients) + i}" for i in range(count)]
        for name in names:
            chance = np.random.default_rng(len(self.clients))
            self.clients[name] = simulated_client(name, configuration(self.inner, **changes))
            self.updates[name] = chance.uniform(-0.9, 0.9, DIMENSION)
            self.weights[name] = int(chance.integers(1, WEIGHT_CAP + 1)) if self.weighted else 1
        self.ledger.enrol(names, [self.clients[name].membership.identity.public for name in names])
        return names

    def restart(self, name):
        """Let a device's process start again: what it had stored is all that it knows."""
        self.clients[name] = SealedClient(self.clients[name].membership)

    def reach(self, network=perfect_network):
        """A transport to all users."""
        return SimulatedUsers(
            self.clients,
            lambda tasks: {user: Contribution(self.updates[user], self.weights[user]) for user in tasks},
            network,
        )

    def form_batches(self, transport):
        """Form the batches that have no charter."""
        return form_batches(self.ledger, transport, self.rules())

    def rules(self, **changes):
        """What all charters have in common."""
        quantiser = Quantiser(PROTOCOLS[self.inner].rings[-1], 1.0, WEIGHT_CAP if self.weighted else 1, 60)
        privacy = 2 if self.ledger.plan is None else self.ledger.plan.privacy
        return BatchRules(
            **{"scope": SCOPE, "privacy": privacy, "quantiser": quantiser, "inner": self.inner, **changes}
        )

    def terms(self, **changes):
        """Terms that every device accepts."""
        plan = self.ledger.plan
        least = PROTOCOLS[self.inner].least_included(plan.sizes.tolist(), plan.privacy)
        options = {"model": b"model", "dimension": DIMENSION, "min_included": least}
        return Terms(**{**options, **changes})

    def aggregation(self, transport, **changes):
        """A sealed round over a transport."""
        return SealedAggregation(self.ledger, transport, self.terms(**changes), self.inner)

    def coordinator(self, per_round, seed=1, **options):
        """A coordinator that takes so many users, or one batch if that has more, or all if they are fewer."""

        def selector(plan):
            return BatchSelector(plan, min(plan.users, max(per_round, int(plan.sizes.max()))))

        return Coordinator(self.ledger, selector, seed, **options)

    @property
    def everyone(self):
        """Everybody is available."""
        return np.ones(self.ledger.users, dtype=bool)

    def mean(self, users):
        """The weighted mean of the updates of some users, by number, as nobody but this test can know it."""
        names = [f"user-{user}" for user in users]
        weights = [self.weights[name] for name in names]
        return np.average([self.updates[name] for name in names], axis=0, weights=weights)


def in_six_batches(ledger, inner, *, found=True, **options):
    """A federation of twelve users in six batches, which are formed unless told otherwise."""
    federation = Federation(ledger, consecutive(USERS, SIZE), inner, **options)
    if found:
        assert federation.form_batches(federation.reach()) == {}
    return federation


class WrongShares:
    """A transport under which one user changes the first of the shares that it gives in the last phase."""

    def __init__(self, transport, liar, phase):
        self._transport, self._liar, self._phase = transport, liar, phase

    def exchange(self, outgoing, moment):
        """Carry the messages, and change one answer."""
        for user, data in self._transport.exchange(outgoing, moment):
            answer = data
            if user == self._liar and moment.round is not None and moment.phase == self._phase:
                message = from_client(data)
                wrong = bytes([message.shares[0] ^ 1]) + message.shares[1:]
                answer = encode(msgspec.structs.replace(message, shares=wrong))
            yield user, answer
