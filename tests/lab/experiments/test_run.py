"""A run is a function of its spec, and cryptography changes its model by no more than quantisation does."""

import math
from contextlib import ExitStack

import numpy as np
import pytest
import torch

from coterie import UsageError
from coterie.federation.ledger import Ledger, State
from coterie.federation.ledger.ledger import verify
from coterie.lab.experiments.folder import read_record
from coterie.lab.experiments.result import read_run
from coterie.lab.experiments.run import Run
from coterie.lab.experiments.setup import World
from coterie.leakage import strong_level
from coterie.secagg.loopback import SimulatedUsers
from support.experiments.tiny import OUTCOMES, PRIVACY, PROTOCOLS, ROUNDS, SEALED, finished, tiny_spec
from support.federation.federation import PHASES, WrongShares
from support.selectors import OwnSelector

SMALLEST = float(np.finfo(np.float32).eps)
EXPANSION = 2.0
"""A full-gradient step x - ηg(x) moves two models apart by |1 - ηλ| at most, λ the curvature between them: below 2
while λ lies in -1/η … 3/η, so -10 … 30 here. Beyond 2/η no training would get anywhere."""


@pytest.fixture(scope="module")
def runs(data, new_folder):
    """The tiny run with every protocol, and with it the model before every round."""
    found = {}
    with ExitStack() as stack:
        for protocol in PROTOCOLS:
            # Words of 32 bits wherever there are words: what separates models is then well below what they learn.
            words = {} if protocol == "plain" else {"aggregation__word_bits": 32}
            spec = tiny_spec(data, protocol, keep_aggregates=True, **words)
            run = stack.enter_context(Run.start(spec, new_folder()))
            models = [run.parameters]
            models += [run.parameters for _ in run.steps()]
            found[protocol] = run, models
        yield found


def committed(run):
    """The ledger's rounds with a result."""
    return [each for each in run.ledger.rounds() if each.state is State.COMMITTED]


def kept(run, step):
    """A step's mean update and its users, as the run kept them."""
    with np.load(run.folder.aggregates / f"{step:06d}.npz") as file:
        return file["mean"], file["users"]


def error_of_mean(run, model, row):
    """The most by which one coordinate of a round's sealed mean can differ from the plain one.

    Each addend is off by less than one quantisation step, and so is their mean, if none is cut off at the clip.
    The plain mean is a float32 sum of at most K products, with a rounding for each product and each addition.
    """
    clip, per_round = run.spec.aggregation.clip, run.spec.selection.per_round
    users = run.setup.plan.users_of(np.arange(len(run.setup.plan)))
    largest = float(run.setup.trainer.updates(model, users, row.step - 1).vectors.abs().max())
    assert largest < clip
    return quantisation_step(run) + 2 * per_round * SMALLEST * largest


def quantisation_step(run):
    """The step of the quantiser that the run's charters fix."""
    return run._federation._rules.quantiser.step  # noqa: SLF001 - as derived from the spec


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_tiny_run_meets_everything_that_a_round_can_meet(runs, protocol):
    """A batch is lost mid-round, a round is skipped, and the level is T: the other tests here rest on it."""
    run, _ = runs[protocol]
    assert [row.outcome for row in run.rows] == OUTCOMES
    assert [row.lost_batches for row in run.rows] == [0, 1, 0, 0]
    assert [row.included for row in run.rows] == [6, 4, 0, 6]
    assert strong_level(run.ledger.log()) == (1 if protocol == "plain" else PRIVACY)
    assert verify(run.folder.ledger).sound


@pytest.mark.parametrize("protocol", SEALED)
def test_a_sealed_round_gives_the_plain_mean_to_within_a_quantisation_step(runs, protocol):
    """From the same model, round by round, the sealed mean is what training the same users plainly gives."""
    run, models = runs[protocol]
    for row in run.rows:
        if row.outcome != "committed":
            continue
        mean, users = kept(run, row.step)
        plain = run.setup.trainer.mean(models[row.step - 1], np.sort(users), row.step - 1).vector
        error = error_of_mean(run, models[row.step - 1], row)
        assert np.abs(mean - plain.double().numpy()).max() <= error


