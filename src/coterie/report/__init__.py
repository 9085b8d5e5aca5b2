"""Pages and figures for people, from verdicts, results and records alone; and `coterie.run`, which ends with one.

In: verdicts, results of runs, records.
Out: pages of one HTML file each, and figures as PNG and SVG.
"""
