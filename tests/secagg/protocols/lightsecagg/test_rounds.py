"""Rounds of LightSecAgg, sealed and unsealed: the sum over complete batches, or nothing; whatever is lost."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import PeerError, TooFewUsersError
from coterie.secagg import PROTOCOLS, run_round, sealed_round, unsealed_round
from coterie.secagg.batch.charter import Parameters
from coterie.secagg.crypto.coded_masks import Code
from coterie.secagg.crypto.keys import Seed
from coterie.secagg.crypto.masking import Keystream
from coterie.secagg.crypto.ring import PRIME_31
from coterie.secagg.protocols import messages_from_client
from coterie.secagg.protocols.agreement.messages import MaskedVector
from coterie.secagg.protocols.lightsecagg import ShareSum
from support.secagg.batches import Batches, Loners, quantiser, terms
from support.secagg.servers import packed

LIGHT = PROTOCOLS["lightsecagg"]
PHASES, UPLOAD = LIGHT.phases, LIGHT.upload_phase


def words(cohort=60, **changes):
    """A quantiser modulo the prime."""
    return {"quantiser": quantiser(ring=PRIME_31, cohort=cohort, **changes)}


def whole_updates(users, common, weights=None):
    """Updates whose words are whole numbers, so that sums are exact; and those numbers, weighted."""
    levels, step = common["quantiser"].levels, common["quantiser"].step
    rng, numbers = np.random.default_rng(0), {}
    for user in users.clients:
        numbers[user] = rng.integers(0, levels, 40)
        users.updates[user] = numbers[user] * step - common["quantiser"].clip
    return {user: (1 if weights is None else weights[user]) * value for user, value in numbers.items()}


def check(users, result, numbers):
    """The sum is that of its users' whole numbers, exactly; return who they are."""
    (learned,) = result.learned
    quantiser_ = users.rules.quantiser
    total = sum(numbers[user] for user in learned.users)
    found = (learned.sum.values + learned.sum.weight * quantiser_.clip) / quantiser_.step
    assert np.rint(found).astype(int).tolist() == total.tolist()
    return set(learned.users)


def lost_by_chance(rng, chances, lost):
    """Lose each message with its phase's chance; who lost one before the agreement is in `lost` then."""

    def loses(user, phase, way):
        del way
        if rng.random() < chances[phase]:
            if phase <= UPLOAD:
                lost.add(user)
            return True
        return False

    return loses


chances_of_loss = st.lists(st.sampled_from([0, 0, 0.01, 0.05, 0.2]), min_size=PHASES, max_size=PHASES)


