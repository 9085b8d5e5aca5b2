"""Pages and figures for people, from verdicts, results and records; and `coterie.run`, which ends with one.

In: a `Verdict`, a run's folder, records of attacks and experiments, the ledger of a running federation.
Out: single HTML files, figures, and the dashboard with its JSON and Prometheus numbers.
"""
