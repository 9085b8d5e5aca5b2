"""Users who lie in every way at once: no honest user is ever named, and the sum comes out."""

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import PeerError
from coterie.secagg import Task, unsealed_round
from coterie.secagg.crypto.shamir import SHARE_BYTES
from coterie.secagg.protocols import messages_from_client
from coterie.secagg.protocols.agreement.boxes import leaf, sharing_tree
from coterie.secagg.protocols.agreement.messages import Complaint, Receipt
from coterie.secagg.protocols.pairwise import PAIRS, Sharing, Unmasking
from coterie.secagg.wire.framing import encode
from support.secagg.batches import SCOPE, Loners, quantiser, terms

USERS = 11
BOX_BYTES = PAIRS.box_bytes


class Liar:
    """A client that alters its own boxes, complains falsely, and gives wrong shares, each as a coin says."""

    def __init__(self, client, server, rng, share):
        self.client, self._server, self._rng, self._share = client, server, rng, share

    def _lies(self):
        return self._rng.random() < self._share

    def receive(self, data):
        """Answer, and lie."""
        answer = self.client.receive(data)
        if answer is None or isinstance(answer, Task):
            return answer
        message, _ = messages_from_client.decode(bytes(answer))
        match message:
            case Sharing():
                return self._boxes(message)
            case Receipt():
                return self._complaints(message)
            case Unmasking():
                shares = bytearray(message.shares)
                for start in range(0, len(shares), SHARE_BYTES):
                    shares[start] ^= self._lies()
                return encode(msgspec.structs.replace(message, shares=bytes(shares)))
        return answer

    def _boxes(self, message):
        boxes = [message.boxes[start : start + BOX_BYTES] for start in range(0, len(message.boxes), BOX_BYTES)]
        boxes = [self._rng.bytes(BOX_BYTES) if self._lies() else box for box in boxes]
        sent, identity = self.client._rounds[SCOPE]._sent.boxes, self.client._owner.identity  # noqa: SLF001
        sent.update(zip(sent, boxes, strict=True))
        root = sharing_tree(message.seed_digest + message.own_commitments, b"".join(boxes), PAIRS).root
        roster = self._server._roster  # noqa: SLF001 - the one that it was sent
        signature = identity.sign(*roster.boxes_to_sign(roster.position[self.client.user], root))
        return encode(msgspec.structs.replace(message, boxes=b"".join(boxes), signature=signature))

    def _complaints(self, message):
        roster, boxes = self._server._roster, self._server._boxes  # noqa: SLF001 - what it was sent
        place, complaints = roster.position[self.client.user], {one.user: one for one in message.complaints}
        for sender in boxes.senders.intersection(roster.graph.neighbours(place)):
            if self._lies():
                digest = leaf(boxes.box(sender, place))
                signature = self.client._owner.identity.sign(  # noqa: SLF001
                    *roster.complaint_to_sign(sender, place, digest)
                )
                complaints[sender] = Complaint(sender, digest, signature)
        return encode(
            msgspec.structs.replace(message, complaints=tuple(complaints[s] for s in sorted(complaints)))
        )

    def seal(self, task, update):
        """Seal honestly: a wrong vector spoils the sum, and nobody finds out whose it was."""
        return self.client.seal(task, update)


def play(server, clients, updates, refusals):
    """Run a round; what an honest user refuses is noted, what the server refuses is as if it were lost."""
    outgoing = server.start()
    while outgoing:
        for user, data in outgoing.items():
            try:
                answer = clients[user].receive(data)
                if isinstance(answer, Task):
                    answer = clients[user].seal(answer, updates[user])
            except PeerError as error:
                refusals.append((user, str(error)))
                continue
            if answer is not None:
                server.receive(user, answer)
        outgoing = server.advance()
    return server.finish()


@given(
    st.sampled_from(["secagg", "secagg+"]),
    st.sets(st.integers(0, USERS - 1), max_size=3),
    st.sampled_from([0.1, 0.5, 1.0]),
    st.integers(0, 2**32),
)
@settings(max_examples=25, deadline=None)
def test_whatever_liars_do_no_honest_user_is_named(inner, liars, share, seed):
    """Up to three of eleven lie, and seven are needed: there is a sum over all honest users, and it is exact."""
    loners = Loners(USERS, common={"inner": inner, "quantiser": quantiser(cohort=USERS)})
    server = unsealed_round(loners.rules, loners.identities, 0, terms(min_included=2))
    rng = np.random.default_rng(seed)
    clients = dict(loners.clients)
    for number in liars:
        clients[f"user-{number}"] = Liar(loners.clients[f"user-{number}"], server, rng, share)
    dishonest, refusals = {f"user-{number}" for number in liars}, []
    result = play(server, clients, loners.updates, refusals)
    assert server.liars.keys() <= dishonest
    assert {user for user, _ in refusals} <= dishonest
    (learned,) = result.learned
    assert set(learned.users) >= set(clients) - dishonest
    expected = sum(loners.updates[user].astype(float) for user in learned.users)
    assert np.abs(learned.sum.values - expected).max() <= USERS * loners.rules.quantiser.step
    exposure = server.exposure()
    assert exposure.learned in ((), (learned.users,))
    assert bool(exposure.unknown) != bool(exposure.learned)
