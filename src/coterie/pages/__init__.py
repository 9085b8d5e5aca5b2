"""Pages and figures for people, from verdicts, results and records; and `coterie.run`, which ends with one."""
