"""SecAgg and SecAgg+ (docs/protocol.md §5): one sum over all included users, with masks that outlive losses."""
