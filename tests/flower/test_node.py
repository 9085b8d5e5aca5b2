"""A device's folder: one identity through every restart, and its owner's word before the app's."""

import json
import multiprocessing
import shutil
import subprocess
import sys

import msgspec
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, RecordDict

from coterie.errors import PeerError, UsageError
from coterie.flower import PinnedMembers, TrustServerForIdentities, create_device
from coterie.flower.mod import call_app
from coterie.flower.node import MEMORY, REFUSALS, Device, user_of
from coterie.flower.recipe import Metrics, Recipe, Records, Work, settings_of, with_types_of
from coterie.secagg import DeviceConfiguration

PERMITTED = DeviceConfiguration(scopes={"test"}, least_privacy=4, protocols={"secagg+"}, recipe_keys={"lr"})


def test_processes_that_start_at_once_make_one_identity(tmp_path):
    """Whichever process makes a device, all have the same user and key, also later."""
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        found = pool.map(create_device, [tmp_path / "device"] * 8)
    assert len({*found, create_device(tmp_path / "device")}) == 1
    user, key = found[0]
    assert user == user_of(bytes.fromhex(key))


def test_a_device_that_lost_its_memory_does_not_make_itself_a_new_one(tmp_path):
    """A folder without what the device sealed is refused; without the folder it is a new user."""
    user, _ = create_device(tmp_path / "device")
    (tmp_path / "device" / MEMORY).unlink()
    with pytest.raises(UsageError, match=r"has lost device\.sqlite"):
        create_device(tmp_path / "device")
    shutil.rmtree(tmp_path / "device")
    assert create_device(tmp_path / "device")[0] != user


def test_the_owner_has_the_last_word(tmp_path):
    """The node's configuration goes before the app's, in every respect."""
    members = tmp_path / "members.json"
    members.write_text(json.dumps({"ana": "00" * 32}))
    node = {
        "coterie-device": str(tmp_path / "own"), "coterie-user": "ana", "coterie-least-privacy": 9,
        "coterie-protocols": "open, secagg", "coterie-members": str(members), "partition-id": 3,
    }  # fmt: skip
    device = Device.of_node(node, PERMITTED, TrustServerForIdentities(), simulated=tmp_path / "simulated")
    assert (device.folder, device.user) == (tmp_path / "own", "ana")
    assert device.configuration.least_privacy == 9
    assert device.configuration.protocols == {"open", "secagg"}
    assert device.verify_member("ana", bytes(32))
    assert not device.verify_member("ana", bytes(31) + b"\1")
    assert not device.verify_member("bob", bytes(32))


def test_a_simulated_device_is_named_after_its_partition(tmp_path):
    """Without a folder of its own a node is a partition of a simulation, and the app's word counts."""
    trust = TrustServerForIdentities()
    device = Device.of_node({"partition-id": 3}, PERMITTED, trust, simulated=tmp_path)
    assert (device.folder, device.user) == (tmp_path / "partition-3", "partition-3")
    assert device.configuration == PERMITTED
    assert device.verify_member is trust


@pytest.mark.parametrize(
    ("node", "trusting", "message"),
    [
        ({"partition-id": 1}, True, "start the SuperNode with coterie-device=FOLDER"),
        ({"coterie-device": "d"}, False, "nothing says who is a real user"),
        ({"coterie-device": "d", "coterie-members": "missing.json"}, True, "missing.json cannot be read"),
        ({"coterie-device": "d", "coterie-least-privacy": "many"}, True, "coterie-least-privacy is 'many'"),
        ({"coterie-device": "d", "coterie-least-privacy": 1}, True, "a batch hides nobody with fewer than 2"),
        ({"coterie-device": "d", "coterie-protocols": "none"}, True, "protocols is"),
    ],
)
def test_a_node_that_is_configured_wrongly_is_told_how(node, trusting, message):
    """What is missing or wrong in a node's configuration is said, with what to write."""
    with pytest.raises(UsageError, match=message):
        Device.of_node(node, PERMITTED, TrustServerForIdentities() if trusting else None, simulated=None)


@pytest.mark.parametrize("text", ["[]", "{", '{"ana": 5}', '{"ana": "not hex"}'])
def test_a_file_that_lists_no_members_is_refused(tmp_path, text):
    """Pinned members are users and keys in hexadecimal."""
    (tmp_path / "members.json").write_text(text)
    with pytest.raises(UsageError, match="does not list members"):
        PinnedMembers(tmp_path / "members.json")


def test_the_log_of_refusals_is_bounded(tmp_path):
    """A server that asks for ever does not fill the disk; the last refusals are there."""
    device = Device.of_node({"partition-id": 0}, PERMITTED, TrustServerForIdentities(), simulated=tmp_path)
    for number in range(30):
        device.note_refusal(f"refusal {number}\n" + "x" * 100_000)
    files = list(device.folder.iterdir())
    assert sum(file.stat().st_size for file in files) < 3 * 2**20
    assert "refusal 29" in (device.folder / REFUSALS).read_text().splitlines()[-1]


