# Everything a fresh machine needs is Python 3.11 or newer; each target sets up what it uses.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help run test coverage torture lint install-check bench docs clean

help:
	@echo "make run            train a model over 100 users who never show their updates; results and a report in runs/"
	@echo "make test           all tests, doctests and documentation examples"
	@echo "make coverage       the same, with the share of lines and branches that they reach, and its gates"
	@echo "make torture        faults: power cuts, kills, a crashing server, mutated bytes; SCALE=1000 for a night of them"
	@echo "make lint           ruff, mypy --strict, import layers"
	@echo "make install-check  install the wheel into fresh environments, with the newest and the lowest versions"
	@echo "make bench          the numbers of benchmarks/, written to benchmarks/results"
	@echo "make docs           redraw the pictures and build the documentation into docs/_build"

PIP = $(BIN)/python -m pip install --constraint constraints.txt

# What a run needs: PyTorch, and what draws its report and its dashboard.
.venv/installed-run: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Coterie needs Python 3.11 or newer; run make PYTHON=python3.11")'
	@echo "Setting up .venv with what a run needs (once; PyTorch takes a minute or more) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) --quiet --upgrade pip
	$(PIP) --editable '.[dashboard,report,torch]'
	@touch $@

.venv/installed: .venv/installed-run
	@echo "Adding what tests and lint need (once) ..."
	$(PIP) --editable '.[all]' --group dev
	@touch $@

.venv/installed-docs: .venv/installed
	@echo "Adding what the documentation needs (once) ..."
	$(PIP) --group docs
	@touch $@

# A new folder below runs/ each time, named after the time; the last line says which.
run: .venv/installed-run
	$(BIN)/coterie run

# Bytecode is written even where the environment forbids it: the tests start hundreds of processes, and each would
# compile the package anew.
SUITE = PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses auto --dist loadfile

test: .venv/installed
	@sh tests/packages.sh
	$(SUITE)

# The packages that privacy rests on, and the least share of their lines and branches, in percent, that tests must reach.
GATES = secagg=98 leakage=97 federation=97

coverage: .venv/installed
	@sh tests/packages.sh
	@rm -f .coverage .coverage.*
	$(SUITE) --cov --cov-report=
	@for gate in $(GATES); do \
		$(BIN)/coverage report --include "*/coterie/$${gate%=*}/*" --fail-under $${gate#*=} --skip-covered || exit 1; \
	done

install-check: .venv/installed-run
	$(BIN)/python .ci/install_check.py

# Its results are written to tests/torture/results.json, to be committed. SCALE=1 takes minutes, 10 (unless told) most
# of an hour on two cores, 1000 a night and more; `pytest --kills 0 tests/lab/experiments/test_faults.py` tries every call.
SCALE ?= 10
torture: .venv/installed
	@sh tests/packages.sh
	$(BIN)/python tests/torture/torture.py --scale $(SCALE)

lint: .venv/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

.venv-bench/installed: pyproject.toml constraints.txt
	@echo "Setting up .venv-bench, with the peers that benchmarks compare with ..."
	@test -x .venv-bench/bin/python || $(PYTHON) -m venv .venv-bench
	@.venv-bench/bin/python -m pip install --quiet --constraint constraints.txt --upgrade pip
	@.venv-bench/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[dashboard,flower,parquet]' --group bench
	@touch $@

bench: .venv-bench/installed
	.venv-bench/bin/python benchmarks/run.py

docs: .venv/installed-docs
	$(BIN)/python docs/pictures.py
	$(BIN)/python docs/diagrams.py
	$(BIN)/python docs/architecture.py
	$(BIN)/python docs/reproduction.py
	$(BIN)/python docs/attacks.py
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs docs/_build

clean:
	rm -rf .venv .venv-bench docs/_build
