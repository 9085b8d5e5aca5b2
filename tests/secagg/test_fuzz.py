"""Whatever bytes come, a machine answers, or refuses with a PeerError and is as it was (`--fuzz N` tries more)."""
# ruff: noqa: SLF001 - what a machine may take depends on what it keeps to itself

import hashlib
import random
import tracemalloc
from collections import Counter
from functools import partial

import msgspec
import numpy as np
import pytest

from coterie.errors import CoterieError, PeerError
from coterie.secagg import (
    BatchFounder,
    Charter,
    IdentityKey,
    Membership,
    SealedClient,
    SealKey,
    Seed,
    Task,
    UnsealedClient,
    exchange,
)
from coterie.secagg.crypto.keys import BoxKey, MaskKey, ShareKey, verify_signature
from coterie.secagg.protocols import messages_from_client, messages_from_server
from coterie.secagg.protocols import open as collection
from coterie.secagg.protocols.lightsecagg import states as lightsecagg
from coterie.secagg.protocols.lightsecagg.messages import CodedSharing, ShareSum
from coterie.secagg.protocols.lightsecagg.roster import CodedRoster
from coterie.secagg.protocols.lightsecagg.server import LightRound
from coterie.secagg.protocols.open import OpenRound, SealedVector
from coterie.secagg.protocols.pairwise import states as pairwise
from coterie.secagg.protocols.pairwise.messages import (
    Advertisement,
    Delivery,
    MaskedVector,
    Opening,
    Proposal,
    Receipt,
    Reveal,
    RevealCall,
    RosterCall,
    SharersCall,
    Sharing,
    Unmasking,
)
from coterie.secagg.protocols.pairwise.server import PairwiseRound
from coterie.secagg.protocols.pairwise.states import ParticipantState
from coterie.secagg.wire.messages import (
    Accepted,
    Draft,
    Enrolment,
    Founding,
    Invitation,
    RoundCall,
    Signed,
    UnsealedCall,
)
from coterie.secagg.wire.states import (
    CLIENT_ENROLMENT,
    CLIENT_SEALED,
    CLIENT_STEPS,
    CLIENT_UNSEALED,
    SERVER_FOUNDING,
    SERVER_FOUNDING_ENDS,
    ClientState,
    EnrolmentState,
)
from support.secagg.batches import SCOPE, configuration, rules
from support.secagg.mutations import Mutations
from support.secagg.servers import UPDATE
from support.secagg.stages import CLIENT_KINDS, SERVER_KINDS, Life

TABLES = {
    SealedClient: (CLIENT_ENROLMENT, CLIENT_SEALED, pairwise.CLIENT_TABLE),
    UnsealedClient: (CLIENT_UNSEALED, pairwise.CLIENT_TABLE),
    BatchFounder: (SERVER_FOUNDING,),
    OpenRound: (collection.SERVER_TABLE,),
    PairwiseRound: (pairwise.SERVER_TABLE,),
    LightRound: (lightsecagg.SERVER_TABLE,),
}
BURST = 64
"""Messages that are tried at one stage before the next one is chosen."""
TRACED = 16
"""One burst in so many is run with every allocation traced."""
LARGEST_BURST = 1 << 20
"""The most bytes that a burst may hold at once: its messages have 100 KiB in all, what they claim is 2^64."""


@pytest.fixture
def life(request, monkeypatch):
    """Both machines at every stage, with keys that the seed decides about."""
    return seeded_life(request.config.getoption("--fuzz-seed"), monkeypatch)


def seeded_life(seed, monkeypatch):
    secrets = random.Random(seed)
    for kind in (IdentityKey, SealKey, MaskKey, ShareKey, BoxKey):
        monkeypatch.setattr(kind, "generate", classmethod(lambda cls: cls.from_bytes(secrets.randbytes(32))))
    new_secret = classmethod(lambda cls: cls(secrets.randbytes(32)))
    monkeypatch.setattr(Seed, "generate", new_secret)
    # A membership took its own way to a new secret from the class when that was written.
    monkeypatch.setattr(exchange, "Membership", partial(Membership, new_secret=Seed.generate))
    return Life()


