"""Run a federation and remember it: the coordinator, the ledger, the device's file, and the audit of a ledger.

Import the parts themselves, for example `coterie.federation.coordinator`: a reader of ledgers needs no keys.

In: a selector, a ledger, a way to reach users; for an audit a log, a run's folder or a ledger.
Out: rounds that were asked, summed and recorded, in that order; a `Verdict` on what they gave away.
"""
