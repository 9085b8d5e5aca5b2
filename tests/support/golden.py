"""What the golden files hold, and how those of a device in the middle of a round and of a run are made."""

import contextlib
import json
import shutil
from pathlib import Path

import numpy as np

from coterie import BatchPlan, LogBuilder
from coterie.federation.device_file import DeviceFile
from coterie.lab.training.data import Partition
from coterie.secagg import (
    DurableClient,
    IdentityKey,
    Membership,
    MemoryStore,
    SealedClient,
    TrustServerForIdentities,
    found_batch,
    sealed_round,
)
from support.secagg.batches import configuration, rules, terms, updates

NAMES = ("ana", "bob, the 2nd", "Zoë", "d", "e")
PLAN = BatchPlan.from_batches(users=5, privacy=2, batches=[[0, 2], [1, 3, 4]], names=NAMES)
PARTITION = Partition.from_users(examples=5, users=[[0, 2], [4]])


def _log():
    builder = LogBuilder(5, NAMES, first=3)
    builder.append([0, 2], [1, 3, 4])
    builder.append()
    builder.append([0, 1, 2, 3, 4])
    return builder.build()


LOG = _log()
"""Two learned sets in round 3, none in round 4, everybody in round 5."""

ME = "user-0-0"
BATCHES = [[f"user-{batch}-{member}" for member in range(3)] for batch in range(3)]
INNER = "secagg+"


def stored_client(folder):
    """A user's client, over the files of its device."""
    device, rounds = (DeviceFile.open(folder / f"{name}.sqlite") for name in ("device", "rounds"))
    identity = IdentityKey.from_bytes(device.identity)
    return DurableClient(
        Membership(ME, identity, configuration(protocols={INNER}), TrustServerForIdentities(), device), rounds
    )


def write_device(folder):
    """Write a device between two messages, with the message that comes next."""
    folder.mkdir(parents=True, exist_ok=True)
    identities = {name: IdentityKey.generate() for batch in BATCHES for name in batch}
    for name in ("device", "rounds"):
        (folder / f"{name}.sqlite").unlink(missing_ok=True)
        DeviceFile.create(folder / f"{name}.sqlite", identity=identities[ME].to_bytes()).close()
    clients = {}
    for name, identity in identities.items():
        member = Membership(
            name, identity, configuration(protocols={INNER}), TrustServerForIdentities(), MemoryStore()
        )
        clients[name] = SealedClient(member)
    clients[ME] = stored_client(folder)
    common = rules(inner=INNER, privacy=3)
    charters = [found_batch(common, [clients[name] for name in batch]) for batch in BATCHES]
    server, given = sealed_round(charters, 0, terms(min_included=6)), updates(clients)
    for user, data in server.start().items():
        server.receive(user, clients[user].seal(clients[user].receive(data), given[user]))
    outgoing = server.advance()
    (folder / "next.bin").write_bytes(bytes(outgoing[ME]))
    for lease in folder.glob("*-lease"):
        lease.unlink()


def write_flower_checkpoint(folder):
    """Write the checkpoint of a federation whose strategy remembers a list of arrays."""
    from flwr.app import Array, ArrayRecord

    from coterie.flower.checkpoint import CheckpointFolder, FlowerCheckpoint

    arrays = ArrayRecord({"layer.weight": Array(np.arange(6, dtype=np.float32).reshape(2, 3))})
    momentum = [np.array([0.5, -0.25])]
    CheckpointFolder(folder).write(FlowerCheckpoint(3, arrays, {"momentum": momentum}), "")


def write_participation(path):
    """Write the log that Flower's line leaves of two runs: two users, nobody, then three."""
    from coterie.flower.recorder import _Recorder, name_by_key

    path.unlink(missing_ok=True)
    recorder = _Recorder(path, name_by_key, run="12", names={1: "ana", 2: "bob, the 2nd", 3: "Zoë"})
    recorder.append(1, [1, 2])
    recorder.append(2, [])
    again = _Recorder(path, name_by_key, run="13", last=2, names=recorder.names)
    again.append(1, [3, 1, 2])


def write_experiment(folder):
    """Write the data of six users, a run of two rounds over them with all that it keeps, and an attack on it."""
    from coterie.cli.attack import _write_results
    from coterie.lab.attacks.attack import attack_run, read_attacked_run
    from coterie.lab.experiments.result import read_run
    from coterie.lab.experiments.run import Run
    from coterie.lab.experiments.spec import Spec
    from coterie.pages.run import write_run_report

    shutil.rmtree(folder, ignore_errors=True)
    (folder / "data").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name in ("test", *(f"user-{user}" for user in range(6))):
        labels = np.arange(8, dtype=np.uint8) % 2
        images = rng.integers(0, 64, (8, 1, 2, 2), dtype=np.uint8) + 128 * labels[:, None, None, None]
        np.savez(folder / "data" / f"{name}.npz", images=images, labels=labels)
    changes = {
        "seed": 1, "keep_aggregates": True, "data.source": "data", "data.users": 6, "selection.per_round": 4,
        "selection.scheme": "T2", "selection.dropout": [0.0], "selection.lost": 0.0, "training.rounds": 2,
        "training.model": "logistic", "aggregation.protocol": "plain",
    }  # fmt: skip
    with contextlib.chdir(folder):
        run = Run.start(Spec().changed(changes), Path("run"))
        for _ in run.steps():
            pass
        run.close()
        write_run_report(read_run(run.folder.path), "2026-11-18")
        attack = Path("run/attack")
        attack.mkdir()
        verdict = attack_run(read_attacked_run(run.folder.path))
        _write_results({"schemes": [verdict.record()], "out": str(attack)}, attack)
    for file in folder.rglob("*"):  # pages and pictures are for people: nobody reads them back
        if file.suffix in {".html", ".png", ".lock"} or file.name.endswith(("-lease", "-phase")):
            file.unlink()
    (folder / "run" / "figures").rmdir()


def simulation_record():
    """The record of a simulation, as `coterie simulate` writes it."""
    from coterie.cli.simulation_view import full_record
    from coterie.selection.simulation import simulate

    result = simulate(
        users=6, per_round=4, schemes=["random", "T2"], rounds=3, trials=2, dropout=[0.1, 0.3], seed=1, processes=1
    )
    return full_record(result, "dropout 0.1,0.3, independent")


def write_simulation(folder):
    """Write what `coterie simulate --out` writes for programs."""
    from coterie.cli.simulation_view import _save_record
    from coterie.pages.figures import write_curves

    folder.mkdir(exist_ok=True)
    record = simulation_record()
    _save_record(record, folder)
    write_curves(json.loads(json.dumps(record)), folder)
    (folder / "rows.parquet").unlink(missing_ok=True)


def lost_fields(stored, today, where="."):
    """The fields of a stored object that today's lacks, or in which it has a value of another kind.

    Objects for other programs have no version. What holds for them is that fields are only added.
    """
    if stored is None or today is None:
        return []
    if isinstance(stored, dict) and isinstance(today, dict):
        lost = [f"{where}{name}" for name in stored.keys() - today.keys()]
        shared = sorted(stored.keys() & today.keys())
        return lost + [
            each for name in shared for each in lost_fields(stored[name], today[name], f"{where}{name}.")
        ]
    if isinstance(stored, list) and isinstance(today, list):
        pairs = zip(stored, today, strict=False)
        return [each for place, pair in enumerate(pairs) for each in lost_fields(*pair, f"{where}{place}.")]
    kinds = [float if type(value) is int else type(value) for value in (stored, today)]
    return [] if kinds[0] is kinds[1] else [where]
