"""What must fail to learn, for the pairwise protocols; and the same attack on unsealed rounds, which succeeds."""
# ruff: noqa: SLF001 - which masks a vector carries is known to its device alone

from contextlib import suppress
from itertools import combinations

import flint
import msgspec
import numpy as np
import pytest
from scipy.stats import chisquare

from coterie.errors import PeerError, TooFewUsersError
from coterie.secagg import Task, UnsealedClient, run_round, sealed_round, unsealed_round
from coterie.secagg.batch.membership import seal_masks
from coterie.secagg.crypto.masking import Mask, add_masks
from coterie.secagg.crypto.ring import RING_32
from coterie.secagg.protocols import messages_from_client, messages_from_server
from coterie.secagg.protocols.agreement.messages import MaskedVector, RosterCall, SharersCall
from coterie.secagg.protocols.pairwise import pair_mask
from coterie.secagg.wire.framing import encode
from support.secagg.batches import DIMENSION, SCOPE, Batches, Loners, quantiser, terms

UPLOAD = 3
Q = 2**32


class Watched:
    """A client of whom every mask that its vector carries is noted, by seed: sealing, own, and pairwise."""

    def __init__(self, client, watcher):
        self.client, self.user, self._watcher = client, client.user, watcher

    def seal(self, task, update, **options):
        """Seal, and note the masks of the seal and of the round's own seed."""
        self.masks, self.words = [], None
        if not isinstance(self.client, UnsealedClient):
            with self.client.membership.record(SCOPE) as record:
                chain = record.chain.advance(task.round)
            self.masks += seal_masks(chain, task.round, task.terms.digest, self.user)
        answer = self.client.seal(task, update, **options)
        participant = self.client._rounds[SCOPE]
        self.own = list(participant.masks)
        self.pairs = {}
        self._key = participant._mask_key
        return answer

    def receive(self, data):
        """Pass on; a vector that leaves is recorded with all its masks."""
        message, _ = messages_from_server.decode(data)
        participant = self.client._rounds.get(SCOPE)
        answer = self.client.receive(data)
        if isinstance(message, SharersCall):
            roster = participant._roster
            self.pairs = {
                line.user: pair_mask(roster, self.user, self._key, line)
                for place, line in enumerate(roster.lines)
                if place in message.sharers and line.user not in participant._party.batch
            }
            if answer is not None:
                head, tail = messages_from_client.decode(bytes(answer))
                assert isinstance(head, MaskedVector)
                self.words = np.frombuffer(tail, dtype="<u4")
                self._watcher.sent(self)
        return answer


class Watcher:
    """All that a server ever saw: whose vector, in which round, under which masks; and which masks it opened."""

    def __init__(self, users):
        self.clients = {user: Watched(client, self) for user, client in users.clients.items()}
        self.rows, self.known = [], set()
        self.round = 0

    def sent(self, watched):
        """Note a vector."""
        masks = [*watched.masks, *watched.own, *watched.pairs.values()]
        self.rows.append((watched.user, self.round, {mask.seed.reveal(): mask.sign for mask in masks}))

    def opened(self, included, sharers):
        """Note what an agreement opens: the included users' own masks, and all masks of the other sharers."""
        for user in sharers:
            if user in included:
                masks = self.clients[user].own
            else:
                masks = [other.pairs[user] for other in self.clients.values() if user in other.pairs]
            self.known |= {mask.seed.reveal() for mask in masks}

    def colluding(self, user):
        """Note all that a user knows, which it tells the server."""
        watched = self.clients[user]
        self.known |= {mask.seed.reveal() for mask in (*watched.masks, *watched.own, *watched.pairs.values())}

    def kernel(self, colluders=()):
        """Return a basis of the combinations of honest users' vectors in which all unknown masks cancel, over Z_q.

        Entries are 0 and ±1 and every column has at most two of them: a network matrix, totally unimodular, so
        the kernel over the integers gives the kernel over Z_q.
        """
        rows = [row for row in self.rows if row[0] not in colluders]
        columns = sorted({seed for *_, masks in rows for seed in masks} - self.known)
        matrix = [[masks.get(seed, 0) for seed in columns] for *_, masks in rows]
        nullspace, rank = flint.fmpz_mat(matrix).transpose().nullspace()
        basis = [[int(nullspace[row, column]) for row in range(len(rows))] for column in range(rank)]
        return [(user, round_) for user, round_, _ in rows], basis


