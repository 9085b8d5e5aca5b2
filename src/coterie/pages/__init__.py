"""Pages and figures for people, from verdicts, results and records alone; and `coterie.run`, which ends with one."""
