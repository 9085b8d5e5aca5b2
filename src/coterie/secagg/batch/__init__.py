"""A batch: its charter, how it is founded, who is in it, and the chain of keys that seals its rounds."""
