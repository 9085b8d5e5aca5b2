"""Exact audits: who is isolated among a thousand users, and the strong level of a long log read from Parquet."""

import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from measure import peak_megabytes
from pyarrow import parquet as pq

from coterie import LogBuilder
from coterie.leakage import Audit, strong_level
from coterie.leakage.readers import read_log

USERS, ROUNDS, PER_ROUND = 1_000, 1_500, 100
MANY_USERS, MANY_ROUNDS, MANY_PER_ROUND = 1_000_000, 10_000, 1_000
COMBINATIONS = 20


def run() -> dict[str, object]:
    """Read a long log and find its level; then prove for a random-selection log who is isolated since when."""
    with tempfile.TemporaryDirectory() as folder:
        streamed = _from_parquet(Path(folder) / "log.parquet")
    return {
        "what": f"audit: isolated users of {USERS} over {ROUNDS} rounds of {PER_ROUND}; strong level from Parquet",
        "isolated": _isolated(),
        "strong level from Parquet": streamed,
    }


def _isolated() -> dict[str, object]:
    rng = np.random.default_rng(0)
    builder = LogBuilder(USERS)
    for _ in range(ROUNDS):
        builder.append(rng.choice(USERS, PER_ROUND, replace=False))
    log = builder.build()
    start = time.perf_counter()
    audit = Audit.of(log, np.random.default_rng(0))
    settled = audit.settle()
    proven = time.perf_counter()
    listed = audit.combinations([found.user for found in audit.isolated[:COMBINATIONS]])
    end = time.perf_counter()
    return {
        "users": len(audit.isolated),
        "settled": settled,
        "seconds": proven - start,
        "bar_s": 20,
        "with_combinations": len(listed),
        "seconds_with_combinations": end - start,
        "longest_denominator_bits": max(found.denominator.bit_length() for found in listed.values()),
    }


def _from_parquet(path: Path) -> dict[str, object]:
    rng = np.random.default_rng(0)
    schema = pa.schema([("round", pa.int64()), ("user", pa.int32())])
    with pq.ParquetWriter(path, schema) as writer:
        for round_ in range(MANY_ROUNDS):
            users = np.sort(rng.choice(MANY_USERS, MANY_PER_ROUND, replace=False)).astype(np.int32)
            writer.write_table(pa.table({"round": np.full(MANY_PER_ROUND, round_), "user": users}, schema=schema))
    start = time.perf_counter()
    log = read_log(path, users=MANY_USERS).log
    middle = time.perf_counter()
    level = strong_level(log)
    end = time.perf_counter()
    return {
        "level": level,
        "seconds": end - start,
        "bar_s": 10,
        "seconds_reading": middle - start,
        "peak_MB": peak_megabytes(),
        "bar_MB": 2000,
    }
