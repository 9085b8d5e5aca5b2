"""Charters whose quantiser or recipe a device must not take: neither is the server's to move (§1, §3)."""

import re
import struct

import pytest

from coterie.secagg import RING_16, write_recipe
from coterie.secagg.wire.framing import encode
from coterie.secagg.wire.messages import Draft
from support.secagg.batches import quantiser
from support.secagg.servers import Enrolling, raw_charter, refused

NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize("change", [-1, 1, -1000, 2**31])
def test_levels_that_are_not_derived_are_refused(change):
    """The number of levels follows from ring, largest weight and cohort bound; no other one is taken.

    One more and a sum could wrap around, one fewer and the step would be the server's to choose.
    """
    enrolling = Enrolling()
    charter = enrolling.charter()
    derived = charter.quantiser.levels
    assert derived == (2**32 - 1) // 60 + 1
    levels = derived + change
    enrolling.refuses(raw_charter(charter, levels=levels), f"it states {levels} levels; .* give {derived}")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"clip": 0.09}, "clip to 0.09; this device takes 0.1 to 10.0"),
        ({"clip": 10.1}, "clip to 10.1"),
        ({"weight_cap": 51}, "largest weight to 51; this device takes 1 to 50"),
        ({"cohort": 101}, "cohort bound to 101; this device takes 1 to 100"),
    ],
)
def test_a_quantiser_out_of_the_devices_bounds_is_refused(changes, reason):
    """Clip, largest weight and cohort bound must lie within what the device's configuration allows."""
    enrolling = Enrolling(clip_range=(0.1, 10.0), largest_weight_cap=50, largest_cohort=100)
    enrolling.refuses(enrolling.charter(quantiser=quantiser(**changes)), reason)
    enrolling.found(enrolling.charter(quantiser=quantiser(clip=10.0, weight_cap=50, cohort=100)))


@pytest.mark.parametrize("clip", [0.0, -0.0, -1.0, 5e-324, 1e101, INFINITY, -INFINITY, NAN])
def test_a_clip_that_is_no_positive_number_is_refused(clip):
    """Clips that are zero, negative, infinite or not a number are refused, and so are extreme ones."""
    enrolling = Enrolling(clip_range=(5e-324, 1e300))
    encoded = raw_charter(enrolling.charter(), clip=struct.pack("<d", clip))
    enrolling.refuses(encoded, f"the clip is (not a number|{re.escape(str(clip))};)")


@pytest.mark.parametrize(
    ("modulus", "cohort", "weight_cap"),
    [(2**32, 2**20, 2**16), (2**32, 65_538, 65_535), (2**16, 256, 256), (2**64, 1, 1), (2**32, 2**63, 2**63)],
)
def test_a_quantiser_that_could_wrap_around_is_refused(modulus, cohort, weight_cap):
    """Cohort bound times largest weight must leave room for two levels below q; the largest that does is taken."""
    enrolling = Enrolling(largest_cohort=2**63, largest_weight_cap=2**63)
    fields = {"modulus": modulus % 2**64, "cohort": cohort, "weight_cap": weight_cap, "levels": 1}
    enrolling.refuses(raw_charter(enrolling.charter(), **fields), "leave no level for a value|the modulus is")
    largest = quantiser(cohort=65_537, weight_cap=65_535)
    assert largest.levels == 2
    enrolling.found(enrolling.charter(quantiser=largest))


def test_members_above_the_cohort_bound_are_refused():
    """A batch of more members than the cohort bound is refused: its own sum could wrap around."""
    enrolling = Enrolling()
    small = enrolling.charter(quantiser=quantiser(cohort=3))
    enrolling.refuses(small, "4 members; its cohort bound is 3")
    enrolling.found(enrolling.charter(quantiser=quantiser(cohort=4)))


def test_members_above_the_devices_bound_are_refused():
    """A batch of more members than the device's own bound is refused before anybody is looked up."""
    asked = []
    enrolling = Enrolling(verify_member=lambda user, _: asked.append(user) is None, largest_batch=3)
    refused(
        enrolling.client, encode(Draft(enrolling.charter().encode())), "4 members; this device takes 3 at most"
    )
    assert asked == []


@pytest.mark.parametrize(
    "setting",
    [
        {"examples": [3]},
        {"time_budget": 10},
        {"users": {"me": 2}},
        {"clip": 1},
        {"epochs": {"me": 2}},
        {"schedule": [[0, {"examples": 3}]]},
        {"model": {"loss": {"time_budget": 1}}},
    ],
)
def test_a_recipe_that_the_owner_does_not_allow_is_refused(setting):
    """A choice of examples, a time budget and settings by user stand in no recipe, at no depth."""
    enrolling = Enrolling()
    enrolling.refuses(enrolling.charter(recipe=write_recipe(setting)), "training configuration sets '")
    allowed = {"epochs": 2, "learning_rate": 0.1, "schedule": [[10, 0.5]], "model": {"dropout": False}}
    enrolling.found(enrolling.charter(recipe=write_recipe(allowed)))


@pytest.mark.parametrize(
    "recipe",
    [
        b"",
        b"{} ",
        b"[]",
        b"null",
        b'{"epochs":1,"epochs":2}',
        b'{"epochs": 1}',
        b'{"seed":1,"epochs":2}',
        b'{"learning_rate":NaN}',
        b'{"learning_rate":Infinity}',
        b'{"learning_rate":1e999}',
        b'{"learning_rate":1e-1}',
        b'{"seed":' + b"9" * 5000 + b"}",
        b'{"loss":"\\ud800"}',
        b'{"loss":"\\u0061"}',
        b"\xef\xbb\xbf{}",
        "{}".encode("utf-16"),
        b"\xff",
        b'{"schedule":' + b"[" * 30_000 + b"]" * 30_000 + b"}",
    ],
    ids=lambda recipe: recipe[:30].hex(),
)
def test_a_recipe_that_is_not_canonical_is_refused(recipe):
    """A recipe is a JSON object in its one form: what two devices could read in two ways is refused."""
    enrolling = Enrolling()
    enrolling.refuses(raw_charter(enrolling.charter(), recipe=recipe), "recipe .* (canonical form|as JSON)")


# --- in a later charter ------------------------------------------------------------------------------------


def sealed_once():
    """A device that has sealed a round, and has enrolled for its next charter."""
    enrolling = Enrolling()
    enrolling.seal(enrolling.found(enrolling.charter()))
    enrolling.enrol()
    return enrolling


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"clip": 1.5}, "clip 1.5 in place of 1.0"),
        ({"weight_cap": 2}, "weight cap 2 in place of 1"),
        ({"cohort": 61}, "cohort 61 in place of 60"),
        ({"ring": RING_16}, r"ring Ring\(modulus=65536\) in place of"),
    ],
)
def test_a_successor_with_another_quantiser_is_refused(changes, reason):
    """Having sealed, a device takes no other quantiser, not even with all its members and more."""
    enrolling = sealed_once()
    enrolling.refuses(enrolling.charter(quantiser=quantiser(**changes)), f"changes the quantiser .*: {reason}")
    newcomers = enrolling.newcomers(4)
    grown = enrolling.charter(newcomers, quantiser=quantiser(**changes))
    enrolling.refuses(grown, "changes the quantiser that this device sealed under")


@pytest.mark.parametrize("recipe", [{"epochs": 2}, {"learning_rate": 0.2}])
def test_a_successor_with_another_recipe_is_refused(recipe):
    """Having sealed, a device takes no other recipe."""
    enrolling = sealed_once()
    enrolling.refuses(enrolling.charter(recipe=write_recipe(recipe)), "changes the recipe .* in place of b'{}'")
