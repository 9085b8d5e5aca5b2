"""One run, put together: the spec, the run, the record."""
