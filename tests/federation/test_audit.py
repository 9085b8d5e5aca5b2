"""`coterie.audit`: one call from Python, without the command line."""

import hashlib
import json

import numpy as np
import pytest

import coterie
from coterie import BatchPlan, ParticipationLog, UsageError
from coterie.leakage import Evidence, Verdict
from coterie.leakage.readers import write_log
from coterie.selection.plan_file import write_plan
from support.cli.command import coterie as command
from support.leakage.verdicts import batch_log, random_log
from support.ledgers import NAMES, federation


@pytest.fixture
def named():
    """A log of whole batches under names, and its plan."""
    log, plan = batch_log(names=[f"ann-{user:02d}" for user in range(60)])
    return log, BatchPlan(plan.users, plan.privacy, plan.members, plan.starts, names=log.names)


def test_a_path_a_log_and_the_command_give_one_verdict(tmp_path, named):
    """The file, the log that was read from it and the command say the same."""
    log, plan = named
    path = tmp_path / "log.csv"
    write_log(log, path)
    write_plan(plan, tmp_path / "plan.json")
    options = {"users": 80, "colluders": ["ann-01"], "require": 5, "window": 4}
    by_path = coterie.audit(path, plan=tmp_path / "plan.json", **options)
    by_text = coterie.audit(str(path), plan=plan, **options)
    by_log = coterie.audit(log, plan=plan, **options)
    assert isinstance(by_path, Verdict)
    assert by_path.source.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    run = command("audit", path, "--plan", tmp_path / "plan.json", "--users", 80, "--colluders", "ann-01,",
                  "--require", 5, "--window", 4, "--json")  # fmt: skip
    printed = json.loads(run.stdout)
    assert printed.pop("version") == coterie.__version__
    assert printed == by_path.record() == by_text.record()
    assert by_log.record() == {**printed, "log_sha256": None}
    assert (by_path.users, by_path.strong, by_path.met) == (79, 5, True)


def test_a_ledger_and_its_folder_give_one_verdict(tmp_path):
    """A run's folder and the ledger in it are one place, with the hash of the last record as its digest."""
    federation(tmp_path).close()
    by_folder, by_file = coterie.audit(tmp_path), coterie.audit(tmp_path / "ledger.sqlite")
    assert by_folder.record() == by_file.record()
    assert by_folder.source.digest_of == "head"
    assert by_folder.log.names == tuple(NAMES)
    with pytest.raises(UsageError, match="is a ledger, which has no columns"):
        coterie.audit(tmp_path, user_column="user")


def test_columns_are_arrays_of_one_length():
    """Every user who took part is a row: its name, rounds, group and the round since which it is isolated."""
    log = random_log(rounds=60)
    columns = coterie.audit(log, budget=0.5).columns
    assert {len(column) for column in columns.values()} == {40}
    assert columns["group"].tolist() == [1] * 40
    dense = log.to_dense()
    order = [int(name) for name in columns["user"]]
    assert columns["rounds"].tolist() == dense.sum(axis=0)[order].tolist()
    assert all(columns["isolated_since"] >= 0)
    hidden = coterie.audit(ParticipationLog.from_dense([[1, 1, 0]], names=["<b>", "b", "c"]))
    assert hidden.columns["isolated_since"].tolist() == [-1, -1]
    assert hidden.columns["user"].tolist() == ["<b>", "b"]


def test_a_notebook_shows_the_verdict():
    """The verdict prints itself as text and as HTML, with markup escaped."""
    verdict = coterie.audit(ParticipationLog.from_dense([[1, 1], [1, 0]], names=["<b>", "b"]))
    assert "every user who took part" in repr(verdict)
    assert verdict.words.headline in verdict._repr_html_()
    assert "<b>" not in verdict._repr_html_().replace("<p><b>", "").replace("<td><b>", "")


def test_evidence_is_judged_as_it_is():
    """What a caller knows of plain rounds counts."""
    log = ParticipationLog.from_dense([[1, 1, 1, 1]])
    assert coterie.audit(log, require=4).met
    assert not coterie.audit(Evidence(log, plain=(0,)), require=2).met
    assert coterie.audit(log, rounds=4).measures.cardinality == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"users": 2}, "the number of users is 2, but the log has 3"),
        ({"rounds": 0}, "the log has 1 rounds, more than the 0 given"),
        ({"colluders": ["zoe"]}, "'zoe' is to collude but is not in the log"),
        ({"colluders": ["a", "b", "c"]}, "the colluders are everyone in the log"),
        ({"colluders": 3}, "3 of 3 users cannot collude"),
        ({"budget": -1.0}, "the budget is -1.0"),
        ({"require": 0}, "the required level is 0"),
    ],
)
def test_bad_questions_are_refused_with_their_value(options, message):
    """A question that makes no sense says what is wrong."""
    with pytest.raises(UsageError, match=message):
        coterie.audit(ParticipationLog.from_dense([[1, 1, 1]], names=["a", "b", "c"]), **options)


def test_the_call_does_not_hide_what_it_rests_on():
    """`coterie.audit` is the call, and `from coterie.leakage import …` finds the measures."""
    from coterie.leakage import strong_level

    assert callable(coterie.audit)
    assert strong_level(ParticipationLog.from_dense(np.eye(2, dtype=int))) == 1
