"""Processes that begin with what they need loaded: forked from a server that a worker starts once."""

import multiprocessing

CONTEXT = multiprocessing.get_context("forkserver")
# Told when tests are collected, before any process is started: a server that runs takes no other list.
CONTEXT.set_forkserver_preload(
    [
        "coterie.federation.coordinator",
        "coterie.federation.device_file",
        "coterie.federation.ledger.postgres",
        "coterie.secagg",
        "coterie.secagg.loopback",
        "hypothesis",
        "psycopg",
        "pytest",
    ]
)
