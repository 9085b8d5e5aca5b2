# Everything a fresh machine needs is Python 3.11 or newer; each target sets up what it uses.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help run test lint bench docs clean

help:
	@echo "make run    train a model over 100 users who never show their updates; results and a report in out/"
	@echo "make test   all tests, doctests and documentation examples"
	@echo "make lint   ruff, mypy --strict, import layers"
	@echo "make bench  the numbers of benchmarks/, written to benchmarks/results"
	@echo "make docs   redraw the pictures and build the documentation into docs/_build"

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Coterie needs Python 3.11 or newer; run make PYTHON=python3.11")'
	@echo "Setting up .venv (once; a few minutes on a slow line) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --quiet --constraint constraints.txt --upgrade pip
	@$(BIN)/python -m pip install --quiet --quiet --constraint constraints.txt --editable '.[all]' --group dev
	@touch $@

.venv/installed-docs: .venv/installed
	@$(BIN)/python -m pip install --quiet --quiet --constraint constraints.txt --group docs
	@touch $@

run: .venv/installed
	@rm -rf out
	$(BIN)/coterie run --out out

test: .venv/installed
	@sh tests/packages.sh
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile

lint: .venv/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

.venv-bench/installed: pyproject.toml constraints.txt
	@echo "Setting up .venv-bench, with the peers that benchmarks compare with ..."
	@test -x .venv-bench/bin/python || $(PYTHON) -m venv .venv-bench
	@.venv-bench/bin/python -m pip install --quiet --quiet --constraint constraints.txt --upgrade pip
	@.venv-bench/bin/python -m pip install --quiet --quiet --constraint constraints.txt --editable '.[parquet]' --group bench
	@touch $@

bench: .venv-bench/installed
	.venv-bench/bin/python benchmarks/run.py

docs: .venv/installed-docs
	$(BIN)/python docs/pictures.py
	$(BIN)/python docs/diagrams.py
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs docs/_build

clean:
	rm -rf .venv out docs/_build
