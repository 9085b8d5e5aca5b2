"""Devices and servers at every stage of rounds whose masks are shared before they are called."""
# ruff: noqa: SLF001 - who is in a round is what its server keeps to itself

from coterie.secagg import (
    MemoryStore,
    PreparingClient,
    Task,
    found_batch,
    prepare_round,
    prepared_round,
    sealed_round,
    simulated_client,
)
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
from coterie.secagg.protocols.lightsecagg import CodedSharing, PreparationCall, ShareSum
from coterie.secagg.wire.framing import encode
from coterie.secagg.wire.messages import RoundCall
from support.secagg.batches import DIMENSION, SCOPE, configuration, terms
from support.secagg.servers import UPDATE
from support.secagg.stage import Stage, after_boxes, complaint_about

LEAST = 4
BEFORE_CALL = ((PreparationCall, Advertisement), (RosterCall, CodedSharing), (Delivery, Receipt))
"""What a client is sent before the call, and its answers; a dispute may follow, and the sharers are the end."""
AFTER_CALL = ((RoundCall, MaskedVector), (Proposal, Agreement), (Opening, ShareSum))
"""What it is sent from the call on, and its answers."""


class Preparations:
    """Three batches of two share masks before their round is called; ana and the servers are kept at every step.

    In the next round dan complains about a good box of ana's, who reveals its key; so dan's batch is left out.
    """

    def __init__(self, common):
        users = ("ana", "bob", "cas", "dan", "eve", "fay")
        self.devices, self.servers, self._sent = [], [], {}
        self.clients = {
            user: PreparingClient(simulated_client(user, configuration()).membership, MemoryStore())
            for user in users
        }
        self._keep({})
        charters = [
            found_batch(common, [self.clients[user] for user in users[start : start + 2]]) for start in (0, 2, 4)
        ]
        conditions = terms(min_included=LEAST)
        for round_, dispute in ((0, ()), (1, ((RevealCall, Reveal),))):
            later = {
                PreparationCall: prepare_round(charters, round_ + 1, DIMENSION, LEAST).start()["ana"],
                RoundCall: sealed_round(charters, round_ + 1, conditions).start()["ana"],
            }
            preparation = prepare_round(charters, round_, DIMENSION, LEAST)
            self._run(preparation, (*BEFORE_CALL, *dispute, (SharersCall, None)), later)
            self._run(prepared_round(charters, conditions, preparation), AFTER_CALL, later)
        self._keep(later)

    def _keep(self, good):
        """Keep ana, with these good messages beside those that were sent."""
        self.devices.append(Stage(self.clients["ana"], {**self._sent, **good}))

    def _run(self, server, phases, later):
        """Let all answer in these phases; ana may be sent what is `later` as well."""
        from_user = {user: {} for user in self.clients}
        outgoing = server.start()
        for sent, answered in phases:
            good = {**later, sent: outgoing["ana"]}
            if sent in {RevealCall, SharersCall}:
                good = {**after_boxes(server, self.clients["dan"]), **good}
            self._keep(good)
            self._sent[sent] = outgoing["ana"]
            for user, data in outgoing.items():
                answer = self._answer(user, data)
                if answer is not None:
                    from_user[user][answered] = bytes(answer)
            if answered is Receipt and (RevealCall, Reveal) in phases:
                complaint = complaint_about(server, self.clients["dan"], of="ana")
                from_user["dan"][Receipt] = encode(Receipt(SCOPE, server.roster.context, "dan", (complaint,)))
            seen = [user for user in ("ana", "bob", "dan") if user in server._states]
            self.servers += [Stage(server, dict(from_user[user]), user) for user in seen]
            for user in outgoing:
                if answered in from_user[user]:
                    server.receive(user, from_user[user][answered])
            self.servers += [Stage(server, dict(from_user[user]), user) for user in seen]
            outgoing = server.advance()

    def _answer(self, user, data):
        """A client's answer; ana is kept once more between a call and its seal."""
        client = self.clients[user]
        answer = client.receive(data)
        if not isinstance(answer, Task):
            return answer
        if user == "ana":
            self._keep({RoundCall: data, PreparationCall: self.devices[-1].good[PreparationCall]})
        return client.seal(answer, UPDATE)
