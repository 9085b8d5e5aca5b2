"""Sweeps of weight cap, clip and learning rate over rounds of one model: each would work, and each is refused.

What moves one of the three while updates repeat reads single updates off the differences of sums over a whole
batch. A server can try it wherever it speaks: in a call, in a later charter, without a seal, or with the step.
"""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from coterie.errors import PeerError
from coterie.secagg import (
    RING_32,
    BatchRules,
    DeviceConfiguration,
    Quantiser,
    Seed,
    Terms,
    found_batch,
    run_round,
    sealed_round,
    simulated_client,
    write_recipe,
)
from coterie.secagg.crypto.masking import quantise_into
from coterie.secagg.crypto.quantiser import dequantise
from coterie.secagg.server import round_call, unsealed_call
from coterie.secagg.wire.framing import encode
from support.secagg.servers import refused

SCOPE = "keyboard"
WEIGHTS = {"ana": 90, "bob": 40, "cas": 25, "dan": 7}
RNG = np.random.default_rng(3)
UPDATES = {user: RNG.uniform(-0.5, 0.5, 12) for user in WEIGHTS}
QUANTISER = Quantiser(RING_32, clip=1.0, weight_cap=100, cohort=8)
RECIPE = {"learning_rate": 0.1, "schedule": [[5, 0.5]]}
RULES = BatchRules(SCOPE, len(WEIGHTS), QUANTISER, "open", recipe=write_recipe(RECIPE))
CONFIGURATION = DeviceConfiguration(scopes={SCOPE}, least_privacy=4, protocols={"open", "secagg"})


def permissive(quantiser, scale=1.0):
    """The sum that devices would give if the server could choose the quantiser, or scale their updates."""
    total = np.zeros(12 + quantiser.extra_words, dtype=np.uint32)
    for number, (user, weight) in enumerate(WEIGHTS.items()):
        words = np.empty_like(total)
        capped = min(weight, quantiser.weight_cap)
        quantise_into(words, scale * UPDATES[user], capped, quantiser, Seed(bytes([number] * 32)))
        total += words
    return dequantise(total, quantiser, len(WEIGHTS))


class Victims:
    """A batch whose devices have sealed round 4 at step 4 for one model, and the server's next attempts."""

    def __init__(self, **changes):
        self.configuration = replace(CONFIGURATION, **changes)
        self.clients = {user: simulated_client(user, self.configuration) for user in WEIGHTS}
        self.charter = found_batch(RULES, self.clients.values())
        server = sealed_round([self.charter], 4, self.terms(step=4))
        run_round(server, self.clients, lambda user, _task: UPDATES[user], weights=WEIGHTS)

    @staticmethod
    def terms(**changes):
        """The terms of the one model that the server keeps sending."""
        return Terms(b"model", 12, **{"step": 4, **changes})

    def refuse_call(self, reason, **changes):
        """No device takes part in a next round with these terms."""
        call = encode(round_call(self.charter, 5, self.terms(**changes)))
        for client in self.clients.values():
            refused(client, call, reason)

    def refuse_field(self, value):
        """A call has no field for it: one more is no call at all."""
        body = msgspec.msgpack.encode(round_call(self.charter, 5, self.terms()))
        longer = msgspec.msgpack.encode([*msgspec.msgpack.decode(body), value])
        header = b"COT\x02" + len(longer).to_bytes(4, "little") + bytes(8)
        for client in self.clients.values():
            refused(client, header + longer, "malformed message")

    def refuse_unsealed(self, rules):
        """No sealing device answers a call without a seal, which would carry the server's own settings."""
        call = encode(unsealed_call(replace(rules, inner="secagg"), 5, self.terms()))
        for client in self.clients.values():
            refused(client, call, "UnsealedCall came from the server out of order")

    def refuse_successor(self, rules, reason):
        """No device signs a later charter with other rules, also of more users."""
        newcomers = [simulated_client(f"new-{i}", self.configuration) for i in range(4)]
        for members in (self.clients.values(), [*self.clients.values(), *newcomers]):
            with pytest.raises(PeerError, match=reason):
                found_batch(rules, members, first=5)


