"""Plans and logs that were written long ago are read as they were meant; a new writer writes the same bytes."""

from pathlib import Path

import pytest

from coterie import UsageError, read_log, read_plan, write_log, write_plan
from coterie.lab.training.data import read_partition, write_partition
from support.golden import LOG, PARTITION, PLAN

GOLDEN = Path(__file__).parents[0] / "golden" / "files"


def test_a_plan_of_version_1(tmp_path):
    """The plan comes back, and is written again byte for byte."""
    assert read_plan(GOLDEN / "plan.json") == PLAN
    write_plan(PLAN, tmp_path / "plan.json")
    assert (tmp_path / "plan.json").read_bytes() == (GOLDEN / "plan.json").read_bytes()


def test_a_partition_of_version_1(tmp_path):
    """The partition comes back, and is written again byte for byte."""
    assert read_partition(GOLDEN / "partition.json") == PARTITION
    write_partition(PARTITION, tmp_path / "partition.json")
    assert (tmp_path / "partition.json").read_bytes() == (GOLDEN / "partition.json").read_bytes()


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_log_of_version_1(tmp_path, suffix):
    """The log comes back from each of its forms; the texts are written again byte for byte."""
    path = GOLDEN / f"log.{suffix}"
    log = read_log(path).log
    again = {LOG.names[user]: user for user in range(5)}
    sets = [(round_, sorted(again[log.names[user]] for user in users)) for round_, users in log.sets()]
    assert sets == [(round_, users.tolist()) for round_, users in LOG.sets()]
    if suffix == "jsonl":
        assert log == LOG
    if suffix != "parquet":  # its bytes carry the version of the library that wrote them
        write_log(LOG, tmp_path / path.name)
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_a_log_of_a_flower_federation():
    """The lines have no version: users of each round come back; round 2 had no reply and has no line."""
    log = read_log(GOLDEN / "flower-log.jsonl").log
    sets = {round_: sorted(log.names[user] for user in users) for round_, users in log.sets()}
    assert sets == {1: ["ana", "bob, the 2nd"], 3: ["Zoë", "ana", "bob, the 2nd"]}


READERS = {"plan.json": read_plan, "partition.json": read_partition, "log.jsonl": read_log}


@pytest.mark.parametrize("name", READERS)
def test_a_later_version_is_refused_with_both_numbers(tmp_path, name):
    """A file of a version that this Coterie does not know is refused, and told which one it reads."""
    text = (GOLDEN / name).read_text()
    later = tmp_path / name
    later.write_text(text.replace('"version": 1', '"version": 2').replace('"version":1', '"version":2'))
    with pytest.raises(UsageError, match=r"version 2; this Coterie reads .*version 1"):
        READERS[name](later)
