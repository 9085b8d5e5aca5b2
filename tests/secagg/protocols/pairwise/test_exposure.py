"""What a pairwise round has shown: everything that the bytes would open, whether or not the server did (§8)."""
# ruff: noqa: SLF001 - who is included, and who is whose neighbour, is set by hand

import dataclasses

import msgspec
import numpy as np
import pytest

from coterie.errors import PeerError, TooFewUsersError
from coterie.secagg import Task, run_round, sealed_round, unsealed_round
from coterie.secagg.protocols import messages_from_client
from coterie.secagg.protocols.interface import Exposure
from coterie.secagg.wire.framing import encode
from support.secagg.batches import Batches, Loners, quantiser, terms
from support.secagg.midway import AGREE, UNMASK, UPLOAD, Midway, from_client
from support.secagg.servers import packed

NOTHING = Exposure()


class Unsealed:
    """Nine users in an unsealed round, phase by phase."""

    def __init__(self):
        self.loners = Loners(9)
        self.server = unsealed_round(self.loners.rules, self.loners.identities, 0, terms(min_included=2))
        self.outgoing = self.server.start()

    def answers(self):
        """Everybody's answers to this phase."""
        answers = {}
        for user, data in self.outgoing.items():
            answer = self.loners.clients[user].receive(data)
            if isinstance(answer, Task):
                answer = self.loners.clients[user].seal(answer, self.loners.updates[user])
            answers[user] = bytes(answer)
        return answers

    def play(self, phases, change=lambda phase, answers: answers):
        """Play some phases; what comes of a phase's answers is decided by `change`."""
        for phase in range(phases):
            for user, answer in change(phase, self.answers()).items():
                self.server.receive(user, answer)
            self.outgoing = self.server.advance()
        return self.server


def users(*numbers):
    """Users by number."""
    return tuple(f"user-{number}" for number in numbers)


def test_a_sealed_round_shows_nothing_before_it_is_opened():
    """Up to the agreement every vector is noise; from the moment when shares are asked for the sum counts."""
    for phase in range(UNMASK):
        assert Midway(phase).server.exposure() == NOTHING
    midway = Midway(UNMASK, away={"user-2-0"})
    expected = tuple(sorted(user for user in midway.clients if not user.startswith("user-2")))
    assert midway.server.exposure() == Exposure((expected,))
    midway.deliver()
    midway.advance()
    midway.server.finish()
    assert midway.server.exposure() == Exposure((expected,))


def test_a_sealed_round_that_failed_at_the_end_has_shown_its_sum():
    """Wrong check words, or too few shares: the server may have got what its code did not."""
    midway = Midway(UPLOAD)
    message, tail = messages_from_client.decode(midway.answer("user-0-0"))
    midway.server.receive("user-0-0", packed(message, bytes(len(tail))))
    with pytest.raises(TooFewUsersError, match="masks did not cancel"):
        midway.ends_well()
    assert [len(part) for part in midway.server.exposure().learned] == [9]
    midway = Midway(UNMASK)
    midway.advance()
    with pytest.raises(TooFewUsersError, match="0 shares"):
        midway.server.finish()
    assert [len(part) for part in midway.server.exposure().learned] == [9]


def test_a_late_vector_of_a_sealed_round_shows_nothing():
    """Its batch is excluded, its seed is never opened."""
    midway = Midway(AGREE, away={"user-2-0"})
    with pytest.raises(PeerError, match="out of order"):
        midway.server.receive("user-2-0", midway.answers["user-2-0"])
    assert midway.server.exposure() == NOTHING
    assert len(midway.ends_well()) == 6
    assert [len(part) for part in midway.server.exposure().learned] == [6]


def test_a_round_that_cannot_be_opened_ends_before_any_share_is_sent():
    """If the holders who are left are too few, the server asks nobody, and has learned nothing."""
    midway = Midway(AGREE)
    graph = midway.roster.graph
    object.__setattr__(graph, "neighbourhood", dataclasses.replace(graph.neighbourhood, shares_needed=9))
    midway.deliver(lost={"user-0-0"})
    with pytest.raises(TooFewUsersError, match="8 holders of a user's secret are left; 9 are needed"):
        midway.advance()
    assert midway.server.exposure() == NOTHING


def test_included_users_who_fall_apart_are_apart_in_the_account():
    """Two groups that no mask joins have two sums: with a sparse graph and few left both are learned."""
    batches = Batches(16, 4, inner="secagg+", common={"quantiser": quantiser(cohort=64)})
    server = sealed_round(batches.charters, 0, terms(min_included=8))
    result = run_round(server, batches.clients, batches.train)
    (learned,) = server.exposure().learned
    assert set(learned) == set(result.learned[0].users) == set(batches.clients)
    # With fewer neighbours, and two batches only, some users would have no mask in common.
    graph = server._roster.graph
    object.__setattr__(graph, "neighbourhood", dataclasses.replace(graph.neighbourhood, degree=2))
    apart = 0
    for first in range(0, 56, 4):
        server._included = tuple(range(first, first + 8))
        parts = server._components()
        assert sorted(map(len, parts)) in ([4, 4], [8])
        assert all(len({user[:-2] for user in part}) * 4 == len(part) for part in parts)
        apart += len(parts) == 2
    assert apart


