"""One run, put together: the spec, the run, the record.

In: a `Spec`, and the data that it names.
Out: a run's folder: record, checkpoints, ledger; a run resumes from it.
"""
