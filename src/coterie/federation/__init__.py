"""Run a federation and remember it: the coordinator, the ledger, the device's file, and the audit of a ledger.

Import the parts themselves, for example `coterie.federation.coordinator`: a reader of ledgers needs no keys.
"""
