"""What a machine may do with a message that it took: the effect of its kind, and no other."""
# ruff: noqa: SLF001 - what a machine may take depends on what it keeps to itself

import hashlib

import msgspec
import numpy as np

from coterie.secagg import (
    BatchFounder,
    Charter,
    SealedClient,
    UnsealedClient,
)
from coterie.secagg.crypto.keys import verify_signature
from coterie.secagg.protocols import messages_from_client, messages_from_server
from coterie.secagg.protocols import open as collection
from coterie.secagg.protocols.agreement import messages as agreed
from coterie.secagg.protocols.agreement.messages import (
    Advertisement,
    Delivery,
    MaskedVector,
    Opening,
    ParticipantState,
    Proposal,
    Receipt,
    Reveal,
    RevealCall,
    RosterCall,
    SharersCall,
)
from coterie.secagg.protocols.lightsecagg import CodedRoster, CodedSharing, LightRound, ShareSum
from coterie.secagg.protocols.open import OpenRound, SealedVector
from coterie.secagg.protocols.pairwise import PairwiseRound, Sharing, Unmasking
from coterie.secagg.wire.messages import (
    CLIENT_ENROLMENT,
    CLIENT_SEALED,
    CLIENT_STEPS,
    CLIENT_UNSEALED,
    SERVER_FOUNDING,
    SERVER_FOUNDING_ENDS,
    CharterAcceptance,
    CharterSignature,
    ClientState,
    Draft,
    Enrolment,
    EnrolmentState,
    Founding,
    Invitation,
    RoundCall,
    UnsealedCall,
)
from support.secagg.batches import SCOPE, configuration, rules

TABLES = {
    SealedClient: (CLIENT_ENROLMENT, CLIENT_SEALED, agreed.CLIENT_TABLE),
    UnsealedClient: (CLIENT_UNSEALED, agreed.CLIENT_TABLE),
    BatchFounder: (SERVER_FOUNDING,),
    OpenRound: (collection.SERVER_TABLE,),
    PairwiseRound: (PairwiseRound.table,),
    LightRound: (LightRound.table,),
}


def check_accepted(stage, data, answer, before):
    """A changed message that is taken is expected in this state, and has no effect but that of its kind."""
    after, moved = stage.remembered(), stage.states()
    device = isinstance(stage.machine, SealedClient)
    new = stage.records if device else None
    stage.restore()
    records = (stage.records, new) if device else ()
    message, tail = (messages_from_server if stage.sender is None else messages_from_client).decode(data)
    if isinstance(message, RosterCall | Delivery | RevealCall | SharersCall | Proposal | Opening):
        check_phase(stage, message, answer)
        assert not device or records[0] == records[1]
    elif isinstance(stage.machine, UnsealedClient):
        assert isinstance(message, UnsealedCall)
        assert message.inner in {"secagg", "secagg+", "lightsecagg"}
        assert (message.scope, message.round) == (SCOPE, answer.round)
        assert 2 <= answer.terms.min_included <= configuration().largest_roster
        assert message.cohort * message.weight_cap < message.modulus <= 2**32
        assert message.colluders + 2 * message.losses < 1000
    elif stage.sender is None:
        check_client(stage, message, answer, *records, before, after)
    elif isinstance(stage.machine, OpenRound):
        check_round(stage, message, tail, before, after)
    elif isinstance(stage.machine, PairwiseRound | LightRound):
        check_answer(stage, message, before, after)
    else:
        check_founder(stage, message, answer, before, after)
    assert moved == states_after(stage, type(message))
    return type(message)


def states_after(stage, kind):
    """Where a machine stands after a message that it took, by its tables: one of them at least has it."""
    states, tables = stage.states(), TABLES[type(stage.machine)]
    expected = [table.get((state, kind)) for table, state in zip(tables, states, strict=False)]
    assert any(expected)
    if kind is Founding and states == (EnrolmentState.SIGNED, ClientState.OUTSIDE):
        expected[1] = CLIENT_STEPS[ClientState.OUTSIDE, "accept a charter"]
    if stage.sender == "cas" and isinstance(stage.machine, BatchFounder):  # who answers last: all go on together
        expected = [SERVER_FOUNDING_ENDS.get(*expected * 2)]
    after_all = [new or old for new, old in zip(expected, states, strict=True)]
    if after_all[-1] is ParticipantState.DONE:  # the last answer ends the round
        after_all[-2:] = [ClientState.READY]
    elif ClientState.CALLED in after_all:  # and so does a new call
        after_all = after_all[: after_all.index(ClientState.CALLED) + 1]
    return tuple(after_all)


