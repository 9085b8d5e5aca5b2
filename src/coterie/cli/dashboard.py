"""`coterie dashboard`: watch a running federation in the browser."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli.ledger import LedgerArgument
from coterie.cli.options import waiting
from coterie.errors import UsageError

if TYPE_CHECKING:
    from coterie.pages.dashboard import LedgerWatch

PORT = 8642


def dashboard(
    ledger: LedgerArgument = "",
    host: Annotated[
        str, typer.Option(help="Where to listen (127.0.0.1 unless given: this machine only).", show_default=False)
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help=f"The port ({PORT} unless given; 0 for any that is free).", show_default=False)
    ] = PORT,
    require: Annotated[
        int | None, typer.Option(help="The privacy level that must hold; the plan's T unless given.")
    ] = None,
    browse: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    json_: Annotated[
        bool, typer.Option("--json", help="Print how things stand, as one JSON object, and end.")
    ] = False,
) -> None:
    """Watch a running federation in the browser.

    The page has levels, accuracy, batches, the round at work, alerts and a forecast. The ledger is only read, and
    the page follows it: while rounds run, after they end, and when they go on. It is served to this machine alone
    unless --host says otherwise; there is no password, and the page tells who took part when. Beside the page:
    /state.json for programs, /metrics for Prometheus, /health. Ctrl-C ends it, and changes nothing for the
    federation.

    Examples:

      coterie dashboard runs/1

      coterie dashboard postgresql://ana@host/federation?ledger=photos --require 8 --port 9000
    """
    _check_packages()
    if require is not None and require < 1:
        raise UsageError(f"--require is {require}: give the least level, 1 or more")
    if not 0 <= port < 1 << 16:
        raise UsageError(f"--port is {port}: give a number from 0 to {(1 << 16) - 1}")
    from coterie.pages.dashboard import LedgerWatch

    watch = LedgerWatch(ledger, require)
    if json_:
        from coterie.pages.dashboard_server import state_tables

        with waiting("Reading the ledger"):
            state = watch.look()
            watch.close()
        typer.echo(json.dumps(state_tables(state), allow_nan=False))
        return
    _serve(watch, host, port, browse=browse)


def _serve(watch: LedgerWatch, host: str, port: int, *, browse: bool) -> None:
    """Serve until Ctrl-C."""
    import errno
    import socket

    import uvicorn

    from coterie.pages.dashboard_server import Follower, application, host_names, is_loopback

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen()
        except OSError as error:
            elsewhere = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
            advice = (
                "give an address of this machine as --host" if elsewhere else "choose another --port, 0 for any"
            )
            raise UsageError(f"{host}:{port} cannot be listened on: {error.strerror}; {advice}") from None
        follower = Follower(watch)
        with waiting("Reading the ledger"):
            follower.start()
        name = f"[{host}]" if ":" in host else host
        url = f"http://{name}:{listener.getsockname()[1]}/"
        if not is_loopback(host):
            typer.echo("coterie: warning: everybody who reaches this address sees who took part when", err=True)
        typer.echo(f"The dashboard is at {url} (Ctrl-C ends it)")
        if browse:
            typer.launch(url)
        app = application(follower, host_names(host), lambda: server.should_exit)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2))
        with suppress(KeyboardInterrupt):  # the way in which this ends
            server.run(sockets=[listener])
        follower.stop()


def _check_packages() -> None:
    from importlib.util import find_spec

    needed = ("starlette", "uvicorn", "prometheus_client", "jinja2", "PIL")
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise UsageError(f"coterie dashboard needs {', '.join(missing)}: pip install 'coterie[dashboard]'")
