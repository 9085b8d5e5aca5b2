"""The picture of who took part when is exact, whatever its bins."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coterie.pages.blocks import participation
from coterie.selection import shuffled
from coterie.values import BatchPlan, LogBuilder, ParticipationLog


@st.composite
def logs(draw):
    """A log of some users, with rounds of no, one or several sets, and a plan or none."""
    users = draw(st.integers(1, 12))
    sets = st.lists(st.sets(st.integers(0, users - 1), min_size=1), max_size=3)
    builder = LogBuilder(users, first=draw(st.integers(0, 3)))
    for round_ in draw(st.lists(sets, min_size=1, max_size=9)):
        builder.append(*map(sorted, round_))
    batched = draw(st.permutations(range(users)))[: draw(st.integers(0, users))]
    cut = draw(st.integers(0, len(batched)))
    batches = [batch for batch in (batched[:cut], batched[cut:]) if batch]
    plan = draw(st.sampled_from([None, BatchPlan.from_batches(users, 1, batches)]))
    return builder.build(), plan


@given(logs(), st.integers(1, 5), st.integers(1, 5))
def test_a_cell_is_the_share_of_its_users_and_rounds(case, rows, columns):
    """Each cell equals a count over its users and rounds one by one; every user and round is in one cell."""
    log, plan = case
    picture = participation(log, None if plan is None else plan.batch_of, rows, columns)
    took_part = {(round_ - log.first, user) for round_, members in log.sets() for user in members.tolist()}
    assert picture.share.shape[0] <= rows
    assert picture.share.shape[1] <= columns
    assert sorted(picture.order.tolist()) == list(range(log.users))
    assert picture.column_starts[[0, -1]].tolist() == [0, log.rounds]
    for row, shares in enumerate(picture.share):
        users = picture.users(row).tolist()
        for column, share in enumerate(shares):
            span = range(picture.column_starts[column], picture.column_starts[column + 1])
            count = sum((round_, user) in took_part for round_ in span for user in users)
            assert share == count / (len(users) * len(span))
    assert picture.times.tolist() == [sum(who == user for _, who in took_part) for user in range(log.users)]


def test_many_users_are_binned_by_whole_batches():
    """With thousands of users the picture stays small, and no batch is in two rows."""
    plan = shuffled(5000, 7, np.random.default_rng(1))
    log = ParticipationLog.from_dense(np.random.default_rng(2).random((900, 5000)) < 0.01)
    picture = participation(log, plan.batch_of)
    assert picture.share.shape == (240, 300)
    assert picture.binned
    row_of = np.repeat(np.arange(240), np.diff(picture.row_starts))
    batches = plan.batch_of[picture.order]
    assert all(len(set(row_of[batches == batch])) == 1 for batch in range(len(plan)))
    sizes = np.outer(np.diff(picture.row_starts), np.diff(picture.column_starts))
    assert np.isclose((picture.share * sizes).sum(), len(log.members))


def test_few_users_have_a_row_each_in_the_order_of_their_batches():
    """Users of a batch stand together, those of none come last."""
    plan = BatchPlan.from_batches(5, 2, [[4, 1], [0, 3]])
    picture = participation(ParticipationLog.from_dense([[0, 1, 0, 0, 1]]), plan.batch_of)
    assert picture.order.tolist() == [1, 4, 0, 3, 2]
    assert picture.share.tolist() == [[1], [1], [0], [0], [0]]
    assert not picture.binned
