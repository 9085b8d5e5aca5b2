"""WHAT a device remembers, durably: its identity, and one record per data scope."""

from coterie.device.file import DeviceFile, MonotonicCounter

__all__ = ["DeviceFile", "MonotonicCounter"]