class Fuzzer:
    """Feeds mutated messages to machines at random stages, and checks every answer."""

    def __init__(self, life, seed):
        self.life, self.seed = life, seed
        signers = {user: client.membership.identity for user, client in life.clients.items()}
        self.mutations = Mutations(life.messages(), seed, signers)
        self.likely = {stage: likely(stage) for stage in life.stages}
        self.outcomes = Counter()
        self.number = 0
        self.stream = hashlib.sha256()

    def run(self, count):
        """Try so many messages."""
        bursts = -(-count // BURST)
        for burst in range(bursts):
            stage = self.mutations.of(self.life.stages)
            stage.restore()
            left = min(BURST, count - burst * BURST)
            if burst % TRACED:
                self.burst(stage, left)
            else:
                self.traced(stage, left)

    def traced(self, stage, count):
        """Try messages at one stage and see that little memory was taken for them."""
        tracemalloc.start()
        try:
            self.burst(stage, count)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < LARGEST_BURST, f"{peak} bytes taken within {self.number - count} to {self.number}"

    def burst(self, stage, count):
        """Try messages at one stage; after each that was taken the machine goes back to it."""
        mutations, before = self.mutations, stage.remembered()
        good = self.likely[stage]
        for _ in range(count):
            data = mutations.mutated(mutations.of(good))
            self.number += 1
            self.stream.update(data)
            try:
                answer = stage.feed(data)
            except PeerError:
                self.outcomes["refused"] += 1
                assert stage.remembered() == before, self.told(stage, data)
            except BaseException as error:
                error.add_note(self.told(stage, data))
                raise
            else:
                try:
                    kind = check_accepted(stage, data, answer, before)
                except AssertionError as error:
                    error.add_note(self.told(stage, data))
                    raise
                self.outcomes[kind.__name__] += 1
                stage.restore()

    def told(self, stage, data):
        """Which message it was."""
        return f"message {self.number} of --fuzz-seed {self.seed}, at {stage!r}: {data.hex()}"


def likely(stage):
    """The good messages to begin with: mostly those that are expected, then others of the peer, then one's own."""
    stage.restore()
    states = stage.states()
    peers = SERVER_KINDS if stage.sender is None else CLIENT_KINDS
    tables = TABLES[type(stage.machine)]
    expected = [kind for kind in peers if any((state, kind) in table for state in states for table in tables)]
    kinds = [*stage.good, *peers * 3, *expected * (24 // max(len(expected), 1))]
    return [stage.good[kind] for kind in kinds]


def check_accepted(stage, data, answer, before):
    """A changed message that is taken is expected in this state, and has no effect but that of its kind."""
    after, moved = stage.remembered(), stage.states()
    device = isinstance(stage.machine, SealedClient)
    new = stage.records if device else None
    stage.restore()
    states = stage.states()
    records = (stage.records, new) if device else ()
    tables = TABLES[type(stage.machine)]
    message, tail = (messages_from_server if stage.sender is None else messages_from_client).decode(data)
    if isinstance(message, RosterCall | Delivery | RevealCall | SharersCall | Proposal | Opening):
        check_phase(stage, message, answer)
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
    kind = type(message)
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
    assert moved == tuple(after_all)
    return kind


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
    assert charter.inner in configuration().inner
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
    names = ("_states", "_members", "_signatures", "_charter")
    states, members, signatures, charter = (before[0][name] for name in names)
    _, new_members, new_signatures, new_charter = (after[0][name] for name in names)
    user = stage.sender
    assert (message.scope, message.user) == (SCOPE, user)
    assert bool(answer) == (user == "cas" and not isinstance(message, Accepted))
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
            {**signatures, user: good.signature} if isinstance(message, Signed) else signatures
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
    roster, mine = participant._roster, participant._mine
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
        included, excluded, own = set(message.included), set(message.excluded), participant._own
        assert sorted([*message.included, *message.excluded]) == list(participant._sharers)
        assert own <= included or own <= excluded
        assert len(included) >= participant._setting.terms.min_included
        signed, _ = messages_from_client.decode(answer)
        lists = (np.array(places, dtype="<u4").tobytes() for places in
                 (participant._sharers, message.included, message.excluded))  # fmt: skip
        context = (good.context, participant._roster.digest, *lists)
        verify_signature(
            users[participant._mine].identity,
            signed.signature,
            "agree",
            *context,
            who="ana",
        )
    else:
        assert len(set(message.signers)) == len(message.signers) >= threshold
        context, roster, sharers, *_ = participant._statement
        signed = [(place, "agree", participant._statement) for place in message.signers]
        silent = sorted(participant._included.difference(message.signers))
        signed += [(place, "upload", (context, roster, sharers)) for place in silent]
        for (place, purpose, statement), signature in zip(signed, message.signatures, strict=True):
            verify_signature(users[place].identity, signature, purpose, *statement, who="ana")


def check_coded_delivery(message, good, roster, answer):
    """Signed are a box's key and tag; every box whose content is another one is complained about."""
    size, box_bytes = len(good.parcels) // len(good.senders), roster.box_format.box_bytes
    receipt, _ = messages_from_client.decode(answer)
    accused = {complaint.user for complaint in receipt.complaints}
    for number, sender in enumerate(message.senders):
        at = good.senders.index(sender)
        new, old = message.parcels[size * number :][:size], good.parcels[size * at :][:size]
        assert new[:32] + new[box_bytes - 16 :] == old[:32] + old[box_bytes - 16 :]
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
        Advertisement: {"_lines"},
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


def test_no_bytes_do_any_harm(life, request, record_property):
    """Mutated messages of every kind, in every state of both machines, are refused with a PeerError, or legal.

    After a refusal the machine remembers what it did before, byte for byte. What is taken has the effect of its
    kind and no other; a founding that is taken is one that all members signed. Nothing that a message only
    claims is allocated.
    """
    count = request.config.getoption("--fuzz")
    fuzzer = Fuzzer(life, request.config.getoption("--fuzz-seed"))
    record_property("faults", count)
    fuzzer.run(count)
    assert fuzzer.outcomes.total() == count
    print(*(f"{outcome}: {times}" for outcome, times in fuzzer.outcomes.most_common()), sep=", ")  # noqa: T201 - pytest -rP
    if count >= 50_000:  # all kinds are taken at times: the good messages are good
        assert fuzzer.outcomes.keys() == {"refused", *(kind.__name__ for kind in (*SERVER_KINDS, *CLIENT_KINDS))}


def test_no_damage_of_a_record_does_more_than_stop_the_device(life, request):
    """With any record a device goes on, or stops with an error of ours; then the record stays as it is."""
    fuzzer = Fuzzer(life, request.config.getoption("--fuzz-seed"))
    stopped = 0
    for _ in range(max(request.config.getoption("--fuzz") // 20, 100)):
        stage = fuzzer.mutations.of(life.devices[1:])
        stage.restore()
        client = stage.machine
        records = client.membership.store.records
        bad = records[SCOPE] = fuzzer.mutations.changed(records[SCOPE])
        try:
            task = stage.feed(fuzzer.mutations.of(fuzzer.likely[stage]))
            if isinstance(task, Task):
                client.seal(task, UPDATE)
        except CoterieError:
            stopped += 1
            assert records == {SCOPE: bad}
    assert stopped


def test_the_seed_decides_about_every_byte(monkeypatch):
    """The same seed tries the same messages, another one others: a failure can be repeated."""
    streams = []
    for seed in (7, 7, 8):
        fuzzer = Fuzzer(seeded_life(seed, monkeypatch), seed)
        fuzzer.run(500)
        streams.append((fuzzer.stream.digest(), fuzzer.outcomes))
    assert streams[0] == streams[1] != streams[2]
