"""Clients that end after every message: the same rounds, the same refusals, and never two answers in one phase."""

import msgspec
import numpy as np
import pytest

from coterie.errors import PeerError, UsageError
from coterie.federation.device_file import DeviceFile
from coterie.secagg import (
    DurableClient,
    IdentityKey,
    Membership,
    MemoryStore,
    SealedClient,
    Task,
    TrustServerForIdentities,
    found_batch,
    run_round,
    sealed_round,
)
from coterie.secagg.protocols import messages_from_server
from coterie.secagg.wire.framing import encode
from support.secagg.batches import SCOPE, configuration, rules, terms, updates

NAMES = [[f"user-{batch}-{number}" for number in range(2)] for batch in range(4)]
DURABLE = configuration(protocols={"open", "secagg", "secagg+"})


class Forgetful:
    """A client with no memory but its stores: every message is given to a new object."""

    def __init__(self, user, identity, store, rounds):
        self.user, self.rounds = user, rounds
        self._made_of = (Membership(user, identity, DURABLE, TrustServerForIdentities(), store), rounds)

    def new(self):
        """What the next process would make."""
        return DurableClient(*self._made_of)

    def receive(self, data):
        """Answer; a call is trained for and sealed at once, as one process does it."""
        self._last = self.new()
        return self._last.receive(data)

    def seal(self, task, update, weight=1):
        """Seal in the process that received the call."""
        return self._last.seal(task, update, weight=weight)


def federation(inner, make=lambda name: (MemoryStore(), MemoryStore())):
    """Four batches of two forgetful clients, and their charters."""
    clients = {name: Forgetful(name, IdentityKey.generate(), *make(name)) for batch in NAMES for name in batch}
    common = rules(inner=inner, privacy=2)
    return clients, [found_batch(common, [clients[name] for name in batch]) for batch in NAMES]


@pytest.mark.parametrize("inner", ["open", "secagg", "secagg+"])
def test_a_round_needs_no_memory_between_messages(inner):
    """Every message may find a new process: the sum is the exact one, of those whose batch is complete."""
    clients, charters = federation(inner)
    given = updates(clients)
    upload = 0 if inner == "open" else 3
    for round_, lost in enumerate(("nobody", "user-3-1")):

        def loses(user, phase, _, lost=lost):
            return user == lost and phase >= upload

        server = sealed_round(charters, round_, terms(min_included=4))
        result = run_round(server, clients, lambda user, task: given[user], loses=loses)
        included = {user for part in result.learned for user in part.users}
        assert included == {name for batch in NAMES[: 4 - round_] for name in batch}
        expected = np.sum([given[user] for user in included], axis=0)
        assert result.sum.values == pytest.approx(expected, abs=1e-3)


def test_a_round_on_disk(tmp_path):
    """The stores may be files, as on a device."""

    def make(name):
        files = [tmp_path / f"{name}-{kind}.sqlite" for kind in ("device", "round")]
        return [DeviceFile.create(file, b"opaque") for file in files]

    clients, charters = federation("secagg+", make)
    result = run_round(
        sealed_round(charters, 0, terms(min_included=4)), clients, lambda user, task: updates(clients)[user]
    )
    assert len(result.learned[0].users) == 8


def started(clients, charters):
    """The server after the call was answered by all, and what it sends next."""
    server = sealed_round(charters, 0, terms(min_included=4))
    given = updates(clients)
    for user, data in server.start().items():
        task = clients[user].receive(data)
        assert isinstance(task, Task)
        server.receive(user, clients[user].seal(task, given[user]))
    return server


def advanced(server, clients, phases, silent=()):
    """What the server sends after so many more phases, in which all but some have answered."""
    for _ in range(phases):
        for user, data in server.advance().items():
            answer = None if user in silent else clients[user].receive(data)
            if answer is not None:
                server.receive(user, answer)
    return server.advance()


def test_of_two_processes_with_two_proposals_one_refuses():
    """A second division of the sharers is never signed, though the process that signed the first is gone."""
    clients, charters = federation("secagg+")
    outgoing = advanced(started(clients, charters), clients, 3)
    me, (proposal, _) = "user-0-0", messages_from_server.decode(outgoing["user-0-0"])
    other = msgspec.structs.replace(proposal, included=proposal.included[:6], excluded=proposal.included[6:])
    assert clients[me].new().receive(outgoing[me]) is not None
    for again in (outgoing[me], encode(other)):
        with pytest.raises(PeerError, match="out of order: in the state 'agreed' only Opening"):
            clients[me].new().receive(again)


def test_a_stored_round_still_knows_how_many_must_be_included():
    """The least number of included users is that of the call, in whichever process a proposal is judged."""
    clients, charters = federation("secagg+")
    outgoing = advanced(started(clients, charters), clients, 3)
    me, (proposal, _) = "user-0-0", messages_from_server.decode(outgoing["user-0-0"])
    few = msgspec.structs.replace(proposal, included=(0, 1), excluded=tuple(range(2, 8)))
    with pytest.raises(PeerError, match="includes 2 users; at least 4 are needed"):
        clients[me].receive(encode(few))
    assert clients[me].receive(outgoing[me]) is not None


