"""The page of an audit says what the verdict proves, and never more."""

import re
from fractions import Fraction
from html import unescape
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.leakage import Combination, Question, examine, measure
from coterie.leakage.wording import user_name
from coterie.pages.audit import advice_blocks, audit_page, strong_steps, weak_steps
from coterie.values import BatchPlan, LogBuilder, ParticipationLog
from coterie.values.text import display_name
from support.leakage.verdicts import HOSTILE, TRIANGLE, batch_log, examined, random_log, split_log, verdicts
from support.pages import charts_of


@pytest.fixture(scope="module")
def cases():
    """A verdict of each kind."""
    return verdicts()


def page_of(verdict):
    """The page of a verdict."""
    return audit_page(verdict, date="2026-01-31 12:00 UTC")


def answer(verdict):
    """What the page says first, and its tone."""
    return " ".join((verdict.words.headline, *verdict.words.sentences)), verdict.words.tone


def text_of(html):
    """What a reader sees: the words of the page, without scripts."""
    body = re.sub(r"<script.*?</script>", " ", html[html.index("<main") : html.index("</main>")], flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


def tile(verdict, label):
    """One key number: its value and its tone."""
    (figure,) = [each for each in (*verdict.words.figures, *verdict.words.further_numbers) if each.label == label]
    return figure.value, figure.tone


def rows_of(html, caption):
    """The rows of the table with a caption, as text."""
    table = html[html.index(f">{caption}<") :]
    table = table[table.index("<tbody>") : table.index("</tbody>")]
    cells = re.compile(r"<t[hd][^>]*>(.*?)</t[hd]>", re.DOTALL)
    return [[unescape(cell) for cell in cells.findall(row)] for row in table.split("</tr>")[:-1]]


def integer(text):
    """A factor as a page writes it."""
    return int(text.replace("\u2009", "").replace("−", "-"))


@pytest.mark.parametrize("name", ["exposed", "everyone", "breached"])
def test_whoever_adds_up_the_factors_on_the_page_finds_one_user(cases, name):
    """Read from the page and added by hand, each proof is its user's update, computable in the round it names."""
    verdict = cases[name]
    log, html = verdict.log, page_of(verdict)
    summaries = re.findall(r"Proof (\d+): (.*?), isolated since round (\d+) by \d+ sums?", html)
    assert len(summaries) == min(len(verdict.isolated), 20)
    sums = {round_: users.tolist() for round_, users in log.sets()}
    for place, who, since in summaries:
        totals = dict.fromkeys(range(log.users), Fraction(0))
        start = html.index(f"Proof {place}: {who}")
        divisor = re.search(r"divide by ([\d\u2009]+)|add all up\.", html[start:])[1]
        rows = rows_of(html, f"Proof {place}: the sums, and the factor of each.")
        for round_, users, factor, *_ in rows:
            assert int(users) == len(sums[int(round_)])
            for user in sums[int(round_)]:
                totals[user] += Fraction(integer(factor), integer(divisor) if divisor else 1)
        assert {user_name(log, user): total for user, total in totals.items() if total} == {who: 1}
        assert max(int(round_) for round_, *_ in rows) == int(since)


def test_a_short_proof_names_the_users_of_each_sum():
    """Three pairs of three users are told with names, and with the number to divide by."""
    html = page_of(examined(TRIANGLE))
    assert "divide by 2" in html
    rows = rows_of(html, "Proof 1: the sums, and the factor of each.")
    assert rows == [
        ["0", "2", "1", "ann, bob"],
        ["1", "2", "−1", "bob, cem"],
        ["2", "2", "1", "ann, cem"],
    ]


def test_sums_of_one_round_are_told_apart():
    """Where a round has several sums, the proof counts them."""
    builder = LogBuilder(3)
    builder.append([0, 1, 2], [1, 2])
    html = page_of(examined(builder.build()))
    rows = rows_of(html, "Proof 1: the sums, and the factor of each.")
    assert [(row[0], row[2]) for row in rows] == [("0, sum 1", "1"), ("0, sum 2", "−1")]


def test_isolated_users_come_first_and_are_a_warning(cases):
    """The answer counts them; a required level that is not met is named with the level that there is."""
    said, tone = answer(cases["exposed"])
    count = len(cases["exposed"].isolated)
    assert 0 < count < 40
    assert f"the update of {count} of 40 users, each alone" in said
    assert "in the worst case" in said
    assert "The strong level is 1; 4 was required." in said
    assert tone == "warning"
    assert tile(cases["exposed"], "Isolated users") == (f"{count} of 40", "warning")
    assert "all 40 users" in answer(cases["everyone"])[0]


def test_proofs_that_are_not_laid_open_are_told(cases):
    """Beyond twenty, the rank stands for a combination, and the command that writes all of them is named."""
    text = text_of(page_of(cases["everyone"]))
    assert "20 more proofs are not laid open here" in text
    assert "coterie audit log.csv --json --all-combinations" in text
    assert "the first 40 sums have full rank" in text
    assert f"modulo the prime {cases['everyone'].isolated[-1].proof.prime}" in text


def test_a_combination_too_long_for_a_page_is_left_to_programs():
    """Numbers of very many digits are not in the page, which says where they are."""
    verdict = examined(random_log(users=260, per_round=60, rounds=280), Question(combinations=2))
    longest = max(
        sum(len(str(weight)) for weight in found.proof.numerators)
        for found in verdict.isolated
        if isinstance(found.proof, Combination)
    )
    assert longest > 20_000
    html = page_of(verdict)
    assert "Proof 1" not in html
    assert "260 more proofs are not laid open here" in text_of(html)


def test_one_number_is_shown_only_where_it_is_proven(cases):
    """An exact weak level is one number, a bracket is lo..hi, and with unknown rounds it begins at 1."""
    exact, bracket, unknown = cases["alone"], cases["bracket"], cases["unknown"]
    assert tile(exact, "Weak privacy level")[0] == str(exact.weak.high)
    assert not bracket.weak.exact
    assert tile(bracket, "Weak privacy level")[0] == f"{bracket.weak.low}..{bracket.weak.high}"
    assert "was not decided in the time given" in text_of(page_of(bracket))
    assert "coterie audit log.csv --budget 600" in page_of(bracket)
    assert tile(unknown, "Weak privacy level")[0] == f"1..{unknown.weak.high}"
    assert ", exactly" not in text_of(page_of(unknown))


def test_a_user_told_apart_is_not_called_isolated(cases):
    """A strong level of one without isolation says that no update can be computed alone."""
    said, tone = answer(cases["apart"])
    assert "nobody's update alone, for every combination covers 3 users or more" in said
    assert "a weight that no other user has" in said
    assert tone == "warning"
    assert "Treat as disclosed" not in page_of(cases["apart"])


def test_a_kept_plan_is_good_news():
    """Whole batches: the level is proven, met, stays, and no user is exposed."""
    log, plan = batch_log()
    verdict = examined(log, Question(required=6), plan=plan)
    said, tone = answer(verdict)
    assert said.startswith("The required level of 6 is met: users hide in groups of at least 6.")
    assert tone == "good"
    text = text_of(page_of(verdict))
    assert "Batches took part whole or not at all, as the plan says." in text
    assert "As long as rounds take whole batches, the strong level stays at least 6" in text
    assert "coterie audit log.csv --require 6" in text
    assert "coterie plan " not in text


def test_breaches_name_round_batch_and_who_was_missing(cases):
    """The table is the verdict's breaches; the seal is advised."""
    verdict = cases["breached"]
    html = page_of(verdict)
    rows = rows_of(html, "Every sum that held part of a batch.")
    assert [(int(row[0]), int(row[1])) for row in rows] == [(b.round, b.batch) for b in verdict.breaches]
    for row, breach in zip(rows, verdict.breaches, strict=True):
        assert row[3] == ", ".join(f"user {user}" for user in breach.present)
        assert row[2] == ", ".join(f"user {user}" for user in breach.missing)
    assert {breach.round for breach in verdict.breaches} == {9, 21}
    assert "Require the seal" in html


def test_users_of_no_batch_are_named():
    """Someone outside the plan who took part is a breach of its own, and has a row in the picture."""
    log = ParticipationLog.from_dense([[1, 1, 0], [1, 1, 1]], names=["ann", "bob", "eve"])
    plan = BatchPlan.from_batches(2, 2, [[0, 1]], names=["ann", "bob"])
    verdict = examined(log, plan=plan, plan_numbers=np.array([0, 1, -1]))
    html = page_of(verdict)
    assert rows_of(html, "Every sum that held part of a batch.") == [["1", "none", "–", "eve"]]
    picture = charts_of(html)["Users and rounds"]
    assert picture["rows"] == ["ann (user 0), batch 0", "bob (user 1), batch 0", "eve (user 2)"]
    assert picture["share"] == [[1, 1], [1, 1], [0, 1]]


def test_unknown_rounds_leave_the_level_unproven(cases):
    """No level is claimed: the page says so first, users count as alone, and what is certain is dated."""
    verdict = cases["unknown"]
    text = text_of(page_of(verdict))
    assert tile(verdict, "Strong privacy level T") == ("1", "warning")
    assert tile(verdict, "Isolated users") == ("0 to 60", "warning")
    assert "3 rounds: 11 to 12, 30." in text
    assert "The strong level was 6 before round 11, for certain." in text
    assert "coterie ledger verify log.csv" in text
    assert "is met" not in text


def test_a_plain_run_promises_nothing(cases):
    """Everyone who took part is on the page as exposed, each with the round that showed the update."""
    verdict = cases["plain"]
    html = page_of(verdict)
    rows = rows_of(html, "Isolated users, in the order in which they became so.")
    assert len(rows) == len(verdict.classes.participants)
    assert all(row[2] == "one sum is this user's update" for row in rows)
    assert "nobody's update" not in text_of(html)
    assert "Encrypt the aggregation" in html


def test_colluders_and_windows_are_told(cases):
    """So many colluders leave T − c, which the requirement is held against; the worst window is placed."""
    verdict = cases["batches"]
    assert tile(verdict, "Strong with 2 colluders")[0] == "4"
    assert tile(verdict, "Within 10 rounds")[0] == str(verdict.window.level)
    assert "Strong: 4. Weak: 4." in dict(verdict.words.explanations)["With 2 colluders"]
    said, _ = answer(verdict)
    assert f"strong level of {verdict.window.level} at worst" in said
    assert "The strong level is 4, 2 colluders counted in; 6 was required." in said
    assert "groups of 8 users or more" in text_of(page_of(verdict))


def test_named_colluders_are_said_to_be_taken_out():
    """Their names stand at the foot, and checking by hand begins without them."""
    text = text_of(page_of(examined(TRIANGLE, Question(named_colluders=(3,)))))
    assert "What 1 named colluder told the server is counted in" in text
    assert "Named colluders dan" in text
    assert "Leave the named colluders out of every sum" in text


def test_a_window_that_was_not_finished_is_an_upper_bound():
    """If not all windows were looked at, the level is at most what was seen."""
    calls = iter(range(1000))
    log, _ = batch_log()
    verdict = examine(
        log,
        Question(window=3),
        rng=np.random.default_rng(0),
        time_left=lambda: 0.0,
        should_stop=lambda: next(calls) > 60,
    )
    assert not verdict.window.complete
    assert tile(verdict, "Within 3 rounds")[0] == f"≤{verdict.window.level}"
    assert "Left out: some windows (the work was stopped before its end)." in answer(verdict)[0]


def test_a_stopped_audit_claims_nobody():
    """Stopped before the elimination ended, isolation is not decided, and nothing says that nobody is isolated."""
    verdict = examine(
        random_log(rounds=60), rng=np.random.default_rng(0), time_left=lambda: 0.0, should_stop=lambda: True
    )
    assert not verdict.isolation_known
    assert tile(verdict, "Isolated users") == ("unknown", "warning")
    text = text_of(page_of(verdict))
    assert "not decided" in text
    assert "Nobody." not in text
    assert "Decide who is isolated" in text


def test_an_empty_log_has_a_page(cases):
    """No sums: nothing given away, no plots, and not told as good news."""
    html = page_of(cases["empty"])
    said, tone = answer(cases["empty"])
    assert said == "The required level of 3 is met: no sum is on record, so the log gives nothing away."
    assert tone == "plain"
    assert charts_of(html) == {}
    assert tile(cases["empty"], "Strong privacy level T")[0] == "–"
    assert "Is it the right file" in text_of(html)
    assert "nothing away" in answer(examined(LogBuilder(0).build()))[0]


def test_where_it_comes_from_and_what_it_rests_on(cases):
    """The foot names the log, its digest and every assumption of the verdict."""
    text = text_of(page_of(cases["batches"]))
    assert "log.csv" in text
    assert "0f" * 32 in text
    assert "2026-01-31 12:00 UTC" in text
    for assumption in cases["batches"].words.assumptions:
        assert assumption in text
    assert "not differential privacy" in text


def test_hostile_names_are_only_text(cases):
    """Markup in a name is escaped, what turns text round is written out, and a long name is cut."""
    html = page_of(cases["hostile"])
    shown = [display_name(name) for name in HOSTILE]
    assert all(name in text_of(html.replace("&lt;", "‹")) or "<" in name for name in shown)
    assert "<img" not in html[html.index("<main") :].split("</main>")[0]
    assert "<b>bea" not in html
    assert "&lt;b&gt;bea&lt;/b&gt;" in html
    assert "\u202e" not in html
    assert "turned\\u202eround\\nand\\x1b[31m on" in html
    assert "n" * 41 not in html.split("<main")[1].split("</main>")[0]
    ids = re.findall(r' id="([^"]*)"', html)
    assert len(ids) == len(set(ids))


def test_a_huge_log_keeps_its_page_small():
    """Thousands of users and rounds, and hundreds of isolated users, add less than two megabytes."""
    small = len(page_of(examined(TRIANGLE)))
    batches, plan = batch_log(3000, 150, 10, 800)
    many = examined(random_log(users=300, per_round=4, rounds=700), seconds=0.01)
    assert len(many.isolated) > 250
    for verdict in (examined(batches, plan=plan), many):
        assert len(page_of(verdict)) - small < 2_000_000


def test_a_log_may_claim_any_number_of_users_and_rounds():
    """Users who never took part and rounds far apart cost nothing and have no row in the picture."""
    log = ParticipationLog(
        users=10**9, rounds=10**12, set_rounds=[3, 10**12 - 1], starts=[0, 2, 4], members=[5, 7, 7, 10**8], first=0
    )
    html = page_of(examined(log, Question(users=10**9 + 1)))
    assert "too many for a picture" in html
    near = ParticipationLog(users=10**9, rounds=2, set_rounds=[0, 1], starts=[0, 2, 4], members=[5, 7, 7, 10**8])
    picture = charts_of(page_of(examined(near)))["Users and rounds"]
    assert picture["rows"] == ["user 5", "user 7", "user 100000000"]


def test_without_a_plan_users_of_one_group_stand_together():
    """Equal columns are neighbours in the picture."""
    log, _ = batch_log(rounds=15)
    rows = charts_of(page_of(examined(log)))["Users and rounds"]["share"]
    changes = sum(one != other for one, other in pairwise(rows))
    assert changes == len({tuple(row) for row in rows}) - 1


@st.composite
def logs(draw):
    """A small log with at least one sum, rounds without a result, and several sums in a round."""
    users = draw(st.integers(1, 6))
    sets = st.lists(st.sets(st.integers(0, users - 1), min_size=1), max_size=2)
    builder = LogBuilder(users, first=draw(st.integers(0, 3)))
    for round_ in [*draw(st.lists(sets, max_size=5)), [{0}] if draw(st.booleans()) else [set(range(users))]]:
        builder.append(*map(sorted, round_))
    return builder.build()


def after(steps, round_):
    """The value of a step curve after a round."""
    return next(level for start, level in reversed(steps) if start <= round_)


@settings(max_examples=30, deadline=None)
@given(logs())
def test_the_curves_hold_after_every_round(log):
    """The strong curve is the level of every prefix of the log; the weak one is never below the exact level."""
    verdict = examined(log)
    strong, weak = strong_steps(verdict), weak_steps(verdict)
    levels = measure(log).strong
    for round_ in range(int(log.set_rounds[0]), log.first + log.rounds):
        assert after(strong, round_) == levels[round_ - log.first]
        exact = examined(log.window(log.first, round_ + 1)).weak
        assert exact.exact
        assert after(weak, round_) >= exact.high
        assert max(after(strong, round_), verdict.weak.low) <= exact.high
    assert weak[-1][1] == verdict.weak.high


def test_what_to_do_follows_from_the_verdict(cases):
    """Each kind of finding has its own advice, and a log that fell is not said to be worth watching."""
    commands = {
        name: [command for command, _ in advice_blocks(verdict)[1].commands] for name, verdict in cases.items()
    }
    steps = {name: [step for step, _ in advice_blocks(verdict)[0].points] for name, verdict in cases.items()}
    assert commands["exposed"][0].startswith("coterie plan --per-round 12 --privacy 4 ")
    assert "coterie audit LATER --plan plan.json --require 4" in commands["exposed"]
    assert steps["exposed"][:2] == ["Treat as disclosed", "Choose whole batches"]
    assert "Stop in time" in steps["alone"]
    assert steps["breached"][1:] == ["Require the seal", "Retire what was split"]
    assert steps["unknown"][0] == "Settle the unknown rounds"
    log, plan = split_log()
    kept = examined(log.window(0, 9), plan=plan)
    assert [step for step, _ in advice_blocks(kept)[0].points] == ["Keep groups whole"]
