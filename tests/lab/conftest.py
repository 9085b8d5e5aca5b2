"""What the tests of runs share: the data of the tiny run, and folders in memory."""

from support.experiments.tiny import data, new_folder

__all__ = ["data", "new_folder"]
