"""Files that earlier versions wrote are read as they were meant, or refused by their version, never guessed at."""

import hashlib
import json
import shutil
import sqlite3
from pathlib import Path

import msgspec
import numpy as np
import pytest

from coterie import PeerError, UsageError
from coterie.federation.device_file import DeviceFile
from coterie.federation.ledger import Ledger
from coterie.federation.ledger.ledger import verify
from coterie.lab.experiments.folder import RunFolder, read_record
from coterie.secagg.protocols import messages_from_client
from coterie.secagg.protocols.pairwise import PairwiseRound
from support.golden import lost_fields, simulation_record, stored_client
from support.ledgers import LEARNED, NAMES, PLAN
from support.secagg.batches import SCOPE

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def golden(tmp_path):
    """Copies of the golden files, which a test may open for writing."""
    folder = shutil.copytree(GOLDEN, tmp_path / "golden")
    for device in (folder / "device.sqlite", *folder.glob("devices/*/*.sqlite")):
        device.chmod(0o600)
    return folder


def test_a_ledger_of_version_2(golden):
    """Users, plan, rounds, late sums, retired and overridden batches are what was written."""
    assert verify(golden / "ledger.sqlite").sound
    with Ledger.open(golden / "ledger.sqlite") as ledger:
        snapshot = ledger.snapshot()
    assert snapshot.names == tuple(NAMES)
    assert [snapshot.plan.batch(batch).tolist() for batch in range(4)] == [
        PLAN.batch(batch).tolist() for batch in range(4)
    ]
    learned = {round_: [users.tolist() for users in sets] for round_, sets in snapshot.log.by_round() if sets}
    expected = {round_: [list(users) for users in sets] for round_, sets in LEARNED.items()}
    expected[0] += [[3, 4, 5], [7]]
    assert learned == expected
    assert snapshot.files == {"spec": "ab" * 32}
    assert [each.users.tolist() for each in snapshot.retired] == [[3, 4, 5]]
    assert [each.users.tolist() for each in snapshot.overrides] == [[0, 1, 2]]


def test_a_device_of_version_2(golden):
    """Identity and record come back."""
    with DeviceFile.open(golden / "device.sqlite") as device, device.transaction("keyboard") as slot:
        assert (device.identity, slot.content) == (bytes(range(32)), b"the record of a scope")


def test_a_device_in_the_middle_of_a_round(golden):
    """A device that stored its state after one message answers the next one, and no third."""
    folder = golden / "devices" / "durable"
    following = (folder / "next.bin").read_bytes()
    answer, _ = messages_from_client.decode(stored_client(folder).receive(following))
    assert type(answer) in PairwiseRound.kinds
    with pytest.raises(PeerError, match="out of order"):
        stored_client(folder).receive(following)


def test_a_stored_round_of_another_version_is_refused(golden):
    """It is not guessed at, and the message says what was expected."""
    folder = golden / "devices" / "durable"
    with DeviceFile.open(folder / "rounds.sqlite") as rounds, rounds.transaction(SCOPE) as slot:
        fields = msgspec.msgpack.decode(slot.content)
        slot.content = msgspec.msgpack.encode([*fields[:-1], 9])
    with pytest.raises(UsageError, match=r"cannot be read .*of another Coterie"):
        stored_client(folder).receive((folder / "next.bin").read_bytes())


def test_a_flower_checkpoint_of_version_1(golden):
    """Model and the strategy's memory come back; another version is refused by its number."""
    from coterie.flower.checkpoint import CheckpointFolder

    (path,) = (golden / "flower").glob("*.npz")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    found = CheckpointFolder(golden / "flower").read(digest)
    assert (found.server_round, found.arrays["layer.weight"].numpy().tolist()) == (3, [[0, 1, 2], [3, 4, 5]])
    assert [each.tolist() for each in found.state["momentum"]] == [[0.5, -0.25]]
    with np.load(path) as arrays:
        content = {name: arrays[name] for name in arrays.files}
    layout = content["layout"].tobytes().replace(b'"version": 1', b'"version": 9')
    np.savez(path, **content | {"layout": np.frombuffer(layout, dtype=np.uint8)})
    later = hashlib.sha256(path.read_bytes()).hexdigest()
    path.rename(path.with_name(f"model-{later[:32]}.npz"))
    with pytest.raises(UsageError, match="has the version 9; this Coterie reads version 1"):
        CheckpointFolder(golden / "flower").read(later)


def test_a_record_of_format_2(golden):
    """The head and the row come back."""
    record = read_record(golden / "record.jsonl")
    assert (record.head["users"], [row.step for row in record.rows], record.rows[0].accuracy) == (9, [1], 0.5)


def test_a_checkpoint_and_a_pending_result(golden):
    """Arrays and row come back, under the digest of the file."""
    folder = RunFolder(golden)
    path = folder.checkpoint_file(1)
    found = folder.checkpoint(1, hashlib.sha256(path.read_bytes()).hexdigest())
    assert found.parameters["layer.weight"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found.parameters["layer.weight"].dtype == np.float32
    assert found.row == read_record(golden / "record.jsonl").rows[0]
    pending = folder.pending(3, hashlib.sha256((golden / "pending.npz").read_bytes()).hexdigest())
    assert (pending.round, pending.mean.tolist(), pending.training_loss) == (3, [0.5, -0.25], 1.25)


def test_another_version_is_refused_by_its_number(golden):
    """A ledger, a device and a record that say another version are not read, and the message has the number."""
    for name in ("ledger", "device"):
        connection = sqlite3.connect(golden / f"{name}.sqlite")
        connection.execute("PRAGMA user_version = 9")
        connection.close()
    record = golden / "record.jsonl"
    record.write_text(record.read_text().replace('"format": 2', '"format": 9'))
    with pytest.raises(UsageError, match="has the version 9"):
        Ledger.open(golden / "ledger.sqlite")
    with pytest.raises(UsageError, match="has the version 9"):
        DeviceFile.open(golden / "device.sqlite")
    with pytest.raises(UsageError, match="is not a run's record of format 2"):
        read_record(record)


def test_a_simulation_s_record_and_rows(golden, tmp_path):
    """The stored record gives the stored rows, byte for byte, and a picture; today's record has all its fields."""
    from coterie.pages.figures import key_metrics, write_curves

    stored = json.loads((golden / "simulation" / "record.json").read_text())
    assert [scheme["curves"]["cardinality"][0] for scheme in stored["schemes"]] == [4.0, 2.0]
    rows = write_curves(stored, tmp_path)[0]
    assert rows.read_bytes() == (golden / "simulation" / "rows.csv").read_bytes()
    key_metrics(stored, tmp_path / "measures.svg")
    assert lost_fields(stored, json.loads(json.dumps(simulation_record()))) == []


def test_a_field_that_went_is_missed():
    """Objects without a version may gain fields, never lose them or change the kind of their values."""
    stored = {"users": 6, "schemes": [{"scheme": "T2", "psnr": None}]}
    assert lost_fields(stored, {"users": 6.5, "schemes": [{"scheme": "T2", "psnr": 1.0, "more": 1}]}) == []
    assert lost_fields(stored, {"schemes": [{"scheme": 2}]}) == [".users", ".schemes.0.psnr", ".schemes.0.scheme."]
