"""LightSecAgg (docs/protocol.md §5): masks are shared in coded form, and the server decodes their sum once."""
