"""Files that are written whole or not at all, and the project's own small file formats."""