@pytest.mark.parametrize("protocol", SEALED)
def test_plain_and_sealed_runs_of_one_spec_end_at_the_same_model(runs, protocol):
    """Cohorts, outcomes and learned users are the same; models part by rounding alone, which is under a hundredth
    of the way that they went.

    In a round a coordinate's distance grows by the error of the mean and one rounding in each model, so the
    distance by e = √D times that; what was there before grows by the factor `EXPANSION` at most. After J rounds
    it is at most e·(1 + 2 + … + 2^(J-1)).
    """
    (plain, models), (sealed, others) = runs["plain"], runs[protocol]
    assert [row.outcome for row in sealed.rows] == [row.outcome for row in plain.rows]
    for ours, theirs in zip(committed(sealed), committed(plain), strict=True):
        assert ours.cohort.users.tolist() == theirs.cohort.users.tolist()
        assert set(np.concatenate(ours.exposure)) == set(np.concatenate(theirs.exposure))
        assert ours.lost.keys() == theirs.lost.keys()
    assert plain.setup.user_data.sizes.max() <= plain.spec.training.minibatch  # a round is one full-gradient step
    in_mean = max(error_of_mean(sealed, models[row.step - 1], row) for row in plain.rows)
    worst = in_mean + SMALLEST * max(float(model.abs().max()) for model in models)
    bound = math.sqrt(len(models[0])) * worst * sum(EXPANSION**round_ for round_ in range(ROUNDS))
    apart = float((others[-1] - models[-1]).double().norm())
    assert 0 < apart <= bound
    assert bound < float((models[-1] - models[0]).norm()) / 100


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_same_spec_gives_the_same_bits_and_another_seed_does_not(runs, data, new_folder, protocol):
    """Keys are drawn anew, but the model is a function of spec and seed alone."""
    run, models = runs[protocol]
    assert torch.equal(finished(run.spec, new_folder()).parameters, models[-1])
    other = finished(tiny_spec(data, protocol, seed=29, training__rounds=1), new_folder())
    assert not torch.equal(other.parameters, models[1])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_kept_aggregates_add_up_to_the_way_from_the_first_to_the_last_model(runs, protocol):
    """Adding the kept means to the first model, in order, gives the last one, bit for bit."""
    run, models = runs[protocol]
    steps = [row.step for row in run.rows if row.outcome == "committed"]
    assert sorted(path.name for path in run.folder.aggregates.iterdir()) == [f"{step:06d}.npz" for step in steps]
    at = models[0]
    for step in steps:
        mean, users = kept(run, step)
        assert len(users) == run.rows[step - 1].included
        at = at + torch.from_numpy(mean).to(at)
    assert torch.equal(at, models[-1])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_record_ledger_and_summary_tell_the_same(runs, protocol):
    """The rows on the disk are the run's; the ledger has their rounds, checkpoints' digests and accuracies."""
    run, _ = runs[protocol]
    record = read_record(run.folder.record.path)
    assert list(record.rows) == run.rows
    assert record.head["spec"] == run.spec.tables()
    with Ledger.open(run.folder.ledger, read_only=True) as ledger:
        rounds = list(ledger.rounds())
    assert [(each.number, str(each.state)) for each in rounds] == [(row.round, row.outcome) for row in run.rows]
    assert all({"model", "row"} <= each.files.keys() for each in rounds)
    assert [each.metrics["accuracy"] for each in rounds] == [row.accuracy for row in run.rows]
    summary = read_run(run.folder.path).summary()
    assert (summary["rounds"], summary["skipped"], summary["lost_batches"]) == (4, 1, 1)
    assert summary["strong"] == (1 if protocol == "plain" else PRIVACY)
    assert summary["accuracy"] == run.rows[-1].accuracy
    assert summary["cardinality"] == (6 + 4 + 0 + 6) / 4


def test_examples_weigh_as_much_sealed_as_plainly(data, new_folder):
    """With weights by examples a sealed round is the plain one; a cap below somebody's examples is refused."""
    shapes = {"training__weighting": "examples", "training__rounds": 1}
    plain, sealed = (
        finished(tiny_spec(data, protocol, aggregation__weight_cap=20, **shapes), new_folder())
        for protocol in ("plain", "open")
    )
    assert float((plain.parameters - sealed.parameters).abs().max()) <= quantisation_step(sealed) + 8 * SMALLEST
    with pytest.raises(UsageError, match=r"20 examples, but aggregation\.weight_cap is 1; set it to 20"):
        Run.start(tiny_spec(data, "open", **shapes), new_folder())


def test_a_selector_of_batches_need_not_be_ours(data, new_folder, monkeypatch):
    """A sealed run whose scheme is a selector that only has a plan ends at the same bits as with ours."""
    spec = tiny_spec(data, "open")
    ours = finished(spec, new_folder())
    named = World.selector
    monkeypatch.setattr(World, "selector", lambda *arguments: OwnSelector(named(*arguments)))
    own = finished(spec, new_folder())
    assert isinstance(own.setup.selector_for(own.ledger.plan), OwnSelector)
    assert [row.outcome for row in own.rows] == OUTCOMES
    assert torch.equal(own.parameters, ours.parameters)


def test_what_is_measured_less_often_is_not_in_the_rows_between(data, new_folder):
    """With evaluate_every, other rows have no accuracy; the last one always has."""
    run = finished(tiny_spec(data, "plain", evaluate_every=3), new_folder())
    assert [row.accuracy is not None for row in run.rows] == [False, False, True, True]


@pytest.mark.parametrize("protocol", ["plain", "open"])
def test_users_whose_numbers_are_not_finite_are_named(data, new_folder, tmp_path, protocol):
    """A user whose training overflows is in the row of every round that it trained in, and so on the page."""
    for file in data.glob("*.npz"):
        with np.load(file) as arrays:
            scale = 3e38 if file.stem == "user-03" else 1.0
            np.savez(tmp_path / file.name, images=arrays["images"] * scale / 255.0, labels=arrays["labels"])
    run = finished(tiny_spec(tmp_path, protocol, training__rounds=3), new_folder())
    with Ledger.open(run.folder.ledger, read_only=True) as ledger:
        with_user = [3 in each.cohort.users for each in ledger.rounds()[:2]]
    assert [row.diverged for row in run.rows[:2]] == [("user-03",) if each else () for each in with_user]
    assert any(with_user)
    notes = read_run(run.folder.path).notes
    assert sum("training gave user-03 numbers that are not finite" in note for note in notes) == sum(with_user)


def test_users_who_break_the_protocol_are_named(data, new_folder, monkeypatch):
    """Who gives wrong shares is in the row of each round that went on without them, also after a resume."""
    monkeypatch.setattr(
        "coterie.lab.experiments.users.SimulatedUsers",
        lambda *given: WrongShares(SimulatedUsers(*given), "user-03", PHASES["secagg+"] - 1),
    )
    spec = tiny_spec(data, "secagg+", selection__per_round=12, selection__dropout=[0.0], selection__lost=0.0)
    run = finished(spec, new_folder())
    assert {row.liars for row in run.rows} == {("user-03",)}
    assert read_record(run.folder.record.path).rows == tuple(run.rows)
    notes = read_run(run.folder.path).notes
    assert notes[0] == "Round 0 went on without what user-03 sent, proven to have broken the protocol."
