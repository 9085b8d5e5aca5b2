"""Both machines at every stage of a batch's life, with good messages of every kind to try on them."""
# ruff: noqa: SLF001 - what must not change is what a machine keeps to itself

import numpy as np

from coterie.secagg import (
    BatchFounder,
    IdentityKey,
    TrustServerForIdentities,
    UnsealedClient,
    found_batch,
    sealed_round,
    simulated_client,
    unsealed_round,
)
from coterie.secagg.crypto.ring import PRIME_31
from coterie.secagg.protocols import messages_from_client
from coterie.secagg.protocols.agreement.messages import (
    Advertisement,
    Agreement,
    Delivery,
    MaskedVector,
    Opening,
    Proposal,
    Receipt,
    Reveal,
    RevealCall,
    RosterCall,
    SharersCall,
)
from coterie.secagg.protocols.lightsecagg import CodedSharing, ShareSum
from coterie.secagg.protocols.open import SealedVector
from coterie.secagg.protocols.pairwise import Sharing, Unmasking
from coterie.secagg.wire.framing import encode
from coterie.secagg.wire.messages import (
    CharterAcceptance,
    CharterSignature,
    Draft,
    Enrolment,
    Founding,
    Invitation,
    RoundCall,
    UnsealedCall,
)
from support.secagg.batches import SCOPE, configuration, quantiser, rules, terms
from support.secagg.servers import UPDATE, Enrolling, call, packed
from support.secagg.stage import Stage, after_boxes, complaint_about

ENROLMENT = ((Invitation, Enrolment), (Draft, CharterSignature), (Founding, CharterAcceptance))
"""What a client is sent on its way into a batch, and its answers."""
PHASES = (
    (RosterCall, Sharing),
    (Delivery, Receipt),
    (SharersCall, MaskedVector),
    (Proposal, Agreement),
    (Opening, Unmasking),
)
"""The same in the phases of a pairwise round, after the call and the advertisement."""
DISPUTE = (RevealCall, Reveal)
"""What comes before the sharers are fixed if there are complaints."""
SERVER_KINDS = (
    *(sent for sent, _ in ENROLMENT), RoundCall, UnsealedCall, *(sent for sent, _ in (*PHASES, DISPUTE)),
)  # fmt: skip
CLIENT_KINDS = (
    *(answer for _, answer in ENROLMENT), SealedVector, Advertisement,
    *(answer for _, answer in (*PHASES, DISPUTE)), CodedSharing, ShareSum,
)  # fmt: skip

PAIRWISE = rules(inner="secagg", quantiser=quantiser(cohort=6))
LIGHT = rules(inner="lightsecagg", quantiser=quantiser(cohort=6, ring=PRIME_31))
IN_LIGHT = {Sharing: CodedSharing, Unmasking: ShareSum}
"""What comes in LightSecAgg in place of an answer of a pairwise round."""


