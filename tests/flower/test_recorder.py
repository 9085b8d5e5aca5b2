"""The log of a Flower deployment that does not use Coterie yet."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg

import coterie
from coterie.errors import UsageError
from coterie.flower import record_participation
from coterie.leakage.readers import read_log
from support.flower.nodes import empty_grid

MODEL = ArrayRecord([np.zeros(2, np.float32)])


def connected(keys):
    """Flower's own grid of a simulation, with a node for each public key."""
    grid, state = empty_grid()
    for key in keys:
        node = state.create_node("", "", key, heartbeat_interval=1e6)
        assert state.acknowledge_node_heartbeat(node, heartbeat_interval=1e6)
    return grid


def train(strategy, grid, number, fails=lambda node: False):
    """One round of training, in which nodes answer as they should, or with an error."""
    replies = []
    for message in strategy.configure_train(number, MODEL, ConfigRecord(), grid):
        message.metadata.__dict__["_message_id"] = str(message.metadata.dst_node_id)
        content = RecordDict({"arrays": MODEL, "metrics": MetricRecord({"num-examples": 1})})
        failed = fails(message.metadata.dst_node_id)
        replies.append(Message(Error(0, "lost") if failed else content, reply_to=message))
    arrays, _ = strategy.aggregate_train(number, iter(replies))
    return arrays


def test_all_who_replied_are_in_the_log_and_nobody_else(tmp_path):
    """A round's line has the nodes whose updates came, by their keys; the strategy gets the same replies."""
    grid = connected([b"ann", b"bob", b"cem"])
    lost = {node.public_key: node.node_id for node in grid.get_nodes()}[b"cem"]
    strategy = record_participation(FedAvg(), tmp_path / "log.jsonl", lambda node: node.public_key.decode())
    assert isinstance(strategy, FedAvg)
    assert train(strategy, grid, 1) is not None
    assert train(strategy, grid, 2, fails=lambda node: node == lost) is not None
    assert train(strategy, grid, 3, fails=lambda node: True) is None
    assert train(strategy, grid, 4) is not None
    log = read_log(tmp_path / "log.jsonl").log
    assert log.names == ("ann", "bob", "cem")
    assert log.to_dense().tolist() == [[1, 1, 1], [1, 1, 0], [0, 0, 0], [1, 1, 1]]
    assert coterie.audit(tmp_path / "log.jsonl").strong == 1


def test_another_run_goes_on_with_the_next_round(tmp_path):
    """Runs append to one log; the same nodes are the same users, and a line that a crash cut off is dropped."""
    path = tmp_path / "log.jsonl"
    first = record_participation(FedAvg(), path)
    train(first, connected([b"ann", b"bob"]), 1)
    before = path.read_bytes()
    path.write_bytes(before + b'{"round": 2, "us')
    second = record_participation(FedAvg(), path)
    train(second, connected([b"bob", b"ann"]), 1)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert path.read_bytes().startswith(before)
    assert [line["round"] for line in lines] == [1, 2]
    assert lines[0]["users"] == lines[1]["users"]
    assert lines[0]["run"] != lines[1]["run"]


def test_a_log_of_long_ago_is_gone_on_with(tmp_path):
    """The golden log ends with round 3 of another run; its bytes stay, and the next round is the fourth."""
    golden = (Path(__file__).parents[1] / "golden" / "files" / "flower-log.jsonl").read_bytes()
    path = tmp_path / "log.jsonl"
    path.write_bytes(golden)
    train(
        record_participation(FedAvg(), path, lambda node: node.public_key.decode()), connected([b"ana", b"d"]), 1
    )
    added = json.loads(path.read_bytes().removeprefix(golden))
    assert (added["round"], added["server_round"], added["users"]) == (4, 1, ["ana", "d"])


def test_runs_at_the_same_time_share_a_log(tmp_path):
    """Each round has a number of its own, whoever writes it."""
    path = tmp_path / "log.jsonl"
    grids = [connected([b"ann", b"bob"]), connected([b"ann", b"cem"])]
    strategies = [record_participation(FedAvg(), path) for _ in grids]
    for number in (1, 2):
        for strategy, grid in zip(strategies, grids, strict=True):
            train(strategy, grid, number)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3, 4]
    assert [line["server_round"] for line in lines] == [1, 1, 2, 2]


def test_devices_that_changed_their_keys_are_warned_of(tmp_path, caplog):
    """If no node of a run is in the log of the runs before, a warning says what that may mean."""
    logging.getLogger("flwr").propagate = True
    train(record_participation(FedAvg(), tmp_path / "log.jsonl"), connected([b"ann", b"bob"]), 1)
    assert "No node of this run" not in caplog.text
    train(record_participation(FedAvg(), tmp_path / "log.jsonl"), connected([b"eve", b"fay"]), 1)
    assert "No node of this run is among the 2 users" in caplog.text


@pytest.mark.parametrize("content", ["round,user\n1,ann\n", '{"round": 1}\n', "[]\n"])
def test_another_file_is_not_written_into(content, tmp_path):
    """A file that holds something else is refused, and left as it is."""
    path = tmp_path / "log.jsonl"
    path.write_text(content)
    with pytest.raises(UsageError, match="no round of a participation log"):
        record_participation(FedAvg(), path)
    assert path.read_text() == content


def test_a_path_that_cannot_be_written_is_refused_before_the_first_round(tmp_path):
    """The refusal comes where the strategy is made, and says why."""
    with pytest.raises(UsageError, match="its folder does not exist"):
        record_participation(FedAvg(), tmp_path / "missing" / "log.jsonl")
