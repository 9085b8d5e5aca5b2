"""A sealed strategy does what the strategy in it does, over whole batches only, and goes on where it stopped."""

import dataclasses
import shutil

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp import strategy as flower

import coterie
from coterie.errors import TooFewUsersError, UsageError
from coterie.federation.ledger import Ledger, State
from coterie.flower.node import REFUSALS
from coterie.flower.transport import GridMessenger, admit_everybody
from coterie.flower.transport import Nodes as Users
from coterie.selection import consecutive
from coterie.values import BatchPlan
from support.flower.app import BOUNDS, START, USERS, app, averaged, examples, loss, mod, sealed, start
from support.flower.deployment import until
from support.flower.nodes import Nodes, federation

CLOSE = 1e-4
"""What rounding can do to a mean of numbers of one."""


def weights(result):
    """The trained numbers of a result."""
    return result.arrays["weights"].numpy()


def rounds(folder):
    """The rounds of the ledger."""
    with Ledger.open(folder / "ledger.sqlite", read_only=True) as ledger:
        return ledger.snapshot().rounds


@pytest.mark.parametrize("protocol", ["open", "secagg+"])
def test_the_model_is_that_of_plain_fedavg(tmp_path, protocol):
    """Two sealed rounds give what FedAvg gives, up to rounding; whole numbers in the model stay as they were."""
    result = start(sealed(tmp_path, flower.FedAvg(), protocol=protocol), federation(tmp_path), rounds=2)
    expected = averaged(averaged(START["weights"], range(USERS)).astype(np.float32), range(USERS))
    assert weights(result) == pytest.approx(expected, abs=CLOSE)
    assert weights(result).dtype == np.float32
    assert result.arrays["steps"].numpy() == 3
    verdict = coterie.audit(tmp_path / "ledger.sqlite")
    assert verdict.strong == (2 if protocol == "open" else USERS)


@pytest.mark.parametrize(
    "kind", [flower.FedAvgM, flower.FedAdam, flower.FedAdagrad, flower.FedYogi, flower.FedProx]
)
def test_a_strategy_that_optimises_at_the_server_does_so(tmp_path, kind):
    """Momentum, second moments and proximal terms follow the average as they follow single replies."""
    options = {"server_momentum": 0.9} if kind is flower.FedAvgM else {}
    plain = start(kind(**options, fraction_evaluate=0.0), Nodes(app(), range(USERS)), rounds=3)
    result = start(sealed(tmp_path, kind(**options)), federation(tmp_path), rounds=3)
    # Adaptive steps divide by the size of an update: rounding weighs most where an update is smallest.
    assert weights(result) == pytest.approx(weights(plain), abs=5e-3)


@pytest.mark.parametrize("kind", [flower.FedAvg, flower.FedAvgM, flower.FedAdam])
def test_a_second_start_goes_on_with_round_model_and_optimiser(tmp_path, kind):
    """After one round and a new process, two more give what three at once do."""
    options = {"server_momentum": 0.9} if kind is flower.FedAvgM else {}
    whole = start(kind(**options, fraction_evaluate=0.0), Nodes(app(), range(USERS)), rounds=3)
    start(sealed(tmp_path, kind(**options)), federation(tmp_path), rounds=1)
    result = start(sealed(tmp_path, kind(**options)), federation(tmp_path), rounds=3)
    assert weights(result) == pytest.approx(weights(whole), abs=5e-3)
    assert [each.metrics["server-round"] for each in rounds(tmp_path)] == [1, 2, 3]
    again = start(sealed(tmp_path, kind(**options)), federation(tmp_path), rounds=3)
    assert np.array_equal(weights(again), weights(result))
    assert len(rounds(tmp_path)) == 3


@pytest.mark.parametrize(
    "strategy",
    [
        flower.Krum(), flower.MultiKrum(), flower.Bulyan(), flower.FedMedian(), flower.FedTrimmedAvg(),
        flower.QFedAvg(0.1), flower.FedXgbBagging(), flower.FedXgbCyclic(),
        flower.DifferentialPrivacyServerSideFixedClipping(flower.FedAvg(), 1.0, 1.0, 2),
        flower.DifferentialPrivacyClientSideFixedClipping(flower.FedAvg(), 1.0, 1.0, 2),
    ],
    ids=lambda strategy: type(strategy).__name__,
)  # fmt: skip
def test_strategies_that_need_single_updates_are_refused_by_name(tmp_path, strategy):
    """What looks at single replies cannot be wrapped, and the message says which and why."""
    with pytest.raises(UsageError, match=f"^{type(strategy).__name__} cannot be wrapped: it "):
        sealed(tmp_path, strategy)


