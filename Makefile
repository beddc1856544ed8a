# One target per habit. `make demo` and `make test` work from a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export OMP_NUM_THREADS ?= 1

.PHONY: setup demo test check unit crash-test audit bench lock clean

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	touch $(STAMP)

demo: setup            ## train on real data and print table and certificate
	$(BIN)/python -m experiments.demo

test: check unit       ## everything CI runs

check: setup           ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

unit: setup
	$(BIN)/python -m pytest -n 2

crash-test: setup      ## kill 500 processes while they debit a durable ledger
	JUSTITIA_KILLS=500 $(BIN)/python -m pytest tests/privacy/test_durable_crash.py

audit: setup           ## attack mechanism and whole fits, and the printed engine: results/audit.csv, results/trial.csv
	$(BIN)/python -m experiments audit --jobs 2
	$(BIN)/python -m experiments trial --jobs 2

reproduce-%: setup     ## one table or figure, by its name in `python -m experiments --help`
	$(BIN)/python -m experiments $* --jobs 2

bench: setup           ## speed and memory as ratios, written to results/bench.json and results/scale.json
	$(BIN)/python -m benchmarks.speed
	$(BIN)/python -m benchmarks.scale

lock: setup            ## rewrite requirements.lock from what is installed
	$(BIN)/python -m pip freeze --exclude-editable | sed -E 's/\+cpu$$//' > requirements.lock

clean:
	rm -rf $(VENV) out
