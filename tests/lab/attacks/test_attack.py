"""Attacks on runs in their folders: they find users where nothing protects them, and nobody where batches do."""

import numpy as np
import pytest
import torch

from coterie.errors import UsageError
from coterie.lab.attacks.attack import attack_run, read_attacked_run
from coterie.lab.attacks.disaggregation import (
    LeastSquares,
    best_window,
    estimated_updates,
    moments_of,
    predicted_error,
)
from coterie.lab.experiments.folder import RunFolder
from coterie.lab.experiments.run import Run
from coterie.lab.training.models import flatten
from support.experiments.tiny import finished, newest_parameters, tiny_spec

ROUNDS = 30
SETTLED = {
    "training__rounds": ROUNDS,
    "training__learning_rate": 0.001,
    "training__shuffled": False,
    "selection__dropout": [0.0],
    "selection__lost": 0.0,
    "evaluate_every": ROUNDS,
    "keep_aggregates": True,
}


@pytest.fixture(scope="module")
def settled(data, new_folder):
    """A folder for each scheme, of a run whose model hardly moves; sealed ones with real cryptography."""
    kinds = {"random": ("plain", 6), "T2": ("plain", 6), "T4": ("plain", 8), "sealed": ("secagg+", 6)}
    folders = {}
    for name, (protocol, per_round) in kinds.items():
        changes = SETTLED | {"selection__scheme": "T2" if name == "sealed" else name}
        if name == "sealed":
            changes |= {"selection__lost": 0.1, "aggregation__clip": 0.01}
        spec = tiny_spec(data, protocol, **changes).changed({"selection.per_round": per_round})
        folders[name] = new_folder()
        finished(spec, folders[name])
    return folders


def test_every_user_of_the_unprotected_run_is_found(settled):
    """Random selection and a settled model: all updates come out, by every method, far better than by chance."""
    verdict = attack_run(read_attacked_run(settled["random"]))
    for result in verdict.methods:
        assert len(result.errors.found_users) == 12, result.method
    assert verdict.strongest.errors.summary()["mean"] < 0.02
    assert verdict.strongest.errors.found_by_chance == 0
    record = verdict.record()
    assert (record["users"], record["users_found"], record["privacy"]) == (12, 12, None)


@pytest.mark.parametrize("scheme", ["T2", "T4"])
def test_nobody_in_a_batch_plan_is_found(settled, scheme):
    """The same users, model and rounds, in batches: the best estimate is the batch's mean."""
    run = read_attacked_run(settled[scheme])
    verdict = attack_run(run)
    assert len(verdict.strongest.errors.found_users) == 0
    assert verdict.strongest.errors.errors.min() > 0.2
    privacy = int(scheme[1:])
    assert verdict.record()["privacy"] == privacy
    estimates = estimated_updates(run.view, LeastSquares()).reshape(-1, privacy, run.view.parameters)
    assert torch.allclose(estimates, estimates[:, :1].expand_as(estimates), atol=1e-5)


def test_nobody_is_found_in_sealed_rounds_that_lose_users(settled):
    """Real cryptography, users lost on the way: whatever the server could open, batches stay whole in it."""
    run = read_attacked_run(settled["sealed"])
    plan = run.setup.plan
    for members in run.view.learned:
        assert all(set(plan.batch(batch).tolist()) <= set(members.tolist()) for batch in plan.batch_of[members])
    assert len(attack_run(run).strongest.errors.found_users) == 0


def test_the_view_of_a_run_leads_to_its_last_model(settled):
    """First model and mean updates, bit by bit: the server needs no other file of the run."""
    run = read_attacked_run(settled["random"])
    last = run.view.model_before(len(run.view.rounds))
    parameters = newest_parameters(settled["random"])
    joined = run.setup.trainer.layout.join({name: torch.from_numpy(value) for name, value in parameters.items()})
    assert torch.equal(last, joined)
    assert run.view.rounds == tuple(range(ROUNDS))
    assert run.view.parameters == len(flatten(run.setup.model))


def test_vectors_are_mapped_and_not_read(settled):
    """A run's mean updates stay on the disk until a piece of them is asked for."""
    mean, _ = RunFolder.open(settled["random"]).aggregate(3)
    assert isinstance(mean, np.memmap)
    run = read_attacked_run(settled["random"])
    with np.load(settled["random"] / "aggregates" / "000003.npz") as file:
        assert np.array_equal(run.view.means[2].numpy(), file["mean"])
        assert run.view.learned[2].tolist() == file["users"].tolist()


def test_weights_by_examples_are_in_the_totals(data, new_folder):
    """A user with more examples counts more, and the server knows by what it divided."""
    spec = tiny_spec(
        data, "plain", **SETTLED, selection__scheme="random", training__weighting="examples",
        aggregation__weight_cap=100,
    )  # fmt: skip
    folder = new_folder()
    finished(spec, folder)
    run = read_attacked_run(folder)
    assert set(run.view.totals.tolist()) == {6 * 20.0}
    assert len(attack_run(run).strongest.errors.found_users) == 12


def test_the_window_is_the_one_that_promises_the_least_error(settled):
    """By drift and conditioning: not shorter than the rank, and no other choice is predicted to be better."""
    view = read_attacked_run(settled["random"]).view
    chosen = best_window(view)
    assert chosen.rounds[-1] == view.rounds[-1]
    least = predicted_error(moments_of(chosen))
    assert least <= predicted_error(moments_of(view)) < float("inf")
    assert predicted_error(moments_of(view.window(0, 5))) == float("inf")


def test_a_run_that_kept_no_aggregates_is_refused_with_what_to_do(data, new_folder):
    """The message names the option."""
    folder = new_folder()
    finished(tiny_spec(data, "plain", training__rounds=1), folder)
    with pytest.raises(UsageError, match="--keep-aggregates"):
        read_attacked_run(folder)


def test_a_run_without_a_round_is_refused(data, new_folder):
    """Nothing has happened yet."""
    folder = new_folder()
    Run.start(tiny_spec(data, "plain", keep_aggregates=True), folder).close()
    with pytest.raises(UsageError, match="no round"):
        read_attacked_run(folder)


def test_an_aggregate_that_was_removed_or_changed_is_named(data, new_folder):
    """The ledger has the digest of each."""
    folder = new_folder()
    finished(tiny_spec(data, "plain", keep_aggregates=True, training__rounds=2), folder)
    file = folder / "aggregates" / "000001.npz"
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(UsageError, match=r"000001\.npz was changed"):
        read_attacked_run(folder)
    file.unlink()
    with pytest.raises(UsageError, match=r"000001\.npz was removed"):
        read_attacked_run(folder)


@pytest.mark.parametrize("window", [0, ROUNDS + 1])
def test_a_window_that_is_not_there_is_refused(settled, window):
    """At least one round, at most all that had a result."""
    with pytest.raises(UsageError, match="window"):
        attack_run(read_attacked_run(settled["random"]), window)