class Rogue:
    """A server that keeps only to what devices enforce: it loses users, and excludes batches as it likes."""

    def __init__(self, users, rng):
        self.users, self.rng, self.watcher = users, rng, Watcher(users)

    def round(self, number, charters, conditions):
        """Run a round up to the agreement; return whom it includes, or nobody."""
        self.watcher.round = number
        server, gone = sealed_round(charters, number, conditions), set()
        outgoing = server.start()
        for _ in range(4):
            for user, answer in self._answers(outgoing, gone).items():
                server.receive(user, answer)
            outgoing = server.advance()
        roster = server._roster
        proposal = self._divided(
            messages_from_server.decode(next(iter(outgoing.values())))[0], roster, charters, conditions
        )
        signed = self._answers(dict.fromkeys(outgoing, encode(proposal)), gone)
        if len(signed) < roster.users_needed:
            return set()
        included = {roster.lines[place].user for place in proposal.included}
        self.watcher.opened(included, [roster.lines[place].user for place in server._sharers])
        return included

    def _answers(self, outgoing, gone):
        """Deliver, lose some users for good, and return the answers."""
        gone |= {user for user in outgoing if self.rng.random() < 0.02}
        answers = {}
        for user, data in outgoing.items():
            if user not in gone:
                client = self.watcher.clients[user]
                answer = client.receive(data)
                if isinstance(answer, Task):
                    answer = client.seal(answer, self.users.updates[user])
                if answer is not None:
                    answers[user] = answer
        return answers

    def _divided(self, proposal, roster, charters, conditions):
        """Move a batch that uploaded to the excluded ones, if as many are left as devices want."""
        spared = {member.user for member in charters[int(self.rng.integers(len(charters)))].members}
        places = {place for place in proposal.included if roster.lines[place].user not in spared}
        if len(places) < conditions.min_included:
            return proposal
        excluded = {*proposal.excluded, *proposal.included} - places
        return msgspec.structs.replace(proposal, included=tuple(sorted(places)), excluded=tuple(sorted(excluded)))


@pytest.mark.parametrize("inner", ["secagg", "secagg+"])
@pytest.mark.parametrize("colluder", [None, "user-0-0"])
def test_no_combination_of_all_pairwise_records_splits_a_batch(inner, colluder):
    """Over many rounds, rosters and losses, with all that was opened and a colluder: constant on each batch.

    What comes out is the sum over all included users of a round: only rounds, and no parts of them, are combined.
    """
    batches = Batches(4, 3, inner=inner)
    rng = np.random.default_rng(0)
    rogue = Rogue(batches, rng)
    learned = {}
    for round_ in range(12):
        chosen = [batches.charters[index] for index in rng.permutation(4)[: rng.integers(2, 5)]]
        conditions = terms(min_included=6, model=bytes([round_]))
        with suppress(TooFewUsersError):
            learned[round_] = rogue.round(round_, chosen, conditions)
        if colluder is not None:
            rogue.watcher.colluding(colluder)
    learned = {round_: included for round_, included in learned.items() if included}
    owners, basis = rogue.watcher.kernel({colluder})
    members = [{member.user for member in charter.members} - {colluder} for charter in batches.charters]
    assert len(basis) == len(learned) > 3
    for combination in basis:
        found = dict(zip(owners, combination, strict=True))
        for round_ in range(12):
            for users in members:
                values = {found.get((user, round_), 0) for user in users}
                assert len(values) == 1, "a combination tells the members of a batch apart"
            included = learned.get(round_, set()) - {colluder}
            assert len({found.get((user, round_), 0) for user in included}) <= 1
            outside = {user for user, at in owners if at == round_} - included
            assert not any(found.get((user, round_), 0) for user in outside)


def test_without_the_seal_the_same_attack_isolates_users_in_secagg():
    """Unsealed rounds of random cohorts, each a perfect SecAgg: together they give every update, exactly."""
    loners, rng = Loners(8), np.random.default_rng(2)
    rows, sums = [], []
    for round_ in range(14):
        asked = {user: key for user, key in loners.identities.items() if rng.random() < 0.75}
        lost = {user for user in asked if rng.random() < 0.05}
        server = unsealed_round(loners.rules, asked, round_, terms(min_included=2))
        with suppress(TooFewUsersError):
            result = run_round(
                server,
                loners.clients,
                loners.train,
                loses=lambda user, phase, way, lost=lost: user in lost and phase == UPLOAD,
            )
            (learned,) = result.learned
            assert set(learned.users) == asked.keys() - lost
            rows.append([float(user in learned.users) for user in loners.clients])
            sums.append(learned.sum.values)
    recovered, *_ = np.linalg.lstsq(np.array(rows), np.array(sums), rcond=None)
    assert recovered == pytest.approx(np.array([loners.updates[user] for user in loners.clients]), abs=1e-5)