# --- the weight cap ----------------------------------------------------------------------------------------


def test_a_sweep_of_the_weight_cap_is_refused():
    """Two caps between the largest and the second-largest weight would give one member's whole update."""
    caps = [replace(QUANTISER, weight_cap=cap) for cap in (60, 80)]
    low, high = (permissive(quantiser) for quantiser in caps)
    assert high.weight - low.weight == 20
    assert (high.values - low.values) / 20 == pytest.approx(UPDATES["ana"], abs=1e-5)

    victims = Victims()
    other = replace(RULES, quantiser=caps[0])
    victims.refuse_field(60)
    victims.refuse_call("takes the charter's", configuration=write_recipe({"weight_cap": 60}))
    victims.refuse_unsealed(other)
    victims.refuse_successor(other, "changes the quantiser .*: weight cap 60 in place of 100")


def test_a_configuration_that_sets_the_weight_cap_is_refused_where_one_is_permitted():
    """An owner who lets the training configuration come with a round still lets no quantiser come with it."""
    victims = Victims(configuration_in_terms=True)
    for setting in ("weight_cap", "clip", "levels", "cohort"):
        victims.refuse_call(f"sets '{setting}'", configuration=write_recipe({setting: 60}))


@pytest.mark.parametrize("cap", [99, 60, 1])
def test_a_smaller_largest_weight_is_refused_after_an_override(cap):
    """All owners let go of the batch: a charter with a smaller largest weight is refused, whatever one's own is.

    Were it refused only by devices whose weight is larger, the charters that a device signs would tell its weight.
    """
    victims = Victims()
    for client in victims.clients.values():
        client.membership.override(SCOPE)
    rules = replace(RULES, quantiser=replace(QUANTISER, weight_cap=cap))
    for client in victims.clients.values():
        others = [simulated_client(f"other-{i}", CONFIGURATION) for i in range(3)]
        with pytest.raises(PeerError, match=f"largest weight is {cap}; .* fixed for good under one of 100"):
            found_batch(rules, [client, *others], first=5)


def test_a_weight_that_moves_is_not_used():
    """Weights of later rounds are not looked at, after a merger and an override too; the first seal fixed them.

    If one weight moved by one while updates repeat, the difference of two sums would be that member's update.
    """
    moved = {**WEIGHTS, "cas": WEIGHTS["cas"] + 1}
    victims = Victims()

    def weighed(charter, clients, round_):
        server = sealed_round([charter], round_, victims.terms())
        weights = {**dict.fromkeys(clients, 3), **moved}
        return run_round(server, clients, lambda user, _: UPDATES.get(user, np.zeros(12)), weights=weights).sum

    first = weighed(victims.charter, victims.clients, 5)
    assert first.weight == sum(WEIGHTS.values()) != sum(moved.values())
    newcomers = {f"new-{i}": simulated_client(f"new-{i}", CONFIGURATION) for i in range(4)}
    clients = {**victims.clients, **newcomers}
    merged = weighed(found_batch(RULES, clients.values(), first=6), clients, 6)
    assert merged.weight == sum(WEIGHTS.values()) + 4 * 3
    assert merged.values == pytest.approx(first.values, abs=1e-4)
    for client in clients.values():
        client.membership.override(SCOPE)
    regrouped = weighed(found_batch(RULES, victims.clients.values(), first=7), victims.clients, 7)
    assert regrouped.weight == sum(WEIGHTS.values())
    assert (regrouped.values == first.values).all()  # the same terms: the same rounding, too


# --- the clip ----------------------------------------------------------------------------------------------