def test_noise_of_flowers_own_comes_under_the_seal(tmp_path):
    """A mod that clips and blurs the update stands behind the seal's: the sum is that of what it gives."""
    blur = LocalDpMod(clipping_norm=0.1, sensitivity=1e-9, epsilon=10.0, delta=1e-5)
    result = start(sealed(tmp_path, flower.FedAvg()), Nodes(app(mod(tmp_path), blur), range(USERS)))
    change = np.linalg.norm(weights(result) - START["weights"])
    assert 0.01 < change < 0.1 + CLOSE


def test_metrics_are_averaged_under_the_seal(tmp_path):
    """Metrics of training and of evaluation come as their weighted means, and no reply has a metric."""
    nodes = federation(tmp_path)
    strategy = sealed(tmp_path, flower.FedAvg(), train_metrics=BOUNDS, evaluate_metrics=BOUNDS)
    result = start(strategy, nodes, rounds=1)
    counts = [examples(partition) for partition in range(USERS)]
    for found, model in (
        (result.train_metrics_clientapp, START["weights"]),
        (result.evaluate_metrics_clientapp, weights(result)),
    ):
        expected = np.average([loss(model, partition) for partition in range(USERS)], weights=counts)
        assert found[1]["loss"] == pytest.approx(expected, abs=CLOSE)
    assert rounds(tmp_path)[-1].metrics["loss"] == found[1]["loss"]
    assert not any(reply.content.metric_records for _, reply in nodes.seen)
    kinds = {record["kind"] for _, reply in nodes.seen for record in reply.content.config_records.values()}
    assert kinds == {"introduction", "message"}


def test_a_batch_whose_member_is_lost_is_left_out(begun):
    """A node that is gone in the middle of a round takes its batch along; the rest's exact mean comes out."""
    before = averaged(START["weights"], range(USERS)).astype(np.float32)
    nodes = federation(begun)
    nodes.loses = lambda partition, message: partition == 5 and bool(message.metadata.group_id)
    result = start(sealed(begun, flower.FedAvg()), nodes, rounds=2, timeout=2.0)
    assert weights(result) == pytest.approx(averaged(before, [0, 1, 2, 3, 6, 7]), abs=CLOSE)
    last = rounds(begun)[-1]
    (reason,) = last.lost.values()
    assert list(last.lost) == [2]
    assert reason.endswith(" did not answer")
    assert sorted(user for each in last.learned for user in each) == [0, 1, 2, 3, 6, 7]


def test_a_round_without_enough_nodes_waits_and_is_skipped(begun, caplog):
    """With one node of each batch away nothing is asked: the round is skipped after the wait, and counts."""
    nodes = federation(begun)
    for partition in (1, 3, 5, 7):
        nodes.leave(partition)
    result = start(sealed(begun, flower.FedAvg(), wait=2.5), nodes, rounds=2)
    assert weights(result) == pytest.approx(averaged(START["weights"], range(USERS)), abs=CLOSE)
    assert [each.state for each in rounds(begun)] == [State.COMMITTED, State.SKIPPED]
    assert "Coterie waits for whole batches of 1 users in all; 4 of 8 are connected" in caplog.text


def test_a_device_that_is_away_costs_its_batch_and_no_time(tmp_path, caplog):
    """Whole batches that are there make the round, without waiting for the others, also if one was retired."""
    start(sealed(tmp_path, flower.FedAvg(), protocol="secagg+"), federation(tmp_path), rounds=1)
    nodes = federation(tmp_path)
    nodes.leave(1)
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        ledger.retire([3], "decommissioned")
    start(sealed(tmp_path, flower.FedAvg(), protocol="secagg+", wait=600.0), nodes, rounds=2)
    assert [users.tolist() for users in rounds(tmp_path)[-1].learned] == [[2, 3, 4, 5]]
    assert "waits for whole batches" not in caplog.text


