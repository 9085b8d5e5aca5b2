"""A running federation in the browser: what its ledger tells, read only, while rounds go on.

`state` follows the ledger and holds what it tells, `alerts` says what somebody should look at, `page` shows it
to people, `tables` to programs and to Prometheus, and `server` serves all of it.

In: a ledger that somebody else writes, and the level that must hold.
Out: a page that keeps itself up to date, `/state.json`, `/metrics`.
"""
