"""What tests of pages share: the browser."""

from browser import chromium

__all__ = ["chromium"]
