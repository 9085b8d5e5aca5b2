"""Rounds that end in an agreement, stopped before any phase: what the tests of refusals in them begin with."""

import msgspec
import pytest

from coterie.errors import PeerError
from coterie.secagg import Task, run_round, sealed_round
from coterie.secagg.protocols import PROTOCOLS, messages_from_client, messages_from_server
from coterie.secagg.protocols.agreement.messages import RosterLine
from coterie.secagg.wire.framing import encode
from support.secagg.batches import Batches, quantiser, terms
from support.secagg.servers import packed, refused

ADVERTISE, SHARE, RECEIVE, UPLOAD, AGREE, UNMASK = range(6)
EXPOSURE = {"_vectors_from", "_irregular"}
"""What a server notes also of messages that it refuses."""


def from_client(data):
    """A client's message, without its tail."""
    return messages_from_client.decode(data)[0]


def from_server(data):
    """A server's message."""
    return messages_from_server.decode(data)[0]


class Midway:
    """Three batches of three in a round whose messages of one phase are ready and not yet delivered.

    "me" is a member of the first batch: tests give it messages that are almost right.
    """

    def __init__(self, phase, inner="secagg", away=(), conditions=None, common=None, **changes):
        ring = PROTOCOLS[inner].rings[-1]
        common = {"quantiser": quantiser(cohort=9, ring=ring), **(common or {})}
        self.batches = Batches(3, 3, inner=inner, common=common, **changes)
        self.clients = self.batches.clients
        self.terms = conditions or terms(min_included=6)
        self.server = sealed_round(self.batches.charters, 0, self.terms)
        self.answers = {}
        self._ready(self.server.start())
        for at in range(phase):
            self.deliver(lost=away if at == UPLOAD else ())
            self.advance()
        self.me = self.clients["user-0-0"]

    def _ready(self, outgoing):
        self.outgoing, self.answered = outgoing, set()

    def advance(self):
        """End the phase."""
        self._ready(self.server.advance())

    def answer(self, user):
        """A user's answer to the message that is ready for it."""
        self.answered.add(user)
        client = self.clients[user]
        answer = client.receive(self.outgoing[user])
        if isinstance(answer, Task):
            answer = client.seal(answer, self.batches.updates[user])
        return None if answer is None else bytes(answer)

    def deliver(self, but=(), lost=()):
        """Let all but some answer; the answers of the lost ones do not arrive."""
        for user in self.outgoing:
            if user not in but and user not in self.answered:
                self.answers[user] = self.answer(user)
                if self.answers[user] is not None and user not in lost:
                    self.server.receive(user, self.answers[user])

    @property
    def good(self):
        """The message that is ready for "me"."""
        return from_server(self.outgoing[self.me.user])

    @property
    def roster(self):
        """The roster of the round."""
        return self.server._roster  # noqa: SLF001 - tests sign what users would

    def refuses(self, reason, **changes):
        """ "me" refuses its message with these changes, and is as it was."""
        refused(self.me, encode(msgspec.structs.replace(self.good, **changes)), reason)

    def line(self, user, **changes):
        """The roster with another line for one user."""
        lines = (
            msgspec.structs.replace(line, **changes) if line.user == user else line for line in self.good.lines
        )
        return tuple(lines)

    def server_refuses(self, user, data, reason):
        """The server refuses an answer, and is as it was: the user's state, what it waits for, and the sum."""
        before = _memory(self.server)
        with pytest.raises(PeerError, match=reason):
            self.server.receive(user, data)
        assert _memory(self.server) == before

    def with_line(self, line):
        """The roster with this line in the place of the one that its user has there."""
        return tuple(line if old.user == line.user else old for old in self.good.lines)

    def changed(self, user, changes):
        """A user's last answer, with changes to its head."""
        message, tail = messages_from_client.decode(self.answers[user])
        return packed(msgspec.structs.replace(message, **changes), bytes(tail))

    def ends_well(self):
        """The round goes on as if nothing had happened, and its sum is right."""
        rest = _Rest(self)
        result = self.result = run_round(rest, self.clients, self.batches.train)
        users = result.learned[0].users
        expected = sum(self.batches.updates[user].astype(float) for user in users)
        assert result.sum.values == pytest.approx(expected, abs=1e-5)
        return set(users)


def _memory(server):
    """All that a server remembers of a round, as text that compares."""
    parts = (server, getattr(server, "_boxes", None), getattr(server, "_uploads", None))
    return [
        {name: repr(value) for name, value in vars(part).items() if name not in EXPOSURE}
        for part in parts
        if part is not None
    ]


class _Rest:
    """What is left of a round, from the messages that are ready now."""

    def __init__(self, midway):
        self._midway, self._server = midway, midway.server

    def start(self):
        midway = self._midway
        return {user: data for user, data in midway.outgoing.items() if user not in midway.answered}

    def __getattr__(self, name):
        return getattr(self._server, name)


def signed_line(identity, context, user, mask_key, share_key):
    """A roster's line that an identity has really signed."""
    signature = identity.sign("advertise", context, user, mask_key, share_key)
    return RosterLine(user, identity.public, mask_key, share_key, signature)
