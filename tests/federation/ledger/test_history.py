"""The rules of history, and which plans may follow."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import BatchPlan, LogBuilder, UsageError
from coterie.federation.ledger import events
from coterie.federation.ledger.events import Lists, decode
from coterie.federation.ledger.history import FREE, History, check_successor
from coterie.leakage import strong_level
from support.ledgers import bodies

NONE = Lists.of([])
CREATED = events.Created(2, "x")
NOBODY = np.zeros(0, dtype=np.int64)
ENROLLED = events.Enrolled(tuple("abcdef"), (None,) * 6)
PLANNED = events.Planned(6, 2, Lists.of([np.array([0, 1]), np.array([2, 3]), np.array([4, 5])]))


def history_of(*events_):
    history = History()
    for event in (CREATED, ENROLLED, *events_):
        history.apply(event, 0)
    return history


def opened(round_, asked, plan=1, *, sealed=True):
    return events.Opened(round_, plan, sealed, "open", "", "me", np.array(asked, dtype=np.int64))


def closed(round_, *places, whole=True, reason="", alone=(), reasons=(), lost=NONE):
    return events.Closed(
        round=round_,
        committed=not reason,
        reason=reason,
        whole=whole,
        learned=Lists.of([np.array(each) for each in places]),
        alone=np.array(alone, dtype=np.int64),
        reasons=list(reasons),
        lost=lost,
        metrics={},
        files={},
    )


def chartered(plan, *batches):
    return events.Chartered(plan, np.array(batches, dtype=np.int64), [b""] * len(batches))


@pytest.mark.parametrize(
    ("before", "event", "message"),
    [
        ([], CREATED, "has only one"),
        ([], opened(0, [0]), "the cohort of round 0 is of plan 1; plan 0 is in force"),
        ([], opened(1, [0], plan=0, sealed=False), "round 1 cannot be opened: the next round is 0"),
        ([], opened(0, [0], plan=0), "cannot be sealed"),
        ([], opened(0, [], plan=0, sealed=False), "is empty; there are 6 users"),
        ([], opened(0, [6], plan=0, sealed=False), "has the number 6; there are 6 users"),
        ([PLANNED], opened(0, [0], plan=0, sealed=False), "is not of batches; plan 1 is in force"),
        ([PLANNED], opened(0, [3]), "has the number 3; there are 3 batches"),
        ([PLANNED, opened(0, [0])], opened(1, [0]), "round 0 is still open"),
        ([PLANNED, opened(0, [0])], events.Skipped(1, ""), "round 0 is still open"),
        ([PLANNED, opened(0, [0])], PLANNED, "round 0 is open; a plan changes between rounds"),
        ([PLANNED, opened(0, [0])], closed(1), "round 1 cannot be closed: round 0 is open"),
        ([PLANNED], closed(0), "round 0 cannot be closed: no round is open"),
        ([PLANNED], closed(0, reason="x"), "cannot be closed: no round is open"),
        ([PLANNED], events.Unfinished(0, ""), "cannot be left unfinished: no round is open"),
        ([PLANNED, opened(0, [0]), closed(0)], closed(0), "no round is open"),
        ([PLANNED, opened(0, [0])], closed(0, [1]), "names a user who was not asked"),
        ([PLANNED, opened(0, [0])], closed(0, [0, 1], whole=False), "name them by batch"),
        ([PLANNED, opened(0, [0])], closed(0, [2], whole=False), "names a user who was not asked"),
        (
            [PLANNED, opened(0, [0])],
            closed(0, reasons=["x"]),
            "1 reasons are given for 0 losses",
        ),
        (
            [PLANNED, opened(0, [0])],
            closed(0, reasons=["x"], lost=Lists.of([np.array([1])])),
            "what is named as lost was not asked",
        ),
        (
            [PLANNED, opened(0, [0])],
            closed(0, reasons=["x", "y"], lost=Lists.of([np.array([0])] * 2)),
            "lost for two reasons",
        ),
        ([PLANNED, opened(0, [0])], closed(0, [0], alone=[2]), "a user is named as alone who was not asked"),
        ([], events.Noted(0, {}, {}), "round 0 is not known"),
        ([], events.Exposed(0, NONE, np.array([1])), "round 0 is not known"),
        ([PLANNED, opened(0, [0])], events.Exposed(0, NONE, np.array([1])), "round 0 is still open"),
        ([events.Skipped(0, "")], events.Exposed(0, NONE, NOBODY), "names nobody"),
        ([events.Skipped(0, "")], events.Exposed(0, NONE, np.array([6])), "not enrolled"),
        ([PLANNED], chartered(2, 0), "plan 1 is in force"),
        ([PLANNED], chartered(1), "0 batches of plan 1"),
        ([PLANNED], chartered(1, 3), "batch 3 cannot be chartered: the plan has 3 batches"),
        ([PLANNED], events.Retired(2, np.array([0]), ""), "plan 1 is in force"),
        ([PLANNED], events.Retired(1, np.array([3]), ""), "batch 3 cannot be retired"),
        ([PLANNED], events.Overridden(1, np.array([3]), ""), "batch 3 cannot be overridden"),
        ([PLANNED, events.Retired(1, np.array([0]), "")], opened(0, [0, 1]), "asks a batch that was retired"),
        ([events.Bound({"a": "ab" * 32})], events.Bound({"a": "cd" * 32}), "'a' is bound already"),
        ([], events.Bound({}), "no file is named"),
        ([], events.Planned(7, 2, PLANNED.batches), "for 7 users"),
        ([PLANNED], events.Planned(4, 2, Lists.of([np.array([0, 1])])), "at least the 6 of the plan before"),
        ([], events.Planned(6, 3, PLANNED.batches), "a batch has 2 users"),
    ],
)
def test_an_event_that_breaks_a_rule_is_refused_and_changes_nothing(before, event, message):
    """The message says which rule; the next event finds the state as it was."""
    history = history_of(*before)
    state = repr(sorted(vars(history).items(), key=str))
    with pytest.raises(UsageError, match=message):
        history.apply(event, 0)
    assert repr(sorted(vars(history).items(), key=str)) == state


def test_a_history_begins_with_its_creation_and_a_version_it_knows():
    """Nothing comes before the creation, and records of another version are not guessed at."""
    with pytest.raises(UsageError, match="begins with its creation"):
        History().apply(ENROLLED, 0)
    with pytest.raises(UsageError, match="the records have the version 1"):
        History().apply(events.Created(1, "x"), 0)


def test_learned_sets_that_overlap_count_once_per_round():
    """A user in two learned sets of one round took part once."""
    history = history_of(opened(0, [0, 1, 2], plan=0, sealed=False), closed(0, [0, 1], [1, 2]))
    assert history.counts.tolist() == [1, 1, 1, 0, 0, 0]


def test_any_events_in_any_order_are_taken_or_refused():
    """Every pair of the example events after any start raises a UsageError at most."""
    examples = [decode(kind, body) for kind, body in bodies()]
    for one, two in product(examples, repeat=2):
        history = history_of(PLANNED)
        for event in (one, two):
            try:
                history.apply(event, 0)
            except UsageError:
                continue


def _groupings(users):
    return st.lists(st.integers(-1, 2), min_size=users, max_size=users)


def _plan(groups, privacy):
    batches = [[user for user, group in enumerate(groups) if group == each] for each in range(3)]
    batches = [batch for batch in batches if batch]
    if any(len(batch) < privacy for batch in batches):
        return None
    return BatchPlan.from_batches(len(groups), privacy, batches)


@settings(deadline=None, max_examples=300)
@given(_groupings(7), _groupings(9), st.integers(1, 3), st.integers(1, 3), st.sets(st.integers(0, 2)))
def test_a_plan_may_follow_exactly_if_no_batch_that_took_part_is_split(old, new, privacy, later, asked):
    """The rule by brute force over users and batches; nine users, two of whom come after the first plan."""
    before, plan = _plan(old, privacy), _plan(new, later)
    if before is None or plan is None:
        return
    bound = np.full(9, FREE, dtype=np.int64)
    used = [set(before.batch(batch).tolist()) for batch in asked if batch < len(before)]
    for batch in used:
        bound[list(batch)] = min(batch)
    news = [set(plan.batch(batch).tolist()) for batch in range(len(plan))]
    whole = all(any(batch <= each for each in news) or not any(batch & each for each in news) for batch in used)
    everyone = set().union(*used)
    parts = [each & batch for each in news for batch in used] + [each - everyone for each in news]
    allowed = whole and all(len(part) >= later for part in parts if part)
    nobody_retired = np.zeros(9, dtype=np.bool_)
    if allowed:
        check_successor(plan, before, bound, nobody_retired)
        _check_level(used, plan, min(privacy, later))
    else:
        with pytest.raises(UsageError, match=r"splits batch|who never took part|takes over a batch"):
            check_successor(plan, before, bound, nobody_retired)


def _check_level(used, plan, least):
    """Whatever batches of both plans take part, no sum of fewer than the smaller T users can be combined."""
    builder = LogBuilder(9)
    for batch in used:
        builder.append(sorted(batch))
    for batch in range(len(plan)):
        builder.append(np.sort(plan.batch(batch)))
    if used or len(plan):
        assert strong_level(builder.build()) >= least


def test_a_retired_batch_never_comes_back():
    """Not even whole: whoever left it left for good."""
    history = history_of(PLANNED, opened(0, [0]), closed(0, [0]))
    history.apply(events.Planned(6, 2, Lists.of([np.array([2, 3]), np.array([4, 5])])), 0)
    with pytest.raises(UsageError, match="brings user 0 back, whose batch was retired"):
        history.apply(PLANNED, 0)


def test_metrics_that_are_not_numbers_are_kept():
    """A loss that diverged is a fact like another."""
    history = history_of(events.Skipped(0, ""))
    assert history.apply(events.Noted(0, {"loss": math.nan}, {}), 0) is None


def test_a_batch_that_was_retired_stays_away_however_the_plan_changes():
    """It may stay listed as it is; it is never asked, merged or brought back."""
    history = history_of(PLANNED, opened(0, [0]), closed(0, [0]), events.Retired(1, np.array([0]), "why"))
    assert history.retired.tolist() == [True, False, False]
    history.apply(PLANNED, 0)
    assert history.retired.tolist() == [True, False, False]
    merged = events.Planned(6, 2, Lists.of([np.arange(4), np.array([4, 5])]))
    with pytest.raises(UsageError, match="brings user 0 back, whose batch was retired"):
        history.apply(merged, 0)


def test_an_override_permits_a_plan_that_splits_its_batches_and_no_other():
    """Batches whose owners all agreed may be split, in groups of T; the others stay whole, and charters go."""
    story = (PLANNED, chartered(1, 0, 1, 2), opened(0, [0, 1, 2]), closed(0, [0, 1, 2]))
    split = events.Planned(6, 2, Lists.of([np.array([0, 2]), np.array([1, 3]), np.array([4, 5])]))
    with pytest.raises(UsageError, match="splits batch 0"):
        history_of(*story, events.Overridden(1, np.array([1]), "")).apply(split, 0)
    history = history_of(*story, events.Overridden(1, np.array([0, 1]), ""))
    assert list(history.charters) == [2]
    history.apply(split, 0)
    third = events.Planned(6, 2, Lists.of([np.array([0, 2]), np.array([1, 4]), np.array([3, 5])]))
    with pytest.raises(UsageError, match="splits batch 2"):
        history.apply(third, 0)


def test_losses_in_a_row_are_counted_where_others_came_through():
    """A batch that answers begins anew; a round in which nobody came through is nobody's fault."""
    lost = {"reasons": ["gone"], "lost": Lists.of([np.array([0])])}
    everyone = {"reasons": ["gone"], "lost": Lists.of([np.arange(2)])}
    history = history_of(PLANNED)
    for round_, (more, failures) in enumerate(
        [(lost, [1, 0, 0]), (everyone, [1, 0, 0]), (lost, [2, 0, 0]), ({}, [0, 0, 0])]
    ):
        history.apply(opened(round_, [0, 1]), 0)
        history.apply(closed(round_, reason="x", **more), 0)
        assert history.failures.tolist() == failures


def test_what_was_open_to_the_server_and_lost_is_not_counted_as_included():
    """A batch with wrong check words is learned, for the log, and takes no part, for fairness."""
    lost = {"reasons": ["check"], "lost": Lists.of([np.array([1])])}
    history = history_of(PLANNED, opened(0, [0, 1]))
    round_ = history.apply(closed(0, [0], [1], **lost), 0)
    assert history.counts.tolist() == [1, 1, 0, 0, 0, 0]
    assert (round_.included.tolist(), [users.tolist() for users in round_.exposure]) == ([0, 1], [[0, 1], [2, 3]])
