"""A second reader of ledgers, for whoever does not want to trust the first: it uses nothing of Coterie's.

`python verify_ledger.py ledger.sqlite [HASH]` checks the chain and prints, for every round, the sets of users that
count as learned; HASH, a head that was kept elsewhere, must be the hash of one of the records.
"""
# ruff: noqa: ANN001, ANN201 - one page for people to read

import hashlib
import json
import sqlite3
import struct
import sys
import zlib
from contextlib import closing


def arrays(sizes, data, at):
    """Read the arrays of one field; return them and where they end."""
    found = []
    for size in sizes:
        count, width = size if isinstance(size, list) else (size, 1)
        raw = data[at : at + count * width]
        at += count * width
        form = {1: "b", 2: "h", 4: "i", 8: "q"}[width]
        found.append(list(struct.unpack(f"<{count}{form}", raw)) if isinstance(size, list) else raw)
    return found, at


def running(steps):
    """Return the running sums of steps."""
    total, sums = 0, []
    for step in steps:
        total += step
        sums.append(total)
    return sums


def decoded(body):
    """Return the fields of a record: what rises as a list, lists of such as lists of lists."""
    line, _, data = zlib.decompress(body).partition(b"\n")
    fields, at = json.loads(line), 0
    for name in sorted(fields):
        value = fields[name]
        if name in ("names", "reasons") or not isinstance(value, list):
            continue
        parts, at = arrays(value, data, at)
        if len(parts) == 1:
            fields[name] = running(parts[0])
        elif isinstance(parts[1], bytes):
            fields[name] = parts
        else:
            members = iter(running(parts[1]))
            fields[name] = [[next(members) for _ in range(size)] for size in parts[0]]
    return fields


def chain(rows):
    """Check numbers and hashes; return (kind, fields) of every record, and all hashes."""
    previous, records, hashes = bytes(32), [], []
    for expected, (seq, time, kind, body, digest) in enumerate(rows, start=1):
        state = hashlib.sha256()
        for field in (previous, struct.pack("<q", seq), struct.pack("<q", time), kind.encode(), body):
            state.update(struct.pack("<Q", len(field)) + field)
        if seq != expected or state.digest() != digest:
            raise SystemExit(f"record {expected} is missing, or was changed")
        previous = digest
        records.append((kind, decoded(body)))
        hashes.append(digest)
    return records, hashes


def exposure(records):
    """Return, for every round, the sets of users that count as learned."""
    batches, opened, rounds = [], None, {}
    for kind, event in records:
        if kind == "planned":
            batches = event["batches"]
        elif kind == "skipped":
            rounds[event["round"]] = []
        elif kind == "opened":
            groups = [batches[b] for b in event["asked"]] if event["plan"] else [[u] for u in event["asked"]]
            users = sorted(user for group in groups for user in group)
            opened = groups, users
            rounds[event["round"]] = [sorted(g) for g in groups] if event["sealed"] else [[u] for u in users]
        elif kind == "closed":
            groups, users = opened
            source = groups if event["whole"] else [[user] for user in users]
            learned = [sorted(user for place in each for user in source[place]) for each in event["learned"]]
            rounds[event["round"]] = learned + [[users[place]] for place in event["alone"]]
        elif kind == "exposed":
            rounds[event["round"]] += event["learned"] + [[user] for user in event["alone"]]
    return rounds


def main(path, kept=None):
    """Verify a ledger's file and print its rounds."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        records, hashes = chain(database.execute("SELECT seq, time, kind, body, hash FROM record ORDER BY seq"))
        head = database.execute("SELECT count, hash FROM head").fetchall()
    if head != [(len(hashes), hashes[-1])]:
        raise SystemExit("the head is not where the records end")
    if kept is not None and bytes.fromhex(kept) not in hashes:
        raise SystemExit("no record has that hash: this is another ledger, or it was written anew, or cut")
    names = [name for kind, event in records if kind == "enrolled" for name in event["names"]]
    for round_, sets in exposure(records).items():
        print(json.dumps({"round": round_, "learned": [[names[user] for user in users] for users in sets]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
