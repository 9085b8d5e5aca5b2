"""The data scope of a sealed run; each run that is measured has one of its own."""

SCOPE = "benchmark"
