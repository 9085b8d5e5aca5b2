"""A deployment on loopback: a SuperLink and six SuperNodes as processes, T = 2, through every kind of death.

One federation goes through the whole file. What took part is read from the ledger, not from a clock: on a machine
that is busy a healthy node may answer too late, and its batch is then left out as any other.
"""

import json

import numpy as np
import pytest

import coterie
from coterie.federation.ledger import Ledger, State
from coterie.flower import create_device
from support.browser import until as until_seen
from support.browser import visit
from support.dashboard.serving import served
from support.flower.app import START, averaged
from support.flower.deployment import deployment, until

NODES, KILLED = 6, 5  # three batches: when one is lost, a round still adds several
CLOSE = 1e-4
PATIENCE = (
    600  # seconds for an answer: on a busy machine a node is slow, and one that is dead Flower reports itself
)


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    """The deployment, whose devices keep their folders through every restart."""
    with deployment(tmp_path_factory.mktemp("deployment"), NODES) as running:
        yield running


@pytest.fixture(scope="module")
def users(deployed):
    """The users' names, by partition; they follow from the devices' keys, which are made before the first run."""
    return [create_device(deployed.device(partition))[0] for partition in range(NODES)]


def snapshot(deployed):
    """What the ledger says."""
    with Ledger.open(deployed.folder / "ledger.sqlite", read_only=True) as ledger:
        return ledger.snapshot()


def result(deployed):
    """What the last run gave."""
    return json.loads((deployed.folder / "result.json").read_text())


def included(record, number, users):
    """The partitions whose sums a round gave."""
    return sorted(
        users.index(record.names[user]) for learned in record.rounds[number].learned for user in learned.tolist()
    )


def test_a_supernode_that_is_killed_in_a_round_takes_its_batch_along(deployed, users):
    """Enrolment, charters, and a round in which a node dies: the exact mean of the other batches comes out."""
    deployed.stall(KILLED).touch()
    run = deployed.begin(users=NODES, rounds=1, timeout=PATIENCE)
    until(deployed.stall(KILLED).with_suffix(".entered").exists)
    deployed.kill(KILLED)
    deployed.stall(KILLED).unlink()
    log = run.wait()
    record = snapshot(deployed)
    assert record.rounds[0].state is State.COMMITTED, log
    partitions = included(record, 0, users)
    batch = record.plan.batch_of[record.names.index(users[KILLED])]
    assert not {users[partition] for partition in partitions} & {
        record.names[user] for user in record.plan.batch(batch)
    }
    assert partitions
    assert batch in record.rounds[0].lost
    assert np.array(result(deployed)["weights"]) == pytest.approx(
        averaged(START["weights"], partitions), abs=CLOSE
    )
    assert result(deployed)["steps"] == 3


def test_a_serverapp_that_is_killed_leaves_a_round_that_counts(deployed, users):
    """The SuperNode is back; then the ServerApp dies while a node trains: the ledger has the round open."""
    deployed.start(KILLED)
    slow = included(snapshot(deployed), 0, users)[0]
    deployed.stall(slow).touch()
    run = deployed.begin(users=NODES, rounds=2, timeout=PATIENCE)
    until(deployed.stall(slow).with_suffix(".entered").exists)
    deployed.kill_server_app()
    until(lambda: not deployed.server_apps())
    run.stop_following()
    deployed.stall(slow).unlink()
    with Ledger.open(deployed.folder / "ledger.sqlite", read_only=True) as ledger:
        assert ledger.next_round == 2


def test_the_federation_goes_on_with_the_same_batches_and_model(chromium, deployed, users):
    """A new run resumes: next round, last model, the same users in the same batches; the audit gives T = 2."""
    before = np.array(result(deployed)["weights"], dtype=np.float32)
    plan = snapshot(deployed).plan
    # Whoever watches sees the round that was cut off, and then the federation going on, without a reload.
    with served(deployed.folder / "ledger.sqlite") as url, visit(chromium, url) as visited:
        until_seen(visited.page, "document.body.textContent.includes('A round was cut off')")
        log = deployed.begin(users=NODES, rounds=2, timeout=PATIENCE).wait()
        until_seen(visited.page, "document.querySelector('.kind').textContent.includes('3 rounds')")
        assert visited.page.locator(".leading .tile").first.inner_text().split("\n")[:2] == [
            "Strong privacy level T",
            "2",
        ]
        assert visited.complaints == []
    record = snapshot(deployed)
    assert [each.state for each in record.rounds] == [State.COMMITTED, State.UNFINISHED, State.COMMITTED], log
    assert np.array_equal(record.plan.batch_of, plan.batch_of)
    assert set(record.names) == set(users)
    partitions = included(record, 2, users)
    assert KILLED in partitions
    assert np.array(result(deployed)["weights"]) == pytest.approx(averaged(before, partitions), abs=CLOSE)
    assert "goes on after round 1" in log
    verdict = coterie.audit(deployed.folder / "ledger.sqlite")
    assert verdict.strong == 2