def check_client(stage, message, answer, *kept):
    """The device signs what it can check, accepts only what all have signed, and its chain stays where it is."""
    *records, before, after = kept
    old, new = (
        msgspec.msgpack.decode(record[SCOPE])
        if record
        else [2, b"", b"", b"", 0, {}, b"", -1, 0, b"", 0, 0, b"", 0]
        for record in records
    )
    if isinstance(message, RoundCall):
        assert (old, answer) == (new, after[0]["_tasks"][SCOPE])
        charter = Charter.decode(old[3])
        assert answer.charter == charter.digest
        assert old[4] <= answer.round < old[4] + 65_536
        assert old[8] <= answer.terms.step <= answer.round
        assert answer.terms.dimension <= configuration().largest_dimension
        assert 1 <= answer.terms.min_included <= configuration().largest_roster
        assert (answer.terms.configuration, answer.recipe) == (b"", charter.recipe)
        return
    answer, _ = messages_from_client.decode(answer)
    assert before[:-1] == after[:-1]  # all but the records
    assert (answer.scope, answer.user) == (SCOPE, "ana")
    if isinstance(message, Invitation):
        assert new == [2, new[1], b"", *old[3:12], old[12] or new[12], old[13]]
        assert new[1] != old[1]
        assert answer.predecessor == (hashlib.sha256(old[6]).digest() if old[6] else b"")
    elif isinstance(message, Draft):
        assert new == [*old[:2], hashlib.sha256(message.charter).digest(), *old[3:]]
        own = check_charter_taken(stage, message.charter, old[6])["ana"]
        verify_signature(own.identity, answer.signature, "charter", message.charter, who="ana")
    else:
        first = Charter.decode(message.charter).first
        assert first > old[7]
        assert new == [2, b"", b"", message.charter, first, new[5], *old[6:9], b"", *old[10:]]
        for user, line in check_charter_taken(stage, message.charter, old[6]).items():
            verify_signature(line.identity, message.signatures.pop(user), "charter", message.charter, who=user)
            assert (user in new[5]) == (user != "ana")
        assert not message.signatures


def check_charter_taken(stage, encoded, old):
    """A charter that is taken has the device's own line and all of the batch it sealed in; return its lines."""
    charter = Charter.decode(encoded)
    lines = {member.user: member for member in charter.members}
    enrolled = Charter.decode(messages_from_server.decode(stage.good[Founding])[0].charter)
    assert [line for line in enrolled.members if line.user == "ana"] == [lines["ana"]]
    assert charter.scope == SCOPE
    assert charter.inner in configuration().protocols
    assert 2 <= charter.privacy <= len(lines) <= charter.quantiser.cohort
    assert charter.quantiser.cohort * charter.quantiser.weight_cap < charter.quantiser.ring.modulus
    assert charter.parameters.colluders >= 200
    if old:
        sealed = Charter.decode(old)
        assert (charter.quantiser, charter.recipe) == (sealed.quantiser, sealed.recipe)
        assert {line.user: line.identity for line in Charter.decode(old).members}.items() <= {
            user: line.identity for user, line in lines.items()
        }.items()
    return lines


def check_founder(stage, message, answer, before, after):
    """An answer is taken from the member it names, and with its own signature; only its own line changes."""
    good, _ = messages_from_client.decode(stage.good[type(message)])
    names = ("_states", "_members", "_signatures", "_draft")
    states, members, signatures, charter = (before[0].get(name) for name in names)
    _, new_members, new_signatures, new_charter = (after[0].get(name) for name in names)
    user = stage.sender
    assert (message.scope, message.user) == (SCOPE, user)
    assert bool(answer) == (user == "cas" and not isinstance(message, CharterAcceptance))
    if isinstance(message, Enrolment):
        line = new_members[user]
        assert (line.identity, line.seal, line.predecessor) == (
            message.identity,
            message.seal,
            message.predecessor,
        )
        assert new_members == {**members, user: line}
        assert new_signatures == signatures
        drafted = rules(privacy=3).charter(new_members.values(), stage.machine._first)
        assert new_charter == (drafted if answer else None)
    else:
        assert message == good
        assert (new_members, new_charter) == (members, charter)
        assert new_signatures == (
            {**signatures, user: good.signature} if isinstance(message, CharterSignature) else signatures
        )
    assert states.keys() == {"ana", "bob", "cas"}


def check_round(stage, message, tail, before, after):
    """A vector is taken only with the head that was asked for, and is what its batch's sum grows by."""
    good, _ = messages_from_client.decode(stage.good[SealedVector])
    assert message == good
    words = np.frombuffer(tail, dtype="<u4").astype(np.uint64)
    modulus = np.uint64(2**32)
    old, new = (
        np.frombuffer(kept[0]["_sums"].get(message.charter, bytes(len(tail))), dtype="<u4").astype(np.uint64)
        for kept in (before, after)
    )
    assert ((old + words) % modulus == new).all()
    assert {**before[0]["_sums"], message.charter: after[0]["_sums"][message.charter]} == after[0]["_sums"]


