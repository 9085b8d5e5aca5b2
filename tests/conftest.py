"""What all tests share: how much is fuzzed and killed, a PostgreSQL server, and a browser."""

import gc
import os
import signal
from collections import Counter

# Set before anybody imports torch, and for children: two workers with two threads each only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings

from support.browser import chromium

__all__ = ["chromium"]  # a fixture

# A shell that starts the tests in the background has them ignore Ctrl-C, and all processes that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("coterie", deadline=None)  # a test never asserts how long something takes
settings.load_profile("coterie")


LONGEST = (
    "flower/test_deployment.py", "lab/experiments/test_resume.py", "flower/test_examples.py",
    "tutorial/test_digits.py", "flower/test_strategy.py", "cli/test_reproduce.py", "cli/test_run.py",
    "pages/test_dashboard_browser.py", "secagg/test_misbehaviour_pairwise.py", "test_examples.py",
    "tutorial/test_own_data.py", "federation/test_aggregation.py", "lab/experiments/test_faults.py",
    "flower/test_simulation.py", "lab/paper/test_completion.py", "lab/experiments/test_full_disk.py",
    "selection/test_simulation.py", "leakage/readers/test_claims.py", "secagg/test_account.py",
    "federation/test_kill.py", "selection/test_trade_off.py", "secagg/protocols/pairwise/test_rounds.py",
    "leakage/test_verdict.py", "lab/attacks/test_demonstration.py", "secagg/test_fuzz.py",
    "lab/paper/test_bare.py", "lab/training/test_hardware.py", "federation/ledger/test_nemesis.py",
)  # fmt: skip
"""The files that take longest, in order: begun last, one of them would keep a worker busy and the rest idle."""


def pytest_xdist_auto_num_workers(config):
    """Start two workers more than there are cores: many tests wait for other programs."""
    del config
    return os.cpu_count() + 2


def pytest_configure(config):
    """Have files begin in the order of the tests: xdist would put those with the fewest last, however long."""
    config.option.loadscopereorder = False


def pytest_collection_modifyitems(config, items):
    """Let parallel workers begin with the longest files, then those with most tests, so that all end together."""
    if hasattr(config, "workerinput"):
        tests = Counter(item.path for item in items)
        order = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
        items.sort(key=lambda item: (order.get(item.path, len(order)), -tests[item.path]))


def pytest_collection_finish():
    """Keep the garbage collector from walking through thousands of collected tests again and again."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser):
    """Let `--fuzz 1000000` try more messages, `--fuzz-seed` others, `--kills 100` more kills."""
    group = parser.getgroup("coterie")
    group.addoption("--fuzz", type=int, default=100_000, metavar="N", help="messages that the fuzzer tries")
    group.addoption("--fuzz-seed", type=int, default=1, metavar="SEED", help="which messages: 1 unless told")
    group.addoption("--kills", type=int, default=8, metavar="N", help="how often a ledger's coordinator is killed")


def pytest_report_header(config):
    """Say which messages the fuzzer tries, so that they can be tried again."""
    return f"fuzz: {config.getoption('--fuzz')} messages, --fuzz-seed {config.getoption('--fuzz-seed')}"


@pytest.fixture(scope="session")
def postgres():
    """The URL of a database in a PostgreSQL server that runs for these tests only, one per worker."""
    from support.postgres import running_server

    # Not below pytest's own folder, which only its user can enter: where that is root, the server runs as another.
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with running_server(Path(folder) / "data") as url:
            yield url
