"""A server that deviates gets refusals, whose reasons only the devices know, or noise; never an update."""

import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import strategy as flower

from coterie.errors import PeerError
from coterie.federation.aggregation import form_batches
from coterie.federation.ledger import Ledger
from coterie.flower.node import REFUSALS
from coterie.flower.recipe import Work
from coterie.flower.transport import (
    IDENTITY_REQUEST,
    MESSAGE,
    REFUSAL,
    GridMessenger,
    GridTransport,
    admit_everybody,
    has_bytes,
    kind_of,
    unwrap,
    wrap,
)
from coterie.flower.transport import Nodes as Users
from coterie.secagg import PROTOCOLS, BatchFounder, BatchRules, Charter, Quantiser, Terms, sealed_round
from coterie.secagg.crypto.quantiser import dequantise
from coterie.secagg.protocols.interface import RoundPhase
from coterie.selection import consecutive
from support.flower.app import (
    START,
    USERS,
    app,
    averaged,
    examples,
    mod,
    model,
    sealed,
    start,
    trained,
)
from support.flower.deployment import until
from support.flower.nodes import Nodes, federation


class HostileServer:
    """A federation after one honest round, in the hands of a server that sends what it likes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger = Ledger.open(folder / "ledger.sqlite")
        self.charters = {batch: Charter.decode(data) for batch, data in self.ledger.charters.items()}
        self.nodes = federation(folder)
        self.messenger = GridMessenger(self.nodes.grid)
        self.users = Users(self.messenger, self.ledger, "test", admit_everybody)
        self.transport = GridTransport(self.messenger, self.users.node_of, timeout=30.0)

    def terms(self, weights=START["weights"], **changes):
        """The terms of a round over a model."""
        work = Work("train", {**START, "weights": weights})
        return Terms(**{"model": work.encode(), "dimension": work.dimension, "step": 1, **changes})

    def ask(self, outgoing):
        """Send messages of the protocol, and return the answers by user."""
        with self.nodes.running():
            refreshed(self.users)
            return dict(self.transport.exchange(outgoing, RoundPhase(1, 0)))

    def opened(self, answers):
        """What the vectors of a batch give when they are added, by whoever has them."""
        quantiser = self.charters[0].quantiser
        size = quantiser.vector_bytes(START["weights"].size)
        words = [np.frombuffer(bytes(data)[-size:], dtype=quantiser.ring.dtype) for data in answers.values()]
        return dequantise(np.sum(words, axis=0, dtype=quantiser.ring.dtype), quantiser, len(words))

    def refusals(self, partition):
        """What a device has refused, as its log says."""
        log = self.folder / "devices" / f"partition-{partition}" / REFUSALS
        return log.read_text() if log.exists() else ""


def refreshed(users):
    """Look who is connected until all have said who they are."""
    users.refresh(30.0)
    until(lambda: users.refresh(30.0) or not users.silent)


@pytest.fixture
def hostile(begun):
    """A server that has the ledger, the charters and the grid."""
    server = HostileServer(begun)
    yield server
    server.ledger.close()


def test_one_user_alone_gives_noise(hostile):
    """What one member of a batch sends is noise to a server that asks it alone; with the other's it is a sum."""
    calls = sealed_round([hostile.charters[0]], 1, hostile.terms()).start()
    answers = hostile.ask({"partition-0": calls["partition-0"]})
    with pytest.raises(PeerError, match="masks did not cancel"):
        hostile.opened(answers)
    answers |= hostile.ask({"partition-1": calls["partition-1"]})
    updates = averaged(START["weights"], [0, 1]) - START["weights"]
    assert hostile.opened(answers).mean == pytest.approx(updates.ravel(), abs=1e-3)


def test_one_node_with_another_model_gives_noise(hostile):
    """If one member is shown another model, the sum of its batch does not open, whatever the server skips."""
    honest = sealed_round([hostile.charters[0]], 1, hostile.terms())
    crafted = sealed_round([hostile.charters[0]], 1, hostile.terms(np.zeros_like(START["weights"])))
    calls = {"partition-0": honest.start()["partition-0"], "partition-1": crafted.start()["partition-1"]}
    answers = hostile.ask(calls)
    assert answers.keys() == calls.keys()
    with pytest.raises(PeerError, match="masks did not cancel"):
        hostile.opened(answers)


def test_a_round_is_sealed_once(hostile):
    """A round that lies behind is refused, and so is the present one a second time, with another model."""
    again = sealed_round([hostile.charters[0]], 0, hostile.terms(step=0)).start()
    assert hostile.ask(again) == {}
    assert "asked for round 0; this device is past it" in hostile.refusals(0)
    assert "asked for round 0; this device is past it" in hostile.refusals(1)
    assert len(hostile.ask(sealed_round([hostile.charters[0]], 1, hostile.terms()).start())) == 2
    other = hostile.terms(np.zeros_like(START["weights"]))
    assert hostile.ask(sealed_round([hostile.charters[0]], 1, other).start()) == {}
    assert "asked for round 1; this device is past it" in hostile.refusals(0)


