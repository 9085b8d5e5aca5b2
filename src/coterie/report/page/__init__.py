"""The one style of all pages."""
