"""How the sum of sealed vectors is taken: one package or file for each inner protocol."""