def test_of_many_calls_at_once_one_is_sealed(hostile):
    """A device that is shown several models at a time, each of them let in, seals one and refuses the others."""
    models = [np.full_like(START["weights"], value) for value in range(4)]
    calls = [sealed_round([hostile.charters[0]], 1, hostile.terms(each)).start() for each in models]
    together = threading.Barrier(len(models))

    def wait_for_the_others(message, context, call_next):
        together.wait(60)
        return call_next(message, context)

    client = app(mod(hostile.folder), wait_for_the_others)

    def answer(call):
        context = Context(1, 1, {"partition-id": 0}, RecordDict(), {})
        return client(Message(wrap(MESSAGE, call["partition-0"]), 1, MessageType.TRAIN), context)

    with ThreadPoolExecutor(len(models)) as pool:
        kinds = [kind_of(reply.content) for reply in pool.map(answer, calls)]
    assert sorted(kinds) == [MESSAGE, *[REFUSAL] * 3]
    assert hostile.refusals(0).count("asked for round 1; this device is past it") == 3


def test_a_batch_is_never_split(hostile):
    """A charter that puts members of two batches together without the others is refused."""
    rules = hostile.charters[0]
    again = BatchRules(rules.scope, rules.privacy, rules.quantiser, rules.inner, recipe=rules.recipe)
    assert founded(hostile, again, ["partition-1", "partition-2"]) is None
    assert "splits the batch that this device sealed in: it lacks 'partition-0'" in hostile.refusals(1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"clip": 2.0}, "changes the quantiser that this device sealed under: clip 2.0 in place of 1.0"),
        ({"weight_cap": 2**15}, "changes the quantiser that this device sealed under: weight cap"),
    ],
)
def test_the_quantiser_stays(hostile, change, reason):
    """The same batch with another quantiser is refused."""
    rules = hostile.charters[0]
    quantiser = dataclasses.replace(rules.quantiser, **change)
    assert isinstance(quantiser, Quantiser)
    again = BatchRules(rules.scope, rules.privacy, quantiser, rules.inner, recipe=rules.recipe)
    assert founded(hostile, again, ["partition-0", "partition-1"]) is None
    assert reason in hostile.refusals(0)


def founded(hostile, rules, users):
    """Try to found another batch; return its charter, if the users let it come to be."""
    founder = BatchFounder(rules, users, first=1)
    outgoing = founder.invitations()
    while outgoing:
        answers = hostile.ask(outgoing)
        outgoing = {}
        for user, data in answers.items():
            outgoing |= founder.receive(user, bytes(data))
    return founder.charter


def test_a_configuration_with_the_round_is_refused(hostile):
    """A training configuration beside the charter's, such as another learning rate, is refused."""
    configured = hostile.terms(configuration=b'{"lr":0.25}')
    assert hostile.ask(sealed_round([hostile.charters[0]], 1, configured).start()) == {}
    assert "sent a training configuration with the round" in hostile.refusals(0)


@pytest.mark.parametrize("kind", [MessageType.TRAIN, MessageType.EVALUATE, MessageType.QUERY])
def test_a_plain_strategy_gets_nothing(tmp_path, kind):
    """Messages of a strategy that is not sealed never reach the app: the reply has neither model nor reason."""
    nodes = federation(tmp_path, users=2)
    content = RecordDict({"arrays": model(), "config": ConfigRecord({"lr": 0.5})})
    with nodes.running() as grid:
        replies = list(GridMessenger(grid).send(dict.fromkeys(nodes.ids.values(), content), 30.0, kind))
    assert [(dict(reply.config_records["coterie"]), list(reply)) for _, reply in replies] == [
        ({"kind": REFUSAL}, ["coterie"])
    ] * 2
    log = (tmp_path / "devices" / "partition-0" / REFUSALS).read_text()
    assert f"a message of type '{kind}' that is not sealed" in log


def test_a_low_t_and_another_protocol_are_refused(tmp_path):
    """The device's own minimum and protocols hold, whatever the server's charter says."""
    nodes = federation(tmp_path, least_privacy=3, protocols={"secagg+"})
    with Ledger.create(tmp_path / "ledger.sqlite") as ledger, nodes.running() as grid:
        messenger = GridMessenger(grid)
        users = Users(messenger, ledger, "test", admit_everybody)
        refreshed(users)
        transport = GridTransport(messenger, users.node_of, 30.0)
        users.enrol(users.arrivals)
        ledger.publish_plan(consecutive(USERS, 2))
        quantiser = Quantiser.in_ring_of(PROTOCOLS["open"].rings, 1.0, 1, USERS)
        failed = form_batches(ledger, transport, BatchRules("test", 2, quantiser, "open"))
    assert len(failed) == 4
    log = (tmp_path / "devices" / "partition-0" / REFUSALS).read_text()
    assert "the charter has T = 2; this device accepts 3 or more" in log


