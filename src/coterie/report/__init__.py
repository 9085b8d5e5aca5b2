"""Pictures for people, drawn from records only: any figure can be made again from its record.

In: verdicts, results of runs, records.
Out: pages of one HTML file each, and figures as PNG and SVG.
"""
