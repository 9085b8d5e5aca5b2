"""Files that are written whole or not at all, and the project's own small file formats.

In: bytes, plans.
Out: files that are there whole or not at all; plans read back.
"""
