# `make run` starts the gateway, `make test` runs the tests; both first install into .venv what is missing.

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
PYTEST ?= -q -n 3 --dist worksteal

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check install -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help run test lint types layers check wheel clean

help:
	@echo 'make run     start the gateway (ARGS="--config my.toml")'
	@echo 'make test    run the tests (PYTEST="-k words")'
	@echo 'make check   everything before a change is handed in: lint, types, layers, test'
	@echo 'make wheel   build dist/*.whl'
	@echo 'make clean   remove what was built, and $(VENV)'

run: $(VENV)/run.stamp
	$(BIN)/crayfish run $(ARGS)

test: $(VENV)/test.stamp
	$(BIN)/pytest $(PYTEST)

lint: $(VENV)/test.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/test.stamp
	$(BIN)/mypy

layers: $(VENV)/test.stamp
	$(BIN)/lint-imports

check: lint types layers test

wheel: $(VENV)/run.stamp
	$(BIN)/python -m pip --quiet --disable-pip-version-check wheel --no-deps --wheel-dir dist .

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	  "Crayfish needs Python 3.11 or newer; name one with: make PYTHON=python3.11 $(MAKECMDGOALS)")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/run.stamp: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo 'Installing into $(VENV); the first time takes a minute.'
	@$(PIP) -e .
	@touch $@

$(VENV)/test.stamp: $(VENV)/run.stamp
	@$(PIP) -e '.[test,postgres,memory,sandbox]'
	@touch $@
