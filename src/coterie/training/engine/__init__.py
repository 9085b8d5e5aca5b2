"""Local training: many clients stacked, or one by one."""
