"""A ledger in PostgreSQL: addresses, refusals, and connections that end."""

import os

import psycopg
import pytest

from coterie import UsageError
from coterie.federation.ledger import BusyError, Ledger
from coterie.federation.ledger.ledger import verify
from coterie.federation.ledger.postgres import _Address
from support.cli.command import coterie
from support.ledgers import database, federation, known
from support.postgres import fresh_ledger


@pytest.fixture
def url(postgres):
    """A ledger that is not there yet."""
    return fresh_ledger(postgres)


@pytest.mark.parametrize(
    ("url", "shown", "ledger"),
    [
        ("postgresql://ana:s3cret@host:5433/fed", "postgresql://ana@host:5433/fed", "coterie"),
        (
            "postgresql://host/fed?password=s3cret&ledger=photos",
            "postgresql://host/fed?ledger=photos",
            "photos",
        ),
        ("postgres://[::1]/fed?sslpassword=s3cret", "postgres://[::1]/fed", "coterie"),
        ("postgresql:///fed?host=/run/pg&options=s3cret", "postgresql:///fed?host=/run/pg", "coterie"),
    ],
)
def test_messages_show_where_and_no_secret(url, shown, ledger):
    """An address names server, database and ledger, and nothing that opens a door."""
    address = _Address(url)
    assert (str(address), address.ledger) == (shown, ledger)


@pytest.mark.parametrize("name", ["Photos", "1x", "a-b", "x;drop", "", "x" * 64])
def test_names_of_ledgers_are_plain(postgres, name):
    """The name is a schema's: small letters, digits, underscores."""
    with pytest.raises(UsageError, match="the ledger's name is"):
        Ledger.create(f"{postgres}&ledger={name}")


def test_several_ledgers_live_in_one_database(postgres):
    """Each has its own records, its own rounds and its own coordinator."""
    urls = [fresh_ledger(postgres) for _ in range(2)]
    with federation(urls[0]) as one, federation(urls[1]) as two, one.claim(), two.claim():
        one.skip_round("only here")
        two.refresh()
        assert (one.next_round, two.next_round) == (6, 5)
        assert one.id != two.id


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda url, _: "postgresql://x:s3cret@127.0.0.1:1/fed", "the server cannot be reached"),
        (lambda url, _: url.replace("postgres:@", "nobody:s3cret@"), "the user or the password is not accepted"),
        (lambda url, _: url.replace("/postgres?", "/missing?"), "the server has no such database"),
        (lambda url, _: f"{url}x", "has no ledger 'test_"),
        (lambda url, _: f"{url}&nonsense=s3cret", "the URL is not one that PostgreSQL knows"),
        (lambda url, _: "postgresql://x:s3cret@[host/fed", "the PostgreSQL URL cannot be read"),
        (lambda url, _: url.replace("ledger=", "ledger=public&x="), "the URL is not one"),
        (lambda _, postgres: f"{postgres}&ledger=public", "the schema 'public' is not a ledger's"),
    ],
)
def test_what_cannot_be_opened_is_explained_without_the_password(postgres, url, change, message):
    """Server away, wrong user, no such database or ledger, odd options: each has its sentence."""
    with pytest.raises(UsageError, match=message) as caught:
        Ledger.open(change(url, postgres))
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in str(caught.value.__cause__)


