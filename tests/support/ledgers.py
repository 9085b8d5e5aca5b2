"""Ledgers for tests: small federations, their databases behind their backs, and plain copies of what they know."""

import contextlib
import itertools
import sqlite3
from hashlib import sha256

import numpy as np

from coterie import BatchPlan, Cohort
from coterie.federation.ledger import Ledger, events
from coterie.federation.ledger.events import Lists, encode
from coterie.federation.ledger.store import is_postgres_url

DATABASES = ("sqlite", "postgres")
NAMES = [f"user {index}" for index in range(12)]
PLAN = BatchPlan.from_batches(12, 3, [range(3), range(3, 6), range(6, 9), range(9, 12)])


def ticking():
    """A clock that ticks a second at every look."""
    times = itertools.count(1_700_000_000_000, 1000)
    return lambda: next(times)


def cohort_of(plan, batches):
    """The cohort of some batches."""
    batches = np.array(sorted(batches), dtype=np.int64)
    return Cohort(plan.users_of(batches), batches)


def cohort_of_users(users):
    """A cohort without batches."""
    return Cohort(np.array(sorted(users), dtype=np.int64), np.zeros(0, dtype=np.int64))


def federation(location):
    """A ledger with twelve users in four batches, and one round of each kind."""
    ledger = Ledger.create(location, clock=ticking())
    ledger.enrol(NAMES, [bytes([index]) * 32 for index in range(12)])
    ledger.publish_plan(PLAN)
    ledger.add_charters({0: b"charter 0", 2: b"charter 2"})
    with ledger.claim():
        digest = sha256(b"terms").digest()
        ledger.open_round(cohort_of(PLAN, [0, 1, 3]), sealed=True, protocol="open", terms_digest=digest)
        ledger.commit_round(0, [range(3), range(9, 12)], lost={1: "no answer"}, metrics={"loss": 0.5})
        ledger.skip_round("too few batches are whole")
        ledger.open_round(cohort_of(PLAN, [1, 2]), sealed=False, protocol="secagg")
        ledger.commit_round(2, [[3, 4, 6, 7, 8]], lost={1: "user 5 left"})
        ledger.open_round(cohort_of(PLAN, [0, 2]), sealed=True, protocol="open")
        ledger.abandon_round(3, "the model diverged", [range(3)])
        ledger.open_round(cohort_of(PLAN, [2, 3]), sealed=True, protocol="open")
    with ledger.claim():
        pass
    ledger.note(0, {"accuracy": 0.75}, {"model.pt": "ab" * 32})
    return ledger


LEARNED = {0: [range(3), range(9, 12)], 2: [[3, 4, 6, 7, 8]], 3: [range(3)], 4: [range(6, 9), range(9, 12)]}
"""What `federation` must be taken to have learned."""


def known(ledger):
    """Everything that a ledger's properties tell, and its open round, as plain values."""
    plan, current = ledger.plan, ledger._history.open  # noqa: SLF001 - `snapshot` would read the records again
    return {
        "head": ledger.head,
        "names": ledger.names,
        "keys": [ledger.key_of(user) for user in range(ledger.users)],
        "plan": None if plan is None else (plan.users, plan.privacy, plan.batch_of.tolist(), plan.names),
        "plan_number": ledger.plan_number,
        "charters": ledger.charters,
        "next_round": ledger.next_round,
        "steps": ledger.steps,
        "counts": ledger.counts.tolist(),
        "open": None if current is None else round_as_plain(current.round),
        "files": ledger.files,
        "failures": ledger.failures.tolist(),
        "retired": ledger.retired.tolist(),
    }


def round_as_plain(each):
    """A round whose arrays are lists."""
    fields = dict(vars(each))
    cohort = fields.pop("cohort")
    fields["cohort"] = None if cohort is None else (cohort.users.tolist(), cohort.batches.tolist())
    fields["learned"] = [users.tolist() for users in fields["learned"]]
    fields |= {name: fields[name].tolist() for name in ("alone", "included")}
    return fields


@contextlib.contextmanager
def database(location):
    """Give a function that runs SQL behind the ledger's back; parameters are written as ?."""
    if is_postgres_url(location):
        import psycopg

        url, _, name = location.rpartition("ledger=")
        with psycopg.connect(url.rstrip("?&"), autocommit=True) as connection:
            connection.execute(f"SET search_path TO {name}")

            def run(statement, *values):
                cursor = connection.execute(statement.replace("?", "%s"), values)
                return cursor.fetchall() if cursor.description else []

            yield run
    else:
        with contextlib.closing(sqlite3.connect(location, isolation_level=None)) as connection:
            yield lambda statement, *values: connection.execute(statement, values).fetchall()


def bodies():
    """The body of one event of every kind, with its type."""
    some = Lists.of([np.array([0, 2]), np.array([1])])
    nobody = np.zeros(0, dtype=np.int64)
    given = [
        events.Created(2, "x"),
        events.Bound({"spec": "ab" * 32, "data": "cd" * 32}),
        events.Enrolled(("ana", "bøb"), (b"key", None)),
        events.Planned(5, 2, Lists.of([np.array([0, 4]), np.array([1, 2, 3])])),
        events.Chartered(1, np.array([0, 7]), (b"", b"charter")),
        events.Retired(1, np.array([1]), "lost too often"),
        events.Overridden(1, np.array([0, 1]), "the owners want other batches"),
        events.Opened(3, 1, True, "open", "ab" * 32, "me", np.array([1, 5])),
        events.Closed(
            3, True, "", True, some, nobody, ["late"], Lists.of([np.array([3])]), {"loss": 0.5, "n": 3}, {}
        ),
        events.Exposed(3, Lists.of([np.array([0, 70_000])]), np.array([1, 300])),
        events.Unfinished(3, "me"),
        events.Skipped(4, "nobody"),
        events.Noted(3, {"loss": float("nan")}, {"model": "cd" * 32}),
    ]
    return [(type(event), encode(event)) for event in given]