RECIPE = Recipe(
    train={"lr": 0.5, "layers": ["a", "b"]}, evaluate={}, run_config={"local-epochs": 2},
    train_metrics=[("loss", 0.0, 2.0)], evaluate_metrics=[], weighted_by="n", records=Records("model", "settings"),
)  # fmt: skip


def test_the_app_sees_what_charter_and_terms_fix_and_nothing_else():
    """Numbers of run and node, the run's own configuration and state of earlier rounds are kept from the app."""
    seen = []

    def train(msg, context):
        seen.append((msg, context))
        context.state["kept"] = ConfigRecord({"x": 1})
        msg.content = RecordDict()
        return msg

    earlier = RecordDict({"secret": ConfigRecord({"x": 1})})
    context = Context(7, 8, {"partition-id": 1}, earlier, {"local-epochs": 99, "more": 1})
    work = Work("train", {"w": np.ones(2, dtype=np.float32)})
    call_app(Recipe.decode(RECIPE.encode()), work, 4, context, train)
    ((msg, own),) = seen
    assert (own.run_id, own.node_id, own.run_config) == (0, 0, {"local-epochs": 2})
    assert list(own.state) == ["kept"]
    assert list(context.state) == ["secret"]
    assert (msg.metadata.run_id, msg.metadata.message_id, msg.metadata.group_id) == (0, "", "")


def test_a_model_and_its_update_go_there_and_back():
    """Bytes of a model decode to the same arrays; an update added to them is the model after training."""
    arrays = {
        "w": np.arange(6, dtype=np.float32).reshape(2, 3),
        "n": np.array(3),
        "h": np.ones(2, dtype=np.float16),
    }
    work = Work.decode(Work("train", arrays).encode())
    assert work.dimension == 8
    after = ArrayRecord({name: Array(np.asarray(array + 1).astype(array.dtype)) for name, array in arrays.items()})
    row = work.update(after, [0.5])
    assert row.tolist() == [1.0] * 8 + [0.5]
    moved = work.moved_by(row.astype(np.float64))
    for name, array in arrays.items():
        changed = moved[name].numpy()
        assert changed.dtype == array.dtype
        assert np.array_equal(changed, array if name == "n" else array + 1)
    floats = ArrayRecord({name: Array(each.numpy().astype(np.float64)) for name, each in moved.items()})
    assert with_types_of(floats, like=moved)["n"].dtype == moved["n"].dtype


@pytest.mark.parametrize("data", [b"", b"\x92", b"rubbish", Work("train", {"w": np.ones(2)}).encode()[:-1]])
def test_a_model_that_cannot_be_read_is_the_servers_fault(data):
    """Bytes that are no model are refused as the other side's."""
    with pytest.raises(PeerError, match="model cannot be read"):
        Work.decode(data)


def test_metrics_outside_their_bounds_are_cut():
    """A metric moves a sum by its bounds at most; one that is missing is the app's mistake."""
    metrics = Metrics({"loss": (0.0, 2.0)})
    assert metrics.coordinates({"loss": 99}, clip=0.5) == [0.5]
    assert metrics.coordinates({"loss": -1.0}, clip=0.5) == [-0.5]
    assert np.isnan(metrics.coordinates({"loss": float("inf")}, clip=0.5)).all()
    with pytest.raises(UsageError, match="gives no number as its metric 'loss'"):
        metrics.coordinates({"accuracy": 1.0}, clip=0.5)
    with pytest.raises(UsageError, match=r"bounds of the metric 'loss' are 2\.0 and 1\.0"):
        Metrics({"loss": (2.0, 1.0)})


def test_a_configuration_holds_what_json_holds():
    """The round's number is not part of a recipe, and bytes cannot be."""
    assert settings_of(ConfigRecord({"server-round": 3, "lr": 0.5}), "train_config") == {"lr": 0.5}
    with pytest.raises(UsageError, match="train_config has 'key' as bytes"):
        settings_of(ConfigRecord({"key": b"x"}), "train_config")
    assert Recipe.decode(RECIPE.encode()) == RECIPE
    with pytest.raises(PeerError, match="not one of a Flower federation"):
        Recipe.decode(b'{"lr":0.5}')
    reversed_bounds = msgspec.structs.replace(RECIPE, evaluate_metrics=[("loss", 2.0, 1.0)])
    with pytest.raises(PeerError, match=r"bounds of the metric 'loss' are 2\.0 and 1\.0"):
        Recipe.decode(reversed_bounds.encode())


def test_coterie_does_not_import_flower():
    """Neither the package nor its command line imports flwr, Ray or gRPC."""
    program = "import coterie, coterie.cli, sys; print({'flwr', 'ray', 'grpc'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "set()\n"
