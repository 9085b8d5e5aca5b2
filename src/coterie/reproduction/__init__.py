"""The paper's tables and figures as runs: what is run, what came out, and whether the paper's claims held.

`definition` reads an experiment from its TOML file, `study` trains one model of it, `execution` runs what is still
missing, and `outcome` sets the results beside the paper's numbers.
"""