def check_phase(stage, message, answer):
    """What a participant takes is what its users signed and shared, or a division that it can accept."""
    good, _ = messages_from_server.decode(stage.good[type(message)])
    participant = stage.machine._rounds[SCOPE]
    assert (message.scope, message.context) == (good.scope, good.context)
    if isinstance(message, RosterCall):
        assert set(message.lines) <= set(good.lines)
        assert len(message.lines) >= participant._setting.terms.min_included
        return
    roster, mine = participant._roster, participant._own_position
    users, threshold = roster.lines, (len(roster.lines) + len(roster.lines) // 5) // 2 + 1
    if isinstance(message, Delivery):
        size = len(good.parcels) // len(good.senders)
        if isinstance(roster, CodedRoster):  # the content of a box is not signed: altered, it is complained about
            check_coded_delivery(message, good, roster, answer)
            return
        parcels = {
            sender: good.parcels[size * number : size * (number + 1)] for number, sender in enumerate(good.senders)
        }
        assert message.parcels == b"".join(parcels[sender] for sender in message.senders)
    elif isinstance(message, RevealCall):
        for complaint in message.complaints:
            statement = (good.context, roster.digest, "ana", users[complaint.user].user, complaint.box_digest)
            identity = users[complaint.user].identity
            verify_signature(identity, complaint.signature, "complaint", *statement, who="ana")
        keys, _ = messages_from_client.decode(answer)
        assert len(keys.keys) == 32 * len(message.complaints) > 0
    elif isinstance(message, SharersCall):
        assert mine in message.sharers
        assert len(set(message.sharers)) == len(message.sharers) >= threshold
    elif isinstance(message, Proposal):
        included, excluded, own = (
            set(message.included),
            set(message.excluded),
            participant._own_among(participant._sharers),
        )
        assert sorted([*message.included, *message.excluded]) == list(participant._sharers)
        assert own <= included or own <= excluded
        assert len(included) >= participant._setting.terms.min_included
        signed, _ = messages_from_client.decode(answer)
        lists = (np.array(places, dtype="<u4").tobytes() for places in
                 (participant._sharers, message.included, message.excluded))  # fmt: skip
        context = (good.context, participant._roster.digest, *lists)
        verify_signature(
            users[participant._own_position].identity,
            signed.signature,
            "agree",
            *context,
            who="ana",
        )
    else:
        assert len(set(message.signers)) == len(message.signers) >= threshold
        # What was agreed, from the lists of users alone: not by the code that the device verifies with.
        sharers, included = sorted(participant._sharers), sorted(participant._included)
        lists = [np.array(places, dtype="<u4").tobytes() for places in
                 (sharers, included, sorted(set(sharers) - set(included)))]  # fmt: skip
        round_ = (good.context, participant._roster.digest)
        signed = [(place, ("agree", *round_, *lists)) for place in message.signers]
        signed += [(place, ("upload", *round_, lists[0])) for place in included if place not in message.signers]
        for (place, statement), signature in zip(signed, message.signatures, strict=True):
            verify_signature(users[place].identity, signature, *statement, who="ana")


def check_coded_delivery(message, good, roster, answer):
    """Signed is a box's leaf, with which it ends; every box that has another one is complained about."""
    size, box_bytes = len(good.parcels) // len(good.senders), roster.box_format.box_bytes
    receipt, _ = messages_from_client.decode(answer)
    accused = {complaint.user for complaint in receipt.complaints}
    for number, sender in enumerate(message.senders):
        at = good.senders.index(sender)
        new, old = message.parcels[size * number :][:size], good.parcels[size * at :][:size]
        assert new[box_bytes - 32 :] == old[box_bytes - 32 :]
        assert (sender in accused) == (new != old)


def check_answer(stage, message, before, after):
    """An answer is taken as it was signed; only unsigned content may differ, and it has the right size."""
    good, tail = messages_from_client.decode(stage.good[type(message)])
    free = {Reveal: {"keys": b""}, Unmasking: {"shares": b""}, Receipt: {"complaints": ()}}.get(type(message), {})
    assert msgspec.structs.replace(message, **free) == msgspec.structs.replace(good, **free)
    if isinstance(message, Receipt):
        assert set(message.complaints) <= set(good.complaints)
    for name in set(free) - {"complaints"}:
        assert len(getattr(message, name)) == len(getattr(good, name))
    old, new = ({name: value for part in kept for name, value in part.items()} for kept in (before, after))
    changed = {name for name in old if old[name] != new[name]}
    place = {
        Advertisement: {"_lines", "_owner_of"},
        Sharing: {"_sharings", "_signed"},
        Receipt: {"_complaints"} if message == good and getattr(good, "complaints", ()) else set(),
        Reveal: {"_keys"},
        Unmasking: {"_shares"},
        CodedSharing: {"_signed"},
        ShareSum: {"_sums"},
    }
    if isinstance(message, MaskedVector):
        assert changed <= {"_states", "_partial", "total", "signatures"}
        assert tail
    else:
        assert changed - {"liars"} == {"_states", *place.get(type(message), {"_signatures"})}
        assert "liars" not in changed or isinstance(message, Unmasking)
