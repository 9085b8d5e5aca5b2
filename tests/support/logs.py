"""Reading logs where only the log matters, and writing files of any form."""

from coterie.logs import read_log


def only_log(path, **options):
    """The log of a file, without what was understood of it."""
    return read_log(path, **options).log


def written(path, content):
    """Write text or bytes to a file, and return its path."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path
