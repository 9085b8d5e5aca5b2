"""A second reader, which shares no code with the first, finds the same in every ledger; vectors are published."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from coterie import BatchPlan
from coterie.federation.ledger import Ledger
from support.ledgers import cohort_of, database, federation

SCRIPT = Path(__file__).parents[3] / "docs" / "verify_ledger.py"
VECTORS = json.loads((Path(__file__).parent / "vectors" / "records.json").read_text())
READER = runpy.run_path(str(SCRIPT))


def second(path, *arguments):
    """Run the script."""
    command = [sys.executable, SCRIPT, path, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def random_ledger(path, seed):
    """A ledger after a random story: plans, merges, rounds of every kind, late sums."""
    rng = np.random.default_rng(seed)
    plan = BatchPlan.from_batches(12, 2, rng.permutation(12).reshape(4, 3).tolist())
    ledger = Ledger.create(path)
    ledger.enrol([f"Zoë {user}" for user in range(12)])
    ledger.publish_plan(plan)
    for step in range(12):
        plan = ledger.plan
        if step == 6:
            with ledger.claim():
                pass  # a round that was left open is closed before plans change
            merged = [*map(plan.batch, range(2)), np.concatenate([plan.batch(2), plan.batch(3)])]
            ledger.publish_plan(BatchPlan.from_batches(12, 2, [each.tolist() for each in merged]))
            continue
        batches = rng.choice(len(plan), rng.integers(1, len(plan)), replace=False)
        cohort = cohort_of(plan, batches.tolist())
        with ledger.claim():
            number = ledger.open_round(cohort, sealed=bool(rng.random() < 0.5), protocol="x")
            some = [rng.choice(cohort.users, rng.integers(1, len(cohort)), replace=False) for _ in range(2)]
            whole = [plan.batch(int(batch)) for batch in batches]
            match int(rng.integers(4)):
                case 0:
                    ledger.commit_round(number, whole, alone=cohort.users[:1])
                case 1:
                    ledger.abandon_round(number, "drawn", some)
                case 2:
                    ledger.commit_round(number, some)
        if step % 4 == 3:
            ledger.expose(0, [[0, 5, 11]], alone=[3])
    return ledger


@pytest.mark.parametrize("seed", range(8))
def test_both_readers_find_the_same_log(tmp_path, seed):
    """Round by round the same sets of names, and a chain that both take for sound."""
    with random_ledger(tmp_path / "ledger", seed) as ledger:
        log = ledger.log()
    run = second(tmp_path / "ledger", ledger.head.hash.hex())
    assert (run.returncode, run.stderr) == (0, "")
    found = {line["round"]: set(map(tuple, line["learned"])) for line in map(json.loads, run.stdout.splitlines())}
    assert found == {
        round_: {tuple(log.names[user] for user in users) for users in sets} for round_, sets in log.by_round()
    }


def test_the_second_reader_notices_what_was_changed(tmp_path):
    """An edited record, a missing one, a moved head, and a head kept elsewhere that is not there."""
    path = tmp_path / "ledger"
    federation(path).close()
    assert second(path).returncode == 0
    assert "no record has that hash" in second(path, "ab" * 32).stderr
    for statement, message in (
        ("UPDATE head SET count = count - 1", "the head is not where"),
        ("UPDATE record SET time = time + 1 WHERE seq = 4", "record 4 is missing, or was changed"),
        ("DELETE FROM record WHERE seq = 2", "record 2 is missing, or was changed"),
    ):
        with database(str(path)) as run:
            run(statement)
        assert message in second(path).stderr


def test_the_published_vectors_hold_for_both_readers(tmp_path):
    """Records as bytes, their hashes, and the rounds' sets: the second reader and ours agree with the file."""
    rows = [
        (row["seq"], row["time"], row["kind"], bytes.fromhex(row["body"]), bytes.fromhex(row["hash"]))
        for row in VECTORS["records"]
    ]
    records, _ = READER["chain"](rows)
    sets = {str(round_): learned for round_, learned in READER["exposure"](records).items()}
    assert sets == VECTORS["learned"]
    assert [fields for _, fields in records if "keys" not in fields and "charters" not in fields] == VECTORS[
        "fields"
    ]
    path = str(tmp_path / "ledger")
    Ledger.create(path).close()
    with database(path) as run:
        run("DELETE FROM record")
        for seq, time, kind, body, digest in rows:
            run(
                "INSERT INTO record (seq, time, kind, hash, body) VALUES (?, ?, ?, ?, ?)",
                seq,
                time,
                kind,
                digest,
                body,
            )
        run("UPDATE head SET count = ?, hash = ?", rows[-1][0], rows[-1][4])
    with Ledger.open(path, read_only=True) as ledger:
        ours = {str(r): [users.tolist() for users in learned] for r, learned in ledger.log().by_round()}
    assert ours == VECTORS["learned"]
    for bad in VECTORS["refused"]:
        with database(path) as run:
            run("UPDATE record SET body = ? WHERE seq = ?", bytes.fromhex(bad["body"]), bad["seq"])
        with pytest.raises(SystemExit, match=f"record {bad['seq']} "):
            READER["main"](path)
        with pytest.raises(Exception, match=f"record {bad['seq']} "):
            Ledger.open(path, read_only=True)
