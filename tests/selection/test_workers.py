"""Work in several processes is stopped when nobody waits for it, and a dead process is an error in words."""

import os
import time

import pytest

from coterie.errors import CoterieError
from coterie.selection.workers import worker_processes


def work_until_stopped(path, check_stop):
    """Work without end, and note whether it was stopped."""
    (path / "begun").touch()
    try:
        while True:
            check_stop()
            time.sleep(0.01)
    finally:
        (path / "stopped").touch()


def die(check_stop):
    """Take the process down, as a lack of memory does."""
    del check_stop
    os._exit(1)


def test_work_that_runs_is_stopped(tmp_path):
    """Who leaves the block early waits for no result, and nothing goes on."""
    with worker_processes(work_until_stopped, 1, "forkserver") as submit:
        submit(tmp_path)
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
    assert (tmp_path / "stopped").exists()


def test_a_dead_process_is_named():
    """The message says what may have happened, and what to do."""
    with (
        pytest.raises(CoterieError, match=r"a worker process died, .*try again with fewer processes"),
        worker_processes(die, 1, "forkserver") as submit,
    ):
        submit().result()
