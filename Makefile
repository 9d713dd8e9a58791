# `make` shows the targets. Everything runs in .venv, which is made when it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install demo dev test test-oldest model bench check format lint types floors verify ops clean

help: ## show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## make .venv with grns, its embedded servers and its tools

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "grns needs Python 3.11 or newer; name one with make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev,http]' --group test
	@touch $(STAMP)

demo: $(STAMP) ## run a thousand real tasks, kill a worker meanwhile, and check every result
	@$(BIN)/grns demo

dev: $(STAMP) ## keep Postgres, NATS, all daemons and a worker running here; prints what to try
	@$(BIN)/grns dev

test: $(STAMP) ## run all tests, on servers of their own
	$(BIN)/pytest -q -n 3 --dist loadfile

test-oldest: $(STAMP) ## run the store's tests on the oldest Postgres that we support
	GRNS_TEST_POSTGRES=$${GRNS_OLDEST_POSTGRES:-/usr/lib/postgresql/15/bin} \
		$(BIN)/pytest -q -n 2 --dist loadfile $(wildcard tests/test_store_*.py)

model: $(STAMP) ## look at every interleaving of the protocol in the small (a few minutes)
	$(BIN)/python -m tests.model

bench: $(STAMP) ## measure throughput and latency on this machine (ROWS=20000)
	$(BIN)/python -m tests.bench $(if $(ROWS),--rows $(ROWS))

check: format lint types floors verify test ## all that CI checks

format: $(STAMP) ## check the formatting (mend it with: .venv/bin/ruff format)
	$(BIN)/ruff format --quiet --check .

lint: $(STAMP) ## check the style
	$(BIN)/ruff check --quiet .

verify: $(STAMP) ## check that schemas/ is what the models say (mend it with: .venv/bin/grns schema export)
	@$(BIN)/grns schema export --check

types: $(STAMP) ## check the types, strictly
	$(BIN)/mypy

floors: $(STAMP) ## check that each room imports only what is below it
	$(BIN)/lint-imports

ops: $(STAMP) ## check Dockerfile and docker-compose.yml without an engine
	.ci/check-ops

clean: ## remove what was made here
	rm -rf $(VENV) .grns .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
