"""The paper's tables and figures as runs: what is run, what came out, and whether the paper's claims held.

`definition` reads an experiment from its TOML file, `runs` trains and simulates what is still missing of it,
`reconstruction` attacks its models, and `outcome` sets the results beside the paper's numbers.

In: the TOML files of `experiments/`.
Out: records of training runs, rows beside the paper's numbers, claims that held or not.
"""