def test_a_plan_needs_its_users(tmp_path):
    """If too few nodes come for a first plan there is none, and the message says how many are missing."""
    with pytest.raises(TooFewUsersError, match=r"after 4 seconds 5 of 8 users are not connected"):
        start(sealed(tmp_path, flower.FedAvg(), wait=4.0), federation(tmp_path, users=3))


def test_newcomers_form_batches_of_their_own(tmp_path):
    """Nodes that come later join as whole batches; the old ones stay as they were."""
    start(sealed(tmp_path, flower.FedAvg(), users=4), federation(tmp_path, users=4), rounds=1)
    nodes = federation(tmp_path, users=7)
    result = start(sealed(tmp_path, flower.FedAvg(), users=4), nodes, rounds=2)
    before = averaged(START["weights"], range(4)).astype(np.float32)
    assert weights(result) == pytest.approx(averaged(before, range(7)), abs=CLOSE)
    with Ledger.open(tmp_path / "ledger.sqlite", read_only=True) as ledger:
        assert [ledger.plan.batch(batch).tolist() for batch in range(3)] == [[0, 1], [2, 3], [4, 5, 6]]


@pytest.mark.parametrize("founders", [0, 4])
def test_a_process_that_dies_between_enrolment_and_plan_is_made_up_for(tmp_path, monkeypatch, founders):
    """Users whom the ledger has, and no plan yet, are in the plan of the next start."""
    if founders:
        start(sealed(tmp_path, flower.FedAvg(), users=founders), federation(tmp_path, users=founders))

    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "publish_plan", die)
        with pytest.raises(KeyboardInterrupt):
            start(sealed(tmp_path, flower.FedAvg(), users=6), federation(tmp_path, users=6), rounds=2)
    start(sealed(tmp_path, flower.FedAvg(), users=6, wait=10.0), federation(tmp_path, users=6), rounds=2)
    assert rounds(tmp_path)[-1].included.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_plan_that_does_not_begin_with_who_is_enrolled_is_refused(tmp_path, monkeypatch):
    """Before anybody else is enrolled, which is for good: the ledger stays as it was."""

    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "publish_plan", die)
        with pytest.raises(KeyboardInterrupt):
            start(sealed(tmp_path, flower.FedAvg(), users=4), federation(tmp_path, users=4))
    names = tuple(f"partition-{number}" for number in (4, 5, 0, 1))
    strategy = sealed(tmp_path, flower.FedAvg(), plan=BatchPlan.from_batches(4, 2, [[0, 1], [2, 3]], names))
    with pytest.raises(UsageError, match=r"has 4 users already, who are not the first of the plan"):
        start(strategy, federation(tmp_path, users=6))
    with Ledger.open(tmp_path / "ledger.sqlite", read_only=True) as ledger:
        assert (ledger.users, ledger.plan) == (4, None)


def test_a_newcomer_that_has_left_founds_no_batch(tmp_path):
    """Of two newcomers who never were there at the same time none is enrolled, and rounds go on."""
    nodes = federation(tmp_path, users=5)

    def exchange(server_round, _arrays):
        if server_round == 2:
            nodes.leave(4)
            nodes.join(5)

    strategy = sealed(tmp_path, flower.FedAvg(), users=4, plan=named_plan(4))
    start(strategy, nodes, rounds=3, evaluate_fn=exchange)
    with Ledger.open(tmp_path / "ledger.sqlite", read_only=True) as ledger:
        assert (ledger.users, ledger.snapshot().rounds[-1].state) == (4, State.COMMITTED)


def named_plan(users):
    """Batches of two, of the first partitions."""
    return consecutive(users, 2, [f"partition-{number}" for number in range(users)])


def test_a_node_that_never_says_who_it_is_stops_no_round(begun):
    """A node that comes again and again under a new id, and is silent, costs time and no round."""
    nodes = federation(begun, users=USERS + 1)

    def comes_again(partition, _message):
        if partition == USERS:
            nodes.leave(USERS)
            nodes.join(USERS)
        return partition == USERS

    nodes.loses = comes_again
    start(sealed(begun, flower.FedAvg(), wait=3.0), nodes, rounds=2)
    assert [each.state for each in rounds(begun)] == [State.COMMITTED, State.COMMITTED]


