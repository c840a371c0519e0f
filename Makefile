# Two commands do all the set-up: `make demo` and `make test`. `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev

.DEFAULT_GOAL := help
.PHONY: help install setup demo test test-compiled check compiled bench mutation services clean

help: ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 15

$(STAMP): constraints.txt pyproject.toml client/pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tocsin needs Python 3.11 or newer: make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -q -c constraints.txt hatchling editables
	$(PIP) install -q -c constraints.txt --no-build-isolation -e ./client -e .
	touch $@

$(DEV_STAMP): $(STAMP)
	$(PIP) install -q -c constraints.txt --no-build-isolation -e ./client -e '.[dev,deploy,frameworks,bench]'
	touch $@

install: $(STAMP) ## the virtual environment with the command `tocsin`: for rules, replays and a look around

setup: $(DEV_STAMP) ## the virtual environment with everything for development

# Exit status 4: a program is not on this machine. Its tests are then skipped by name, and fail in CI.
MISSING_IS_FINE = || { status=$$?; test $$status -eq 4 && test "$$CI" != true; }

services: ## what the tests run against: Kafka from Maven artefacts, Prometheus and Chromium from Debian
	@deploy/kafka-dev/kafka fetch $(MISSING_IS_FINE)
	@deploy/dev/prometheus fetch $(MISSING_IS_FINE)
	@deploy/dev/chromium fetch $(MISSING_IS_FINE)

demo: $(STAMP) ## recorded training runs through the whole pipeline, live; no Kafka, no network
	$(BIN)/tocsin demo

test: $(DEV_STAMP) services ## every test, on real Kafka and Prometheus
	$(BIN)/python -m pytest $(ARGS)

# What every record runs through, and who calls it: not the whole end to end, not what knows only alerts. A few minutes.
ON_COMPILED := tests/test_compiled.py tests/collector tests/rules tests/packs tests/contracts tests/service

test-compiled: compiled ## the tests of collector, rules and service once more, on the compiled wheel
	TOCSIN_FORM=compiled PYTHONPATH=.cache/compiled:client/src $(BIN)/pytest -m "not soak and not kafka and not prometheus" \
		$(ON_COMPILED) $(ARGS)

check: $(DEV_STAMP) ## style, types, import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

compiled: $(DEV_STAMP) ## the compiled wheel, unpacked into .cache/compiled; the work tree stays pure Python
	$(BIN)/python deploy/dev/compiled

bench: $(DEV_STAMP) services ## speed and memory, beside the peers from PyPI; evaluation in both forms where there is a C compiler
	@$(BIN)/python deploy/dev/compiled $(MISSING_IS_FINE)
	$(BIN)/python -m benchmarks

mutation: $(DEV_STAMP) ## what the tests of the shipped rules see: small changes of the shipped rules, caught or survived
	$(BIN)/python -m tests.mutation $(ARGS)

clean: ## forget the virtual environment and the fetched services
	rm -rf $(VENV) .cache