class Life:
    """The life of a batch of three: founded, founded anew, sealed, founded once more; kept at every step."""

    def __init__(self):
        self.clients = {user: simulated_client(user, configuration()) for user in ("ana", "bob", "cas")}
        self.devices, self.founders, self.rounds = [], [], []
        self.participants, self.pairings, self.lights, self.loners = [], [], [], []
        first = self._found(None)
        self._call(call(first), first)
        second = self._found(call(first))
        self._restart()
        self._seal(second)
        again = call(second, round_=1)
        self._call(again, second)
        self._found(again)
        self._pairwise(PAIRWISE, self.pairings, {})
        self._pairwise(LIGHT, self.lights, IN_LIGHT)
        self._unsealed()
        anything = {kind: data for stage in self.stages for kind, data in stage.good.items()}
        for stage in self.stages:
            stage.good = {**anything, **stage.good}

    @property
    def stages(self):
        """All stages."""
        machines = (self.devices, self.founders, self.rounds, self.participants, self.pairings, self.lights)
        return [stage for stages in (*machines, self.loners) for stage in stages]

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
        founder = BatchFounder(rules(privacy=3), self.clients, first=len(self.rounds) and 1)
        to_ana, from_bob, from_cas = {}, {}, {}
        if in_force is not None:
            to_ana[RoundCall] = in_force
        if self.rounds:
            from_bob[SealedVector] = self.rounds[-1].good[SealedVector]
        outgoing = founder.invitations()
        for sent, answered in ENROLMENT:
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
        """Let all seal round 0; beside their batch is another."""
        other = Enrolling().charter()
        server = sealed_round([charter, other], 0, terms())
        sealed = {
            user: bytes(client.seal(client.receive(call(charter)), UPDATE))
            for user, client in self.clients.items()
        }
        from_bob = {**self.founders[-1].good, SealedVector: sealed["bob"]}
        good, tail = messages_from_client.decode(sealed["bob"])
        words = np.arange(len(tail) // 4, dtype="<u4").tobytes()
        from_me = {**from_bob, SealedVector: packed(SealedVector(SCOPE, good.context, other.digest, "me"), words)}
        for user in ("ana", "bob"):
            self.rounds += [Stage(server, from_bob, "bob"), Stage(server, from_me, "me")]
            server.receive(user, sealed[user])
        server.receive("me", from_me[SealedVector])
        self.rounds += [Stage(server, from_me, "me"), Stage(server, from_bob, "bob")]
        server.advance()
        self.rounds.insert(0, Stage(server, {**from_bob, SealedVector: sealed["cas"]}, "cas"))

    def _pairwise(self, common, stages, other_kinds):
        """Three batches of two in a round; fay advertises and is lost, so eve only helps.

        LightSecAgg has other kinds of some messages than SecAgg.
        In the next round dan complains about a good box of ana's, who reveals its key; so dan is left out.
        """
        users = ("ana", "bob", "cas", "dan", "eve", "fay")
        clients = {user: simulated_client(user, configuration()) for user in users}
        charters = [
            found_batch(common, [clients[user] for user in users[start : start + 2]]) for start in (0, 2, 4)
        ]
        for round_, dispute in ((0, False), (1, True)):
            server = sealed_round(charters, round_, terms(min_included=4))
            later = sealed_round(charters, round_ + 1, terms(min_included=4)).start()["ana"]
            phases = [(RoundCall, Advertisement), *((sent, other_kinds.get(kind, kind)) for sent, kind in PHASES)]
            stages += self._pairwise_round(common, server, clients, phases, later, dispute=dispute)

    def _pairwise_round(self, common, server, clients, phases, later, *, dispute):
        if dispute:
            phases.insert(3, DISPUTE)
        stages, from_user = [], {user: {} for user in clients}
        outgoing = server.start()
        for sent, answered in phases:
            if "ana" in outgoing:
                good = {RoundCall: later, sent: outgoing["ana"]}
                good = (
                    {**after_boxes(server, clients["dan"]), **good} if sent in {SharersCall, RevealCall} else good
                )
                self._participant(common, clients, good, forming=sent is not RoundCall, first=server.round + 1)
            self._answer(common, server, clients, outgoing, from_user, answered)
            if dispute and answered is Receipt:
                complaint = complaint_about(server, clients["dan"], of="ana")
                from_user["dan"][Receipt] = encode(Receipt(SCOPE, server._roster.context, "dan", (complaint,)))
            seen = [user for user in ("ana", "bob", "eve", "fay") if user in outgoing]
            stages += [Stage(server, dict(from_user[user]), user) for user in seen]
            for user in outgoing:
                lost = (dispute, user, answered) == (False, "fay", phases[1][1])
                if answered in from_user[user] and not lost:
                    server.receive(user, from_user[user][answered])
            stages += [Stage(server, dict(from_user[user]), user) for user in seen]
            outgoing = server.advance()
        return stages + [Stage(server, dict(from_user[user]), user) for user in ("bob", "dan", "fay")]

    def _answer(self, common, server, clients, outgoing, from_user, answered):  # noqa: PLR0917 - one of its steps
        """Let all answer; ana is kept once more between a call and its seal."""
        for user, data in outgoing.items():
            answer = clients[user].receive(data)
            if answered is Advertisement:
                if user == "ana":
                    self._participant(common, clients, {RoundCall: data}, forming=False, first=server.round + 1)
                answer = clients[user].seal(answer, UPDATE)
            if answer is not None:
                from_user[user][answered] = bytes(answer)

    def _participant(self, common, clients, good, *, forming, first):
        """Keep ana in a round, also while a next batch is being formed, and go on as before."""
        mates = {user: clients[user] for user in ("ana", "bob")}
        before = [Stage(client, good) for client in mates.values()]
        self.participants.append(before[0])
        if not forming:
            return
        founder = BatchFounder(common, mates, first=first)
        outgoing = founder.invitations()
        forming = dict(good)
        for sent, _ in ENROLMENT[:2]:
            forming[sent] = outgoing["ana"]
            answers = {user: client.receive(outgoing[user]) for user, client in mates.items()}
            self.participants.append(Stage(clients["ana"], forming))
            for user, answer in answers.items():
                outgoing = founder.receive(user, answer)
            forming[Draft if sent is Invitation else Founding] = outgoing["ana"]
        for stage in before:
            stage.restore()

    def _unsealed(self):
        """Three users in a round without a seal; ana is kept at every phase."""
        keys = {user: IdentityKey.generate() for user in ("ana", "bob", "cas")}
        clients = {
            user: UnsealedClient(user, key, configuration(), TrustServerForIdentities())
            for user, key in keys.items()
        }
        identities = {user: key.public for user, key in keys.items()}
        server = unsealed_round(PAIRWISE, identities, 0, terms(min_included=2))
        later = unsealed_round(PAIRWISE, identities, 1, terms(min_included=2)).start()["ana"]
        outgoing = server.start()
        for phase, (sent, _) in enumerate(((UnsealedCall, Advertisement), *PHASES)):
            good = {UnsealedCall: later, sent: outgoing["ana"]}
            good = {**after_boxes(server, clients["bob"]), **good} if sent is SharersCall else good
            self.loners.append(Stage(clients["ana"], good))
            answers = {user: clients[user].receive(data) for user, data in outgoing.items()}
            if phase == 0:
                self.loners.append(Stage(clients["ana"], good))
                answers = {user: clients[user].seal(task, UPDATE) for user, task in answers.items()}
            for user, answer in answers.items():
                server.receive(user, bytes(answer))
            outgoing = server.advance()