def test_a_wrong_password_is_explained(postgres, url):
    """A server that asks for a password gets the wrong one; the message says so and does not show it."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        ((file,),) = connection.execute("SHOW hba_file").fetchall()
        connection.execute("CREATE ROLE asked LOGIN PASSWORD 'right'")
        with open(file, encoding="utf-8") as rules:  # noqa: PTH123 - the server's own path
            before = rules.read()
        try:
            with open(file, "w", encoding="utf-8") as rules:  # noqa: PTH123
                rules.write("local all asked scram-sha-256\n" + before)
            connection.execute("SELECT pg_reload_conf()")
            connection.execute("SELECT pg_sleep(0.3)")
            for given in ("asked:s3cret@", "asked@"):
                with pytest.raises(UsageError, match="the user or the password is not accepted") as caught:
                    Ledger.open(url.replace("postgres:@", given))
                assert "s3cret" not in str(caught.value)
            with pytest.raises(UsageError, match="the user lacks a right"):
                Ledger.create(url.replace("postgres:@", "asked:right@"))
        finally:
            with open(file, "w", encoding="utf-8") as rules:  # noqa: PTH123
                rules.write(before)
            connection.execute("SELECT pg_reload_conf()")


def test_a_connection_that_is_cut_takes_the_lease_with_it(postgres, url):
    """The server ends the session: the coordinator cannot go on, another one can, and nothing is lost."""
    federation(url).close()
    with Ledger.open(url) as one, Ledger.open(url) as two:
        with one.claim():
            number = one.skip_round("before")
            with pytest.raises(BusyError), two.claim(wait=0):
                pass
            with psycopg.connect(postgres, autocommit=True) as admin:
                admin.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted"
                )
            with two.claim(wait=20):
                assert two.skip_round("after") == number + 1
                with pytest.raises(UsageError, match=r"is stopping|connection is gone"):
                    one.skip_round("never")
        with Ledger.open(url) as again:
            assert known(again) == known(two)
    assert verify(url).sound


def test_commits_are_durable_where_the_server_is_set_up_not_to_wait(url):
    """A database with synchronous_commit off does not make a ledger forgetful."""
    federation(url).close()
    plain = url.partition("&ledger=")[0]
    with psycopg.connect(plain, autocommit=True) as admin:
        admin.execute("ALTER DATABASE postgres SET synchronous_commit = off")
        try:
            with Ledger.open(url) as ledger:
                connection = ledger._store._connection  # noqa: SLF001 - the session's own setting
                assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
        finally:
            admin.execute("ALTER DATABASE postgres RESET synchronous_commit")


def test_reading_only_never_appends(url):
    """A ledger that is open for reading refuses every operation."""
    federation(url).close()
    with Ledger.open(url, read_only=True) as ledger, pytest.raises(UsageError, match="for reading only"):
        ledger.enrol(["new"])


def test_a_socket_without_a_user_in_the_address(url):
    """`postgresql:///database?host=…` is an address, too."""
    address = url.replace("postgres:@/", "/").replace("?", "?user=postgres&")
    with federation(address) as ledger:
        assert ledger.place == address


def test_a_lock_that_lasts_is_explained(url, monkeypatch):
    """While another session holds the head an append waits, then says that, and can be tried again."""
    monkeypatch.setattr("coterie.federation.ledger.postgres._SETTINGS", "SET lock_timeout = '50ms'")
    federation(url).close()
    with Ledger.open(url) as ledger, database(url) as run:
        run("BEGIN")
        run("SELECT * FROM head FOR UPDATE")
        with pytest.raises(UsageError, match="another process has held it"):
            ledger.enrol(["new"])
        run("ROLLBACK")
        assert ledger.enrol(["new"]) == range(12, 13)


def test_a_ledger_belongs_to_the_process_that_opened_it(url):
    """A forked child cannot use it: two processes on one connection would garble what they send."""
    with federation(url) as ledger:
        child = os.fork()
        if child == 0:
            try:
                ledger.enrol(["new"])
            except UsageError as error:
                os._exit(7 if "opened in another process" in str(error) else 1)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert ledger.enrol(["new"]) == range(12, 13)


def test_an_endless_view_in_a_tables_place_is_refused_unread(postgres):
    """What is in the schema is checked before a row is read."""
    url = fresh_ledger(postgres)
    Ledger.create(url).close()
    with database(url) as run:
        run("DROP TABLE record")
        run(
            "CREATE VIEW record AS WITH RECURSIVE n(i) AS (SELECT 1::bigint UNION ALL SELECT i + 1 FROM n) "
            "SELECT i AS seq, 0::bigint AS time, 'x' AS kind, ''::bytea AS hash, ''::bytea AS body FROM n"
        )
    for use in (Ledger.open, verify):
        with pytest.raises(UsageError, match="is not a ledger's; choose another name"):
            use(url)


def test_a_server_that_does_not_sync_is_told(postgres):
    """With fsync off (as for these tests) the ledger says that it is not durable; `ledger show` shows it."""
    with Ledger.create(fresh_ledger(postgres)) as ledger:
        assert not ledger.durable
        assert "Not durable: the server has fsync off" in coterie("ledger", "show", ledger.place).stdout