def test_a_node_with_a_new_id_is_the_same_user(tmp_path):
    """Who a node is follows from its device and not from its id."""
    nodes = federation(tmp_path)
    start(sealed(tmp_path, flower.FedAvg()), nodes, rounds=1)
    nodes.leave(3)
    nodes.join(3)
    start(sealed(tmp_path, flower.FedAvg()), nodes, rounds=2)
    assert len(rounds(tmp_path)[-1].cohort.users) == USERS


def test_a_node_that_was_refused_can_come_back(tmp_path):
    """A device whose owner repaired it is asked again when its node is back, in the same run and under its id."""
    nodes, broken = federation(tmp_path, users=2), tmp_path / "devices" / "partition-1"
    broken.parent.mkdir()
    broken.write_text("no folder")
    with Ledger.create(tmp_path / "ledger.sqlite") as ledger, nodes.running() as grid:
        users, node = Users(GridMessenger(grid), ledger, "test", admit_everybody), nodes.ids[1]
        until(lambda: users.refresh(30.0) or not users.silent)
        assert set(users.newcomers) == {"partition-0"}
        nodes.leave(1)
        users.refresh(30.0)
        broken.unlink()
        nodes.come_back(node, 1)
        until(lambda: users.refresh(30.0) or not users.silent)
        assert users.newcomers.keys() == {"partition-0", "partition-1"}
        assert len(nodes.seen) == 3


def test_a_plan_can_be_given(tmp_path):
    """Batches are those of a plan that was made elsewhere; its users are named as their devices are."""
    names = tuple(f"partition-{number}" for number in (3, 0, 2, 1))
    plan = BatchPlan.from_batches(4, 2, [[0, 2], [1, 3]], names)
    strategy = sealed(tmp_path, flower.FedAvg(), plan=plan)
    with pytest.raises(TooFewUsersError, match=r"2 of 4 users of the plan, such as 'partition-2'"):
        start(dataclasses.replace(strategy, wait=2.0), federation(tmp_path, users=2))
    start(strategy, federation(tmp_path, users=4))
    with Ledger.open(tmp_path / "ledger.sqlite", read_only=True) as ledger:
        members = [[ledger.names[user] for user in ledger.plan.batch(batch)] for batch in range(2)]
    assert members == [["partition-3", "partition-2"], ["partition-0", "partition-1"]]


def test_a_ledger_in_postgresql(tmp_path, postgres):
    """Plan, rounds and the model's digest are in the database; a second start and an audit read them there."""
    from support.postgres import fresh_ledger

    options = {"ledger": fresh_ledger(postgres), "models": tmp_path / "models"}
    with pytest.raises(UsageError, match="say with models=FOLDER"):
        start(sealed(tmp_path, flower.FedAvg(), ledger=options["ledger"]), federation(tmp_path))
    for number in (1, 2):
        result = start(sealed(tmp_path, flower.FedAvg(), **options), federation(tmp_path), rounds=number)
    expected = averaged(averaged(START["weights"], range(USERS)).astype(np.float32), range(USERS))
    assert weights(result) == pytest.approx(expected, abs=CLOSE)
    verdict = coterie.audit(options["ledger"])
    assert (verdict.log.rounds, verdict.strong) == (2, 2)


def test_a_node_is_who_it_was_and_who_the_operator_knows(tmp_path, caplog):
    """The operator can refuse a node by its SuperNode's key; a known user with another identity is refused."""
    names = {}

    def admit(user, identity, node):
        names[user] = (identity, node.public_key)
        return not node.public_key.startswith(b"3-")

    start(sealed(tmp_path, flower.FedAvg(), users=7, admit=admit), federation(tmp_path))
    assert "'partition-3' was not admitted" in caplog.text
    with Ledger.open(tmp_path / "ledger.sqlite", read_only=True) as ledger:
        assert set(ledger.names) == {f"partition-{number}" for number in range(USERS) if number != 3}
        assert all(ledger.key_of(user) == names[name][0] for user, name in enumerate(ledger.names))
    shutil.rmtree(tmp_path / "devices" / "partition-1")
    start(sealed(tmp_path, flower.FedAvg(), users=7, admit=admit), federation(tmp_path), rounds=2)
    assert "it is 'partition-1' with another identity key than the one that was enrolled" in caplog.text
    assert rounds(tmp_path)[-1].cohort.users.tolist() == [3, 4, 5, 6]  # the batch of the other three waits