def test_an_unsealed_round_that_ends_as_agreed_shows_its_sum():
    """Users lost before they upload are in no account; nobody is known alone."""

    def lose(phase, answers):
        return {user: answer for user, answer in answers.items() if phase < 3 or user != "user-4"}

    server = Unsealed().play(6, lose)
    assert len(server.finish().learned[0].users) == 8
    assert server.exposure() == Exposure((users(0, 1, 2, 3, 5, 6, 7, 8),))


def test_an_unsealed_round_under_way_is_unknown():
    """From the first vector to the end nothing is sure; before it nothing is shown."""
    for phases, expected in ((3, ()), (4, users(*range(9))), (6, users(*range(9)))):
        server = Unsealed().play(phases)
        assert server.exposure() == Exposure(unknown=expected)


def test_a_wrong_share_makes_an_unsealed_round_unknown():
    """The sum is right, but what the liar opened beside it nobody knows."""

    def lie(phase, answers):
        if phase == 5:
            message = from_client(answers["user-2"])
            wrong = bytes([message.shares[0] ^ 1]) + message.shares[1:]
            answers["user-2"] = encode(msgspec.structs.replace(message, shares=wrong))
        return answers

    server = Unsealed().play(6, lie)
    assert list(server.finish().liars) == ["user-2"]
    assert server.exposure() == Exposure(unknown=users(*range(9)))


def test_a_wrong_check_word_makes_an_unsealed_round_unknown():
    """A vector that is not what was masked: no sum, and no promise."""

    def lie(phase, answers):
        if phase == 3:
            message, tail = messages_from_client.decode(answers["user-2"])
            words = np.frombuffer(tail, dtype="<u4").copy()
            words[-1] += 1
            answers["user-2"] = packed(message, words.tobytes())
        return answers

    server = Unsealed().play(6, lie)
    with pytest.raises(TooFewUsersError, match="masks did not cancel"):
        server.finish()
    assert server.exposure() == Exposure(unknown=users(*range(9)))


@pytest.mark.parametrize("late", [4, 5, 6])
def test_a_late_vector_makes_an_unsealed_round_unknown(late):
    """A vector that comes after its phase, also after the end, counts although it is refused."""
    unsealed, kept = Unsealed(), {}

    def hold_back(phase, answers):
        if phase == 3:
            kept["user-2"] = answers.pop("user-2")
        return answers

    server = unsealed.play(4, hold_back)
    for phase in range(4, 6):
        if phase == late:
            with pytest.raises(PeerError, match="out of order"):
                server.receive("user-2", kept["user-2"])
        unsealed.play(1)
    server.finish()
    if late in {4, 5}:
        assert server.exposure() == Exposure(unknown=users(*range(9)))
        return
    assert server.exposure() == Exposure((users(0, 1, 3, 4, 5, 6, 7, 8),))
    with pytest.raises(PeerError, match="out of order"):
        server.receive("user-2", kept["user-2"])
    assert server.exposure() == Exposure(unknown=users(*range(9)))


def test_a_second_vector_makes_an_unsealed_round_unknown():
    """Two vectors under one set of masks show their difference."""
    unsealed = Unsealed()
    unsealed.play(3)
    answers = unsealed.answers()
    for user, answer in answers.items():
        unsealed.server.receive(user, answer)
    with pytest.raises(PeerError, match="out of order"):
        unsealed.server.receive("user-2", answers["user-2"])
    unsealed.outgoing = unsealed.server.advance()
    unsealed.play(2)
    unsealed.server.finish()
    assert unsealed.server.exposure() == Exposure(unknown=users(*range(9)))


def test_bytes_that_cannot_be_read_may_have_been_a_vector():
    """From the moment when vectors are asked for, garbage counts as one; before it, it is only refused."""
    unsealed = Unsealed()
    with pytest.raises(PeerError, match="not a message"):
        unsealed.server.receive("user-2", bytes(400))
    unsealed.play(3)
    assert unsealed.server.exposure() == NOTHING
    with pytest.raises(PeerError, match="not a message"):
        unsealed.server.receive("user-2", bytes(400))
    assert unsealed.server.exposure() == Exposure(unknown=users(2))
    unsealed.play(3)
    unsealed.server.finish()
    assert unsealed.server.exposure() == Exposure(unknown=users(*range(9)))
