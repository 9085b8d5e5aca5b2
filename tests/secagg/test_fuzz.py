"""Whatever bytes come, a machine answers, or refuses with a PeerError and is as it was (`--fuzz N` tries more)."""

import hashlib
import random
import tracemalloc
from collections import Counter
from functools import partial

import pytest

from coterie.errors import CoterieError, PeerError
from coterie.secagg import IdentityKey, Membership, SealKey, Seed, Task, loopback
from coterie.secagg.crypto.keys import BoxKey, MaskKey, ShareKey
from support.secagg.batches import SCOPE
from support.secagg.effects import TABLES, check_accepted
from support.secagg.mutations import Mutations
from support.secagg.servers import UPDATE
from support.secagg.stages import CLIENT_KINDS, SERVER_KINDS, Life

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
    monkeypatch.setattr(loopback, "Membership", partial(Membership, new_secret=Seed.generate))
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