@pytest.mark.parametrize(
    ("changes", "config", "message"),
    [
        ({"clip": 2.0}, {}, "clip is 2.0; the batches of .* were founded with 1.0, for good"),
        ({"privacy": 4}, {}, "privacy is 4"),
        ({"protocol": "secagg+"}, {}, "protocol is .secagg."),
        ({"weight_cap": 5}, {}, "weight_cap is 5"),
        ({}, {"lr": 0.25}, "recipe .* is .*0.25"),
    ],
)
def test_what_charters_fix_cannot_be_changed(begun, changes, config, message):
    """A second start with other rules is refused before anybody is asked."""
    with pytest.raises(UsageError, match=message):
        start(
            sealed(begun, flower.FedAvg(), **changes),
            federation(begun),
            rounds=2,
            train_config=ConfigRecord({"lr": 0.5, **config}),
        )


def test_a_setting_that_devices_do_not_know_is_announced(tmp_path, caplog):
    """The server says which settings devices refuse, and asks again seldom; an app that allows them trains."""
    nodes, config = federation(tmp_path), ConfigRecord({"lr": 0.5, "batch_size": 3})
    start(sealed(tmp_path, flower.FedAvg(), wait=1.0), nodes, train_config=config)
    assert [each.state for each in rounds(tmp_path)] == [State.SKIPPED]
    assert "devices take the setting batch_size only if the app allows it" in caplog.text
    assert "SealingMod(recipe_keys={'batch_size'})" in caplog.text
    refusals = (tmp_path / "devices" / "partition-0" / REFUSALS).read_text().splitlines()
    assert len(refusals) in {1, 2, 3}
    assert all("sets 'batch_size'; this device takes" in line for line in refusals)
    nodes = federation(tmp_path, recipe_keys={"batch_size"})
    start(sealed(tmp_path, flower.FedAvg()), nodes, rounds=2, train_config=config)
    assert [each.state for each in rounds(tmp_path)] == [State.SKIPPED, State.COMMITTED]


def test_a_round_in_which_nobody_trains_is_skipped(tmp_path):
    """A strategy that trains in every other round does so: the round between counts, and devices go on."""

    class EveryOther(flower.FedAvg):
        def configure_train(self, server_round, *arguments):
            return super().configure_train(server_round, *arguments) if server_round % 2 else []

    start(sealed(tmp_path, EveryOther()), federation(tmp_path), rounds=3)
    assert [each.state for each in rounds(tmp_path)] == [State.COMMITTED, State.SKIPPED, State.COMMITTED]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"protocol": "secagg+", "per_round": 3}, "per_round is 3; .* devices want 4 users in a sum"),
        ({"per_round": 1}, "T = 2 is above K = 1"),
        ({"run_config": {"layers": None}}, "run_config has 'layers' as NoneType; give a number or a text"),
        ({"protocol": "lightsecagg"}, "the protocol is 'lightsecagg'; over Flower run open, secagg, secagg+"),
        ({"wait": 0.0}, "wait is 0.0; give a number of seconds"),
    ],
)
def test_settings_that_no_round_can_have_are_refused(tmp_path, changes, message):
    """What would keep every round from ending is said at the start, and not waited for."""
    with pytest.raises(UsageError, match=message):
        start(sealed(tmp_path, flower.FedAvg(), **changes), federation(tmp_path), timeout=1.0)


def test_a_strategy_cannot_send_nodes_different_things(tmp_path):
    """A strategy whose messages differ, or change their configuration with the rounds, is refused."""

    class Different(flower.FedAvg):
        def configure_train(self, server_round, arrays, config, grid):
            for message in super().configure_train(server_round, arrays, config, grid):
                node = message.metadata.dst_node_id
                content = RecordDict({"arrays": arrays, "config": ConfigRecord({"lr": 0.1 * node})})
                yield Message(content, node, message.metadata.message_type)

    class Moving(flower.FedAvg):
        def configure_train(self, server_round, arrays, config, grid):
            config["lr"] = 0.5 / server_round
            return super().configure_train(server_round, arrays, config, grid)

    with pytest.raises(UsageError, match="train_config for round 2 is"):
        start(sealed(tmp_path, Moving()), federation(tmp_path), rounds=2)
    with pytest.raises(UsageError, match="Different sends nodes different messages"):
        start(sealed(tmp_path / "other", Different()), federation(tmp_path / "other"))
