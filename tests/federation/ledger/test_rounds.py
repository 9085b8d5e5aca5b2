"""What a round on record says about itself."""

import math

import pytest

from coterie.federation.ledger import PLAIN, Round, State


@pytest.mark.parametrize(
    ("protocol", "sealed", "text"),
    [
        ("open", True, "open, sealed"),
        ("secagg+", False, "secagg+, not sealed"),
        (PLAIN, False, "plain"),
        ("", False, ""),
    ],
)
def test_how_a_sum_was_taken_is_the_protocol_and_whether_it_was_sealed(protocol, sealed, text):
    """A plain round has no seal to speak of, and a skipped one no protocol."""
    each = Round(0, State.COMMITTED, 0, protocol=protocol, sealed=sealed)
    assert (each.aggregation, each.plain) == (text, protocol == PLAIN)


def test_a_metric_that_is_missing_or_not_finite_is_none():
    """What cannot be drawn is not there to be drawn."""
    each = Round(0, State.COMMITTED, 0, metrics={"loss": math.inf, "accuracy": 0.5})
    assert (each.metric("accuracy"), each.metric("loss"), each.metric("other")) == (0.5, None, None)
