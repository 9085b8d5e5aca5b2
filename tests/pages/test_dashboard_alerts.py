"""Alerts: each arises where something is to be done, with what to do, and none where all is well."""

import pytest

from coterie import BatchPlan
from coterie.federation.ledger import Ledger
from coterie.pages.dashboard import CLOSE, FRUITLESS, LedgerWatch, alerts
from support.ledgers import cohort_of, cohort_of_users

PLAN = BatchPlan.from_batches(8, 2, [[0, 1], [2, 3], [4, 5], [6, 7]])


@pytest.fixture
def ledger(tmp_path):
    """A ledger with eight users in four batches, in whose rounds anything can happen."""
    with Ledger.create(tmp_path) as ledger:
        ledger.enrol([f"user-{user}" for user in range(8)])
        ledger.publish_plan(PLAN)
        with ledger.claim():
            yield ledger


def alerted(ledger, required=None):
    """The alerts about a ledger, by their names, each with statement and remedy."""
    watch = LedgerWatch(ledger.place, required)
    found = alerts(watch.look())
    watch.close()
    assert all(alert.remedy for alert in found)
    return {alert.name: alert.statement for alert in found}


def whole_round(ledger, batches, lost=None, protocol="open", *, sealed=True):
    """A round of whole batches, some of which are lost."""
    number = ledger.open_round(cohort_of(PLAN, batches), sealed=sealed, protocol=protocol)
    ledger.commit_round(number, [PLAN.batch(each) for each in batches if each not in (lost or {})], lost)


def test_nothing_is_said_where_all_is_well(ledger):
    """Sealed rounds of whole batches give no alert, with the plan's level as what is required."""
    for _ in range(5):
        whole_round(ledger, [0, 1])
        whole_round(ledger, [2, 3])
    assert alerted(ledger) == {}


def test_a_round_s_point_counts_the_users_of_its_result(ledger):
    """A batch that was open to the server and lost is not in the result, and nobody counts twice."""
    number = ledger.open_round(cohort_of(PLAN, [0, 1, 2]), sealed=True, protocol="open")
    ledger.commit_round(number, [PLAN.batch(0), PLAN.batch(1), [0, 1, 2, 3], PLAN.batch(2)], {2: "check words"})
    watch = LedgerWatch(ledger.place)
    assert watch.look().columns["included"].tolist() == [4]
    watch.close()


def test_a_level_below_what_is_required_is_said(ledger):
    """The plan's T holds; a demand above it does not."""
    whole_round(ledger, [0, 1])
    assert "The privacy level is 2, below the 3 required." in alerted(ledger, required=3)["The level is too low"]


def test_a_level_that_will_fall_is_said_before_it_does(ledger):
    """Batches that came together so far hide in each other; what further rounds can do is said while it holds."""
    number = ledger.open_round(cohort_of(PLAN, [0, 1]), sealed=True, protocol="secagg+")
    ledger.commit_round(number, [range(4)])
    assert alerted(ledger, required=4)["The level will fall"].startswith("Further rounds can bring the level to 2")


def test_updates_in_the_clear_are_said(tmp_path):
    """Plain rounds show everybody."""
    with Ledger.create(tmp_path) as ledger:
        ledger.enrol(["ana", "bob"])
        with ledger.claim():
            number = ledger.open_round(cohort_of_users([0, 1]), sealed=False, protocol="plain")
            ledger.commit_round(number, [], alone=[0, 1])
        assert alerted(ledger).keys() == {"Updates in the clear"}


def test_random_selection_is_told_what_is_coming(tmp_path):
    """Users who come one by one are told that the level falls, while it still stands."""
    with Ledger.create(tmp_path) as ledger:
        ledger.enrol([f"user-{user}" for user in range(12)])
        with ledger.claim():
            for users in (range(6), range(6, 12)):
                number = ledger.open_round(cohort_of_users(users), sealed=False, protocol="secagg")
                ledger.commit_round(number, [list(users)])
        assert "further round" in alerted(ledger)["The level will fall"]


def test_a_batch_close_to_being_retired_is_named_with_who_keeps_it(ledger):
    """Half the losses that retire a batch are enough, and the device that was silent is named."""
    for count in range(CLOSE):
        assert "Close to being retired" not in alerted(ledger), count
        whole_round(ledger, [0, 1, 2], lost={1: "user-3 did not answer"})
    statement = alerted(ledger)["Close to being retired"]
    assert f"batch 1, lost in {CLOSE} rounds in a row (user-3 did not answer)" in statement


def test_retired_batches_and_too_few_of_them_are_said(ledger):
    """With one batch left no device would agree to a sum of secagg+."""
    whole_round(ledger, [0, 1], protocol="secagg+")
    ledger.retire([1, 2, 3], "lost in 10 rounds in a row")
    found = alerted(ledger)
    assert found["Retired batches"].startswith("3 of 4 batches")
    assert "Batches with 2 users are left, and a sum needs 4" in found["Too few batches left"]


def test_rounds_without_a_result_are_said(ledger):
    """From some rounds in a row on, with the reason of the last."""
    whole_round(ledger, [0, 1])
    for _ in range(FRUITLESS - 1):
        ledger.skip_round("the available users do not fill a cohort")
    assert "No results" not in alerted(ledger)
    ledger.skip_round("the available users do not fill a cohort")
    assert "the available users do not fill a cohort" in alerted(ledger)["No results"]


def test_overrides_waiting_users_and_cut_off_rounds_are_said(tmp_path):
    """Each is somebody's business."""
    with Ledger.create(tmp_path) as ledger:
        ledger.enrol([f"user-{user}" for user in range(9)])
        ledger.publish_plan(PLAN)
        ledger.override([3], "the owners want other batches")
        with ledger.claim():
            ledger.open_round(cohort_of(PLAN, [0, 1]), sealed=True, protocol="open")
        assert alerted(ledger).keys() == {"Overridden batches", "A round was cut off", "Waiting users"}