def test_members_shown_different_terms_never_meet():
    """A server that shows one member another model finds no roster that it takes: the others signed for theirs."""
    for changes in ({"model": b"crafted"}, {"step": 0, "min_included": 7}):
        batches = Batches(3, 3, inner="secagg")
        good, crafted = (terms(**{"min_included": 6, **change}) for change in ({}, changes))
        servers = [sealed_round(batches.charters, 0, shown) for shown in (good, crafted)]
        lines = {}
        for number, (user, client) in enumerate(batches.clients.items()):
            server = servers[number == 1]
            answer = client.seal(client.receive(server.start()[user]), batches.updates[user])
            with pytest.raises(PeerError, match="answered for another round"):
                servers[number != 1].receive(user, answer)
            server.receive(user, answer)
            lines.update(server._lines)
        ordered = tuple(sorted(lines.values(), key=lambda line: line.user.encode()))
        for number, client in enumerate(batches.clients.values()):
            context = servers[number == 1]._setting.context
            with pytest.raises(PeerError, match="for 'advertise' is forged, or made for something else"):
                client.receive(encode(RosterCall(SCOPE, context, ordered)))
            assert client._rounds[SCOPE].words.size == DIMENSION + quantiser().extra_words  # it never left


def uniform(words):
    """Whether words look uniform: chi-square over their high and low bytes, at a fixed level."""
    return all(chisquare(np.bincount((words >> shift) & 255, minlength=256)).pvalue > 1e-6 for shift in (0, 24))


def stripped(watched, masks):
    """A user's vector without some of its masks."""
    words = watched.words.copy()
    add_masks(words, [Mask(mask.seed, -mask.sign) for mask in masks], RING_32)
    return words.astype(np.int64)


def test_an_incomplete_batch_is_noise_even_with_every_inner_secret():
    """One member's upload is late: the others' vectors, stripped of all inner masks, are noise, also combined."""
    batches = Batches(3, 4, inner="secagg")
    watcher = Watcher(batches)
    large = terms(dimension=20_000, min_included=8)
    update = np.full(20_000, 0.25, dtype=np.float32)  # the least random update there is
    server = sealed_round(batches.charters, 0, large)
    result = run_round(
        server,
        watcher.clients,
        lambda user, task: update,
        loses=lambda user, phase, way: (user, phase) == ("user-1-3", UPLOAD),
    )
    assert len(result.learned[0].users) == 8
    rest = [watcher.clients[f"user-1-{number}"] for number in range(3)]
    for known in ([], ["own"], ["pairs"], ["own", "pairs"]):
        vectors = [
            stripped(
                watched, [*watched.own * ("own" in known), *(watched.pairs.values() if "pairs" in known else ())]
            )
            for watched in rest
        ]
        for size in (1, 2, 3):
            for chosen in combinations(vectors, size):
                assert uniform(sum(chosen) % Q)
        for one, other in combinations(vectors, 2):
            assert uniform((one - other) % Q)


def test_an_included_batch_is_noise_apart_from_the_others():
    """With everything that the round opened, the sum of one complete batch is noise; that of all is not."""
    batches = Batches(3, 3, inner="secagg+")
    watcher = Watcher(batches)
    large = terms(dimension=20_000, min_included=9)
    update = np.full(20_000, 0.25, dtype=np.float32)
    run_round(sealed_round(batches.charters, 0, large), watcher.clients, lambda user, task: update)
    sums = [
        sum(stripped(watcher.clients[f"user-{batch}-{number}"], watcher.clients[f"user-{batch}-{number}"].own)
            for number in range(3)) % Q
        for batch in range(3)
    ]  # fmt: skip
    for size in (1, 2):
        for chosen in combinations(sums, size):
            assert uniform(sum(chosen) % Q)
    assert not uniform(sum(sums) % Q)


def test_an_excluded_uploader_stays_masked():
    """Excluded although its vector exists: its mask key is opened, its own mask is not, and all stays noise."""
    batches = Batches(3, 3, inner="secagg")
    watcher = Watcher(batches)
    large = terms(dimension=20_000, min_included=6)
    update = np.full(20_000, 0.25, dtype=np.float32)
    server = sealed_round(batches.charters, 0, large)
    run_round(
        server,
        watcher.clients,
        lambda user, task: update,
        loses=lambda user, phase, way: (user, phase, way) == ("user-2-2", UPLOAD, "from"),
    )
    users = [watcher.clients[f"user-2-{number}"] for number in range(3)]
    # All three vectors exist: the seal alone would give their sum away to whoever got hold of the late one.
    without_pairs = [stripped(watched, watched.pairs.values()) for watched in users]
    assert uniform(sum(without_pairs) % Q)
    everything = [stripped(watched, [*watched.pairs.values(), *watched.own]) for watched in users]
    assert not uniform(sum(everything) % Q)