def test_a_sweep_of_the_clip_is_refused():
    """A clip that moves would give single values: the sum bends where the value of largest size is reached."""
    heavy = {user: WEIGHTS[user] * UPDATES[user][0] for user in WEIGHTS}
    sizes = sorted((abs(UPDATES[user][0]), user) for user in WEIGHTS)
    (second, _), (largest, owner) = sizes[-2:]
    clips = (float(0.6 * second + 0.4 * largest), float(0.4 * second + 0.6 * largest))
    low, high = (permissive(replace(QUANTISER, clip=clip)).values[0] for clip in clips)
    slope = (high - low) / (clips[1] - clips[0])  # the owner's weight, and the sign of its value
    assert abs(slope) == pytest.approx(WEIGHTS[owner], rel=1e-3)
    assert slope * heavy[owner] > 0
    rest = permissive(replace(QUANTISER, clip=1.0)).values[0] - low  # what the clip had cut off that one value
    assert clips[0] + rest / slope == pytest.approx(largest, rel=1e-3)

    victims = Victims()
    for clip in (*clips, 2.0, float(np.nextafter(1.0, 2.0))):
        other = replace(RULES, quantiser=replace(QUANTISER, clip=clip))
        victims.refuse_field(clip)
        victims.refuse_call("takes the charter's", configuration=write_recipe({"clip": clip}))
        victims.refuse_unsealed(other)
        victims.refuse_successor(other, f"changes the quantiser .*: clip {clip} in place of 1.0")


# --- the learning rate -------------------------------------------------------------------------------------


def test_a_sweep_of_the_learning_rate_is_refused():
    """A learning rate that moves is a moving clip: the sum bends where the update of largest size is clipped."""
    sizes = sorted((abs(UPDATES[user][0]), user) for user in WEIGHTS)
    (second, _), (largest, owner) = sizes[-2:]
    even, bent = 0.9 / largest, 0.5 / largest + 0.5 / second  # the second one is not clipped yet at `bent`
    straight = permissive(QUANTISER, scale=even).values[0] / even * bent
    missing = straight - permissive(QUANTISER, scale=bent).values[0]
    value = (abs(missing) / WEIGHTS[owner] + 1.0) / bent
    assert value == pytest.approx(largest, rel=1e-3)
    assert np.sign(missing) == np.sign(UPDATES[owner][0])

    victims = Victims()
    for rate in (0.05, 0.2, 10.0):
        recipe = write_recipe({**RECIPE, "learning_rate": rate})
        victims.refuse_field(rate)
        victims.refuse_call("takes the charter's", configuration=recipe)
        victims.refuse_unsealed(replace(RULES, recipe=recipe))
        victims.refuse_successor(replace(RULES, recipe=recipe), "changes the recipe .*learning_rate")
    victims.refuse_successor(replace(RULES, recipe=write_recipe({"learning_rate": 0.1})), "changes the recipe")


@pytest.mark.parametrize("step", [0, 3, 6, 2**63 - 1])
def test_a_step_that_goes_back_or_ahead_is_refused(step):
    """A schedule depends on the step; it stays or goes on, at most to the round: no rate comes twice."""
    victims = Victims()
    victims.refuse_call(f"step {step} in round 5; this device takes 4, its last, to 5", step=step)


def test_the_step_does_not_go_back_in_a_later_charter():
    """A merger, and even the owner's override, do not let the step begin anew."""
    victims = Victims()
    newcomers = {f"new-{i}": simulated_client(f"new-{i}", CONFIGURATION) for i in range(4)}
    victims.charter = found_batch(RULES, [*victims.clients.values(), *newcomers.values()], first=5)
    victims.refuse_call("step 3 in round 5; this device takes 4", step=3)
    for client in victims.clients.values():
        client.membership.override(SCOPE)
    victims.charter = found_batch(RULES, victims.clients.values(), first=5)
    victims.refuse_call("step 0 in round 5; this device takes 4", step=0)