@given(st.integers(2, 4), st.integers(2, 5), chances_of_loss, st.integers(0, 2**32))
@settings(max_examples=12, deadline=None)
def test_losses_at_any_phase_give_the_exact_sum_or_none(size, count, chances, seed):
    """With users lost at every phase: the complete batches' integer sum, or TooFewUsersError; then a round."""
    common = words(weight_cap=3)
    batches = Batches(max(count, -(-12 // size)), size, inner="lightsecagg", common=common)
    weights = {user: 1 + number % 3 for number, user in enumerate(batches.clients)}
    numbers = whole_updates(batches, common, weights)
    conditions, lost = terms(min_included=2 * size), set()
    losses = lost_by_chance(np.random.default_rng(seed), chances, lost)
    server = sealed_round(batches.charters, 0, conditions)
    try:
        result = run_round(server, batches.clients, batches.train, weights=weights, loses=losses)
    except TooFewUsersError:
        assert any(chances)
    else:
        members = [{member.user for member in charter.members} for charter in batches.charters]
        included = set().union(*(users for users in members if not users & lost))
        assert check(batches, result, numbers) == included
        assert server.exposure().learned == (result.learned[0].users,)
    again = run_round(
        sealed_round(batches.charters, 1, conditions), batches.clients, batches.train, weights=weights
    )
    assert check(batches, again, numbers) == set(batches.clients)


@given(st.integers(3, 20), chances_of_loss, st.integers(0, 2**32))
@settings(max_examples=15, deadline=None)
def test_unsealed_rounds_sum_over_whoever_uploaded(users, chances, seed):
    """Without batches every user who uploaded is included; what did not end as agreed is unknown."""
    common = words(cohort=20)
    loners, lost = Loners(users, common={"inner": "lightsecagg", **common}), set()
    numbers = whole_updates(loners, common)
    losses = lost_by_chance(np.random.default_rng(seed), chances, lost)
    server = unsealed_round(loners.rules, loners.identities, 0, terms(min_included=2))
    try:
        result = run_round(server, loners.clients, loners.train, loses=losses)
    except TooFewUsersError:
        assert any(chances)
        assert server.exposure().learned == ()
    else:
        assert check(loners, result, numbers) == set(loners.clients) - lost
        assert server.exposure().learned == (result.learned[0].users,)


def test_incomplete_batches_upload_nothing_and_help_to_recover():
    """Members of a batch that lost one are not asked for a vector, and send their sum of shares like everyone."""
    common = words()
    batches = Batches(3, 3, inner="lightsecagg", common=common)
    numbers, answers = whole_updates(batches, common), {}

    def loses(user, phase, way):
        if way == "from":
            answers.setdefault(user, []).append(phase)
        return user == "user-1-0" and phase == 1

    server = sealed_round(batches.charters, 0, terms(min_included=6))
    result = run_round(server, batches.clients, batches.train, loses=loses)
    assert check(batches, result, numbers) == {user for user in batches.clients if "-1-" not in user}
    assert answers["user-1-1"] == [0, 1, 2, 4, 5]
    assert result.lost == {batches.charters[1].digest: "user-1-0 did not answer"}


def test_agreement_and_decoding_are_two_numbers():
    """Of 12 users 8 must agree, and 7 sums decode: with fewer of either there is no sum."""
    batches = Batches(4, 3, inner="lightsecagg", common=words())
    users = list(batches.clients)
    for number, (phase, away, reason) in enumerate(
        (
            (4, users[:5], "7 of 12 users agreed; 8 are needed"),
            (5, users[:6], "6 sums of shares came; 7 are needed"),
        )
    ):
        server = sealed_round(batches.charters, number, terms(min_included=6))
        with pytest.raises(TooFewUsersError, match=reason):
            run_round(
                server,
                batches.clients,
                batches.train,
                loses=lambda user, at, way, phase=phase, away=away: user in away and at == phase,
            )
        learned = server.exposure().learned
        assert learned == (() if phase == 4 else (tuple(sorted(users)),))


def test_too_few_holders_end_a_round_before_anything_is_opened():
    """Where more sums decode than must agree, a round that could not be decoded asks nobody for a sum."""
    common = {**words(), "parameters": Parameters(200, 0)}  # of 9 users 6 must agree, and 7 sums decode
    batches = Batches(3, 3, inner="lightsecagg", common=common)
    away, answers = list(batches.clients)[:3], set()

    def loses(user, phase, way):
        answers.add((phase, way))
        return user in away and phase == 4

    server = sealed_round(batches.charters, 0, terms(min_included=6))
    with pytest.raises(TooFewUsersError, match="6 holders of shares are left; 7 are needed to decode the masks"):
        run_round(server, batches.clients, batches.train, loses=loses)
    assert max(answers) == (4, "to")
    assert server.exposure().learned == ()


def test_noise_is_drawn_for_one_mask_alone(monkeypatch):
    """Every mask of every round has noise of its own seed, which is not the mask's: else shares would tell it."""
    encode, drawn = Code.encode, []

    def watch(code, mask, noise):
        drawn.append((mask.copy(), noise.reveal()))
        return encode(code, mask, noise)

    monkeypatch.setattr(Code, "encode", watch)
    batches = Batches(2, 3, inner="lightsecagg", common=words())
    for number in range(2):
        run_round(sealed_round(batches.charters, number, terms(min_included=6)), batches.clients, batches.train)
    assert len({mask.tobytes() for mask, _ in drawn}) == len({noise for _, noise in drawn}) == 12
    for mask, noise in drawn:
        stream = np.empty_like(mask)
        Keystream(Seed(noise), PRIME_31).words_into(stream)
        assert not np.array_equal(stream, mask)


class Wrong:
    """A client one kind of whose messages has a wrong word in its tail."""

    def __init__(self, client, kind, change):
        self._client, self._kind, self._change = client, kind, change
        self.user, self.seal = client.user, client.seal

    def receive(self, data):
        """Answer, in that kind of message with another word."""
        answer = self._client.receive(data)
        if not isinstance(answer, bytes | memoryview):
            return answer
        message, tail = messages_from_client.decode(answer)
        if not isinstance(message, self._kind):
            return answer
        words = np.frombuffer(tail, dtype="<u4").copy()
        self._change(words)
        return packed(message, words.tobytes())


def wrong_sum(client):
    """A client whose sum of shares has one wrong word."""

    def change(words):
        words[-1] = (int(words[-1]) + 5) % PRIME_31.modulus

    return Wrong(client, ShareSum, change)


def word_too_large(client):
    """A client whose masked vector has the word p."""

    def change(words):
        words[7] = PRIME_31.modulus

    return Wrong(client, MaskedVector, change)


@pytest.mark.parametrize("wrong", [1, 2, 3])
def test_wrong_sums_are_corrected_up_to_e_and_nobody_is_named(wrong):
    """Of 12 sums 7 are needed: two wrong ones are corrected, a third ends the round; no user is said to lie."""
    common = words()
    batches = Batches(4, 3, inner="lightsecagg", common=common)
    numbers = whole_updates(batches, common)
    clients = dict(batches.clients)
    for user in list(clients)[3 : 3 + wrong]:
        clients[user] = wrong_sum(clients[user])
    server = sealed_round(batches.charters, 0, terms(min_included=6))
    if wrong <= 2:
        result = run_round(server, clients, batches.train)
        assert check(batches, result, numbers) == set(batches.clients)
        assert result.liars == {}
    else:
        with pytest.raises(TooFewUsersError, match="12 sums of shares do not belong together; 2 wrong ones"):
            run_round(server, clients, batches.train)
    assert server.liars == {}


@pytest.mark.parametrize("wrong", [2, 3])
def test_many_liars_beside_many_losses(wrong):
    """Of 40 users 12 are gone at the end, all that δ allows: e = 2 wrong sums are corrected, a third ends it."""
    common = words()
    batches = Batches(10, 4, inner="lightsecagg", common=common)
    numbers, clients = whole_updates(batches, common), dict(batches.clients)
    users = list(clients)
    for user in users[20 : 20 + wrong]:
        clients[user] = wrong_sum(clients[user])
    server = sealed_round(batches.charters, 0, terms(min_included=8))

    def go():
        return run_round(
            server, clients, batches.train, loses=lambda user, phase, way: phase == 5 and user in users[:12]
        )

    if wrong == 2:
        assert check(batches, go(), numbers) == set(users)
    else:
        with pytest.raises(TooFewUsersError, match="28 sums of shares do not belong together; 2 wrong ones"):
            go()
    assert server.liars == {}


def test_an_unsealed_vector_with_a_word_of_p_or_more_is_refused():
    """The server takes no word that no number modulo p has; the round goes on without that user, and says so."""
    common = words(cohort=20)
    loners = Loners(8, common={"inner": "lightsecagg", **common})
    clients = {**loners.clients, "user-3": word_too_large(loners.clients["user-3"])}
    server = unsealed_round(loners.rules, loners.identities, 0, terms(min_included=2))
    refusals = []

    class Noting:
        """The server, whose refusals are noted: a driver would log them."""

        def __getattr__(self, name):
            return getattr(server, name)

        def receive(self, user, data):
            try:
                server.receive(user, data)
            except PeerError as error:
                refusals.append(str(error))

    result = run_round(Noting(), clients, loners.train)
    assert refusals == ["user-3 sent a word of 2147483647; words are below 2147483647"]
    assert set(result.learned[0].users) == set(loners.clients) - {"user-3"}
    assert server.exposure().unknown == tuple(sorted(loners.clients))


def test_an_update_that_is_not_finite_is_included_with_zeros():
    """It looks like any other answer, and adds nothing to the sum of values."""
    common = words()
    batches = Batches(2, 3, inner="lightsecagg", common=common)
    updates = {**batches.updates, "user-1-2": np.full(40, np.nan)}
    server = sealed_round(batches.charters, 0, terms(min_included=6))
    result = run_round(server, batches.clients, lambda user, task: updates[user])
    expected = sum(update for user, update in batches.updates.items() if user != "user-1-2")
    assert result.sum.values == pytest.approx(expected, abs=1e-5)