def test_bytes_that_are_no_message_are_refused(tmp_path):
    """Anything else in the envelope is refused, and the device goes on."""
    nodes = federation(tmp_path, users=1)
    with nodes.running() as grid:
        messenger = GridMessenger(grid)
        (node,) = nodes.ids.values()
        for content in (
            wrap(MESSAGE, b"rubbish"),
            wrap(MESSAGE),
            wrap(IDENTITY_REQUEST),
            wrap(IDENTITY_REQUEST, challenge=b"short"),
        ):
            ((_, reply),) = messenger.send({node: content}, 30.0)
            assert kind_of(reply) == REFUSAL
            assert not has_bytes(reply)


def test_what_goes_wrong_in_the_app_stays_on_the_device(tmp_path, caplog):
    """An exception of the train function, which may quote data, does not reach the server."""

    def failing(*_):
        raise ValueError("patient 4711")

    nodes = Nodes(app(mod(tmp_path), failing), range(USERS))
    start(sealed(tmp_path, flower.FedAvg()), nodes)
    assert "patient 4711" in caplog.text
    assert "the app's train function fails on the nodes: their own logs say so" in caplog.text
    for _, reply in nodes.seen:
        assert not reply.has_error()
        text = repr(dict(reply.content.config_records["coterie"]))
        assert "patient" not in text
        if has_bytes(reply.content):
            assert b"patient" not in unwrap(reply.content)


def no_number(reply):
    """A weight that is no number, as of a device whose data are not what the app expects."""
    reply.content["metrics"]["num-examples"] = float("nan")


def another_shape(reply):
    """A model of another shape."""
    reply.content["arrays"] = ArrayRecord({"weights": Array(np.zeros(3)), "steps": Array(np.asarray(9))})


def no_metrics(reply):
    """No metrics at all."""
    del reply.content["metrics"]


def an_exception(reply):
    """Nothing, and the reason."""
    raise ValueError(reply)


@pytest.mark.parametrize("spoil", [no_number, another_shape, no_metrics, an_exception])
def test_a_device_whose_app_fails_answers_as_any_other(tmp_path, spoil):
    """Whether a function fails depends on data: the reply does not show it; zeros of weight 1 are sealed."""

    def failing(message, context, call_next):
        reply = call_next(message, context)
        if context.node_config["partition-id"] == 1:
            spoil(reply)
        return reply

    nodes = Nodes(app(mod(tmp_path), failing), range(USERS))
    result = start(sealed(tmp_path, flower.FedAvg()), nodes)
    shapes = [[] for _ in range(USERS)]
    for partition, reply in nodes.seen:
        content = reply.content
        shapes[partition].append((kind_of(content), len(unwrap(content)) if has_bytes(content) else 0))
    assert shapes[1] == shapes[0]
    updates = [trained(START["weights"], partition) - START["weights"] for partition in range(USERS)]
    counts = [examples(partition) for partition in range(USERS)]
    updates[1], counts[1] = np.zeros_like(updates[1]), 1
    expected = START["weights"] + np.average(updates, axis=0, weights=counts)
    assert result.arrays["weights"].numpy() == pytest.approx(expected, abs=1e-4)


def test_more_values_than_model_and_metrics_have_are_refused(hostile):
    """The dimension of a round is that of its model and its metrics; the app is not called for another."""
    wide = dataclasses.replace(hostile.terms(), dimension=START["weights"].size + 1)
    assert hostile.ask(sealed_round([hostile.charters[0]], 1, wide).start()) == {}
    assert "the server asked for 31 values; model and metrics have 30" in hostile.refusals(0)


def test_a_refusal_that_cannot_be_written_down_is_no_different(tmp_path):
    """A disk that is full, or a log that is no file, changes nothing of what the server sees."""
    (tmp_path / "devices" / "partition-0" / REFUSALS).mkdir(parents=True)
    nodes = federation(tmp_path, users=2)
    with nodes.running() as grid:
        list(GridMessenger(grid).send(dict.fromkeys(nodes.ids.values(), RecordDict({"arrays": model()})), 30.0))
    assert [partition for partition, _ in nodes.seen] == [0, 1]
    for _, reply in nodes.seen:
        assert not reply.has_error()
        assert dict(reply.content.config_records["coterie"]) == {"kind": REFUSAL}
