"""Both machines at every stage of a batch's life, with good messages of every kind to try on them."""
# ruff: noqa: SLF001 - what must not change is what a machine keeps to itself

import numpy as np

from coterie.secagg import BatchFounder, OpenClient, OpenRound, simulated_client
from coterie.secagg.messages import (
    Accepted,
    Draft,
    Enrolment,
    Founding,
    Invitation,
    RoundCall,
    SealedVector,
    Signed,
)
from secagg.batches import SCOPE, configuration, terms
from secagg.servers import UPDATE, Enrolling, call, packed

SERVER_KINDS = (Invitation, Draft, Founding, RoundCall)
CLIENT_KINDS = (Enrolment, Signed, Accepted, SealedVector)


class Stage:
    """A machine at one moment, and a message of each kind: the one to expect then, if that kind is expected."""

    def __init__(self, machine, good, sender=None):
        self.machine, self.good, self.sender = machine, good, sender
        self._first = self.remembered()

    def __repr__(self):
        return f"{type(self.machine).__name__} {' '.join(state.value for state in self.states())}"

    def feed(self, data):
        """Give the machine a message."""
        return self.machine.receive(data) if self.sender is None else self.machine.receive(self.sender, data)

    def remembered(self):
        """All that the machine remembers, as values that compare."""
        machine = self.machine
        if isinstance(machine, OpenClient):
            return dict(machine.membership.store.records), dict(machine._tasks)
        if isinstance(machine, BatchFounder):
            return dict(machine._states), dict(machine._members), dict(machine._signatures), machine._charter
        return dict(machine._states), {digest: words.tobytes() for digest, words in machine._sums.items()}

    def restore(self):
        """Take the machine back to this moment."""
        machine = self.machine
        if isinstance(machine, OpenClient):
            records, tasks = self._first
            machine.membership.store.records, machine._tasks = dict(records), dict(tasks)
        elif isinstance(machine, BatchFounder):
            states, members, signatures, machine._charter = self._first
            machine._states, machine._members = dict(states), dict(members)
            machine._signatures = dict(signatures)
        else:
            states, sums = self._first
            machine._states = dict(states)
            machine._sums = {digest: np.frombuffer(words, dtype="<u4").copy() for digest, words in sums.items()}

    def states(self):
        """Where the machine stands in the tables of states.py."""
        if isinstance(self.machine, OpenClient):
            with self.machine.membership.record(SCOPE) as record:
                return record.joining, self.machine._state(record, SCOPE)
        return (self.machine._states[self.sender],)


class Life:
    """The life of a batch of three: founded, founded anew, sealed, founded once more; kept at every step."""

    def __init__(self):
        self.clients = {user: simulated_client(user, configuration()) for user in ("ana", "bob", "cas")}
        self.devices, self.founders, self.rounds = [], [], []
        first = self._found(None)
        self._call(call(first), first)
        second = self._found(call(first))
        self._restart()
        self._seal(second)
        again = call(second, round_=1)
        self._call(again, second)
        self._found(again)
        anything = {kind: data for stage in self.stages for kind, data in stage.good.items()}
        for stage in self.stages:
            stage.good = {**anything, **stage.good}

    @property
    def stages(self):
        """All stages."""
        return [*self.devices, *self.founders, *self.rounds]

    def messages(self):
        """All different good messages."""
        return sorted({data for stage in self.stages for data in stage.good.values()})

    def _restart(self):
        """Forget the open call, as a client does that is started anew."""
        self.clients["ana"]._tasks.clear()

    def _device(self, good):
        """Keep ana's client, without its open call and with it."""
        ana = self.clients["ana"]
        self.devices.append(Stage(ana, good))
        if ana._tasks:
            tasks = dict(ana._tasks)
            self._restart()
            self.devices.append(Stage(ana, good))
            ana._tasks.update(tasks)

    def _call(self, data, charter):
        """Call ana to a round."""
        good = {**self.devices[-1].good, RoundCall: data}
        self._device(good)
        self.clients["ana"].receive(data)
        self._device(good)
        assert self.clients["ana"]._tasks[SCOPE].charter == charter.digest

    def _found(self, in_force):
        """Let all found a batch; `in_force` is a call under the charter before."""
        founder = BatchFounder(SCOPE, 3, self.clients)
        to_ana, from_bob, from_cas = {}, {}, {}
        if in_force is not None:
            to_ana[RoundCall] = in_force
        if self.rounds:
            from_bob[SealedVector] = self.rounds[-1].good[SealedVector]
        outgoing = founder.invitations()
        for sent, answered in zip(SERVER_KINDS, CLIENT_KINDS[:3], strict=False):
            self.founders.append(Stage(founder, from_bob, "bob"))
            to_ana[sent] = outgoing["ana"]
            self._device(to_ana)
            answers = {user: client.receive(outgoing[user]) for user, client in self.clients.items()}
            from_bob[answered], from_cas[answered] = answers["bob"], answers["cas"]
            founder.receive("ana", answers["ana"])
            founder.receive("bob", answers["bob"])
            self.founders += [Stage(founder, from_bob, "bob"), Stage(founder, from_cas, "cas")]
            outgoing = founder.receive("cas", answers["cas"])
        return founder.charter

    def _seal(self, charter):
        """Let all seal round 0; beside their batch is one modulo the prime."""
        prime = Enrolling().charter(inner="lightsecagg", modulus=2**31 - 1)
        server = OpenRound([charter, prime], 0, terms())
        sealed = {
            user: bytes(client.seal(client.receive(call(charter)), UPDATE, rng=np.random.default_rng(0)))
            for user, client in self.clients.items()
        }
        from_bob = {**self.founders[-1].good, SealedVector: sealed["bob"]}
        words = np.arange(len(UPDATE) + 3, dtype="<u4").tobytes()
        head = SealedVector(SCOPE, prime.digest, 0, "me", terms().digest)
        from_me = {**from_bob, SealedVector: packed(head, words)}
        for user in ("ana", "bob"):
            self.rounds += [Stage(server, from_bob, "bob"), Stage(server, from_me, "me")]
            server.receive(user, sealed[user])
        server.receive("me", from_me[SealedVector])
        self.rounds += [Stage(server, from_me, "me"), Stage(server, from_bob, "bob")]