def test_a_stored_round_still_knows_that_its_batch_is_incomplete():
    """A user whose batch lost a member before the vectors left signs no list that includes what is left of it."""
    clients, charters = federation("secagg+")
    outgoing = advanced(started(clients, charters), clients, 3, silent={"user-0-1"})
    me, (proposal, _) = "user-0-0", messages_from_server.decode(outgoing["user-0-0"])
    assert proposal.excluded == (0,)
    whole = msgspec.structs.replace(proposal, included=(0, *proposal.included), excluded=())
    with pytest.raises(PeerError, match="includes a part of the batch of 'user-0-0', not the whole"):
        clients[me].receive(encode(whole))
    assert clients[me].receive(outgoing[me]) is not None


def test_a_round_is_opened_once():
    """The last answer deletes what was stored: no process opens the round a second time."""
    clients, charters = federation("secagg+")
    outgoing = advanced(started(clients, charters), clients, 4)
    me = "user-0-0"
    assert clients[me].receive(outgoing[me]) is not None
    assert clients[me].rounds.records[SCOPE] == b""
    with pytest.raises(PeerError, match="Opening came from the server out of order: in the state 'ready'"):
        clients[me].receive(outgoing[me])


def test_a_new_charter_ends_the_round_before_it():
    """Under the batch's next charter nothing of a round of the last one is answered."""
    clients, charters = federation("secagg+")
    outgoing = started(clients, charters).advance()
    me = "user-0-0"
    found_batch(rules(inner="secagg+", privacy=2), [clients[name] for name in NAMES[0]], first=1)
    with pytest.raises(PeerError, match="RosterCall came from the server out of order: in the state 'ready'"):
        clients[me].receive(outgoing[me])


def test_a_refusal_changes_nothing():
    """A message that is refused leaves the stored round as it was: the right one is still answered."""
    clients, charters = federation("secagg+")
    server = started(clients, charters)
    outgoing = server.advance()
    me, (roster, _) = "user-0-0", messages_from_server.decode(outgoing["user-0-0"])
    with pytest.raises(PeerError, match="does not have 'user-0-0'"):
        clients[me].receive(encode(msgspec.structs.replace(roster, lines=roster.lines[1:])))
    assert clients[me].receive(outgoing[me]) is not None


def test_a_damaged_round_is_refused():
    """Of a stored round that cannot be read nothing is answered, whichever part of it is damaged."""
    clients, charters = federation("secagg+")
    outgoing = advanced(started(clients, charters), clients, 2)
    me = clients["user-0-0"]
    fields = msgspec.msgpack.decode(me.rounds.records[SCOPE])
    *others, participant, version = fields
    for damaged in (fields[1:], [*others, participant[:-1], version], [*others, b"", 2]):
        me.rounds.records[SCOPE] = msgspec.msgpack.encode(damaged)
        with pytest.raises(UsageError, match="stored of a round cannot be read"):
            me.receive(outgoing["user-0-0"])
    user = participant.index(b"user-0-0")
    name = participant[:user] + b"\xff" + participant[user + 1 :]
    me.rounds.records[SCOPE] = msgspec.msgpack.encode([*others, name, version])
    with pytest.raises(UsageError, match=r"of another Coterie\): .*utf-8"):
        me.receive(outgoing["user-0-0"])


def test_a_new_call_ends_the_round_before_it():
    """After a call to the next round nothing of the earlier one is answered."""
    clients, charters = federation("secagg+")
    outgoing = started(clients, charters).advance()
    me = "user-0-0"
    later = sealed_round(charters, 1, terms(min_included=4)).start()[me]
    assert isinstance(clients[me].receive(later), Task)
    with pytest.raises(PeerError, match="RosterCall came from the server out of order: in the state 'ready'"):
        clients[me].receive(outgoing[me])


def test_a_round_is_stored_with_its_own_sizes(monkeypatch):
    """A thread that was called to the next round while another one sealed does not get the last one's sizes."""
    clients, charters = federation("secagg+")
    me, client, seal = "user-0-0", clients["user-0-0"].new(), SealedClient.seal
    calls = [sealed_round(charters, at, terms(min_included=least)).start()[me] for at, least in ((0, 4), (1, 6))]
    update = updates(clients)[me]

    def meanwhile(device, task, values, **options):
        answer = seal(device, task, values, **options)
        seal(device, device.receive(calls[1]), values)
        return answer

    monkeypatch.setattr(SealedClient, "seal", meanwhile)
    client.seal(client.receive(calls[0]), update)
    _, number, _, least, *_ = msgspec.msgpack.decode(clients[me].rounds.records[SCOPE])
    assert (number, least) == (1, 6)


def test_a_round_that_was_not_begun_is_not_answered():
    """A device without a batch, or without a stored round, refuses every phase."""
    clients, charters = federation("secagg+")
    outgoing = started(clients, charters).advance()["user-0-0"]
    stranger = Forgetful("user-0-0", IdentityKey.generate(), MemoryStore(), MemoryStore())
    with pytest.raises(PeerError, match="in the state 'outside' only nothing is expected"):
        stranger.receive(outgoing)


def test_protocols_with_large_secrets_are_refused():
    """LightSecAgg's coded shares are as large as the model for each other user: they are not stored."""
    membership = Membership(
        "ana", IdentityKey.generate(), configuration(), TrustServerForIdentities(), MemoryStore()
    )
    with pytest.raises(UsageError, match="cannot run lightsecagg"):
        DurableClient(membership, MemoryStore())
