# Two commands do everything on a fresh clone: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
VENV_COMPILED := .venv-compiled
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# The variable makes old versions of pip build as new ones do; those know it no more, and ignore it.
INSTALL = PIP_USE_PEP517=1 $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
INSTALL_COMPILED = PIP_USE_PEP517=1 $(VENV_COMPILED)/bin/pip install --quiet --disable-pip-version-check

# Those that start: a name may be there for a Python that is not.
PYTHONS = $(shell for python in python3.11 python3.12 python3.13 python3.14; do $$python -c "" 2>/dev/null && echo $$python; done)
COMPILED_WHEEL = $(shell ls $(CURDIR)/dist/compiled/*.whl)
COMPILED := tests/contract tests/storage tests/dcb tests/http tests/amqp tests/packaging/test_compiled.py

.PHONY: demo demo-replicas quick test spark lowest setup fmt lint types interop interop-clients soak hostile power simulate chaos wheels compiled bench bench-amqp bench-homes bench-spark screenshots docs pages check

demo: $(STAMP)          ## the whole story on real data; KEEP=1 leaves the server running
	@$(BIN)/python -m demo $(if $(KEEP),--keep)

demo-replicas: $(STAMP) ## three servers of one home in PostgreSQL, and a kill -9 of the primary; under two minutes
	@$(BIN)/python -m demo.replicas

test: $(STAMP)          ## the test suite; the tests on Spark come last, file by file, because each has a session of its own
	$(BIN)/python -m pytest -n 2 --dist worksteal --ignore tests/spark
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder tests/spark

QUICK := tests/core tests/formats tests/amqp/protocol tests/amqp/filters tests/amqp/streams

quick: $(STAMP)         ## what needs no disk and no server: under a minute; the contract on the log in memory
	$(BIN)/python -m pytest -q -n 2 --dist worksteal $(QUICK)
	$(BIN)/python -m pytest -q tests/contract -k memory

spark: $(STAMP)         ## the tests on Spark alone; HEADWATER_KILLS=5 kills archivers more often
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder tests/spark

lowest: $(STAMP)        ## the lowest versions that pyproject.toml allows serve every way in; one of the tests
	$(BIN)/python -m pytest -q tests/packaging/test_lowest.py

setup: $(STAMP)         ## make .venv with everything pinned (done by the others where it is missing)

fmt: $(STAMP)
	$(BIN)/ruff format src tests benchmarks examples demo hatch_build.py
	$(BIN)/ruff check --fix src tests benchmarks examples demo hatch_build.py

lint: $(STAMP)
	$(BIN)/ruff format --check src tests benchmarks examples demo hatch_build.py
	$(BIN)/ruff check src tests benchmarks examples demo hatch_build.py
	$(BIN)/lint-imports

types: $(STAMP)
	$(BIN)/mypy

interop: interop-clients  ## AMQP clients of four libraries against a server; builds them first
	$(BIN)/python -m pytest -n 2 --dist loadscope tests/interop

interop-clients: $(STAMP)
	@$(BIN)/python -m tests.interop.install

wheels: $(STAMP)        ## compiled wheels in dist/compiled, of each Python that is here; needs a C compiler and Python's headers
	@rm -rf dist/compiled
	@for python in $(PYTHONS); do \
	  echo "Compiling the wheel of $$python: a minute or two"; \
	  HATCH_BUILD_HOOK_ENABLE_CUSTOM=1 PIP_USE_PEP517=1 $(BIN)/pip --python $$python wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist/compiled . || exit 1; \
	done; ls dist/compiled

compiled: PYTHONS = $(CURDIR)/$(BIN)/python
compiled: wheels        ## the tests of what is compiled, on the wheel; and the wheel in an empty environment
	@test -x $(VENV_COMPILED)/bin/python || $(BIN)/python -m venv $(VENV_COMPILED)
	@$(VENV_COMPILED)/bin/pip uninstall --quiet --yes headwater
	@$(INSTALL_COMPILED) --constraint constraints.txt "$(COMPILED_WHEEL)[dev]"
	$(VENV_COMPILED)/bin/python -m pytest -n 2 --dist worksteal $(COMPILED)
	WHEEL=$(COMPILED_WHEEL) $(BIN)/python -m pytest tests/packaging/test_wheel.py -k "installed or version"

bench: $(STAMP)         ## benchmarks against SQLite, UmaDB and the bare disk; some minutes
	@$(INSTALL) --editable '.[bench]'
	$(BIN)/python -m benchmarks --markdown

bench-amqp: $(STAMP)    ## the same AMQP load on Headwater, Artemis, Broker-J and RabbitMQ; about half an hour
	$(BIN)/python -m benchmarks.amqp --markdown

bench-homes: $(STAMP)   ## a home in PostgreSQL beside a local directory and the recorder of eventsourcing; about half an hour
	@$(INSTALL) --editable '.[bench]'
	$(BIN)/python -m benchmarks.homes --markdown

bench-spark: $(STAMP)   ## Spark reading and writing, beside its own Parquet reader and Kafka; about an hour
	$(BIN)/python -m benchmarks.spark --markdown

docs: $(STAMP)          ## check the documents: links, examples, the OpenAPI file
	$(BIN)/python -m pytest -q tests/docs

pages: $(STAMP)         ## write the pages of the reference that are made from the code; the tests say where one is old
	$(BIN)/python -m tests.docs.modules > docs/reference/modules.md
	$(BIN)/python -m tests.docs.python_api > docs/reference/python.md
	$(BIN)/python -m tests.roles.table > docs/reference/rights.md
	$(BIN)/python -m tests.docs.configuration

screenshots: $(STAMP)   ## the console's pictures in docs/images, from the demo's data; needs Chromium
	$(BIN)/python -m tests.console.screenshots

soak: $(STAMP)          ## clients of all protocols on one server that is killed again and again; SECONDS=60 for short
	$(BIN)/python -m tests.soak $(or $(SECONDS),600)

hostile: $(STAMP)       ## one client of each protocol misbehaves, the others must not pay; SECONDS=30 each, SCALE=4
	$(BIN)/python -m tests.hostile.street $(or $(SECONDS),30) $(or $(SCALE),4)

power: $(STAMP)         ## power cuts of a server of all protocols, at any record of what it wrote; STATES=1000 for fewer
	$(BIN)/python -m tests.power $(or $(STATES),5000)

simulate: $(STAMP)      ## servers of a shared home, a schedule of faults for each seed; SCHEDULES=2000 for fewer
	$(BIN)/python -m tests.homes $(or $(SCHEDULES),50000)

chaos: $(STAMP)         ## three servers of a shared home, while servers, network and database fail; SECONDS=60 for short, SEED=7
	$(BIN)/python -m tests.chaos $(or $(SECONDS),600) $(or $(SEED),0)

check: lint types interop-clients test compiled  ## what CI runs

$(STAMP): pyproject.toml constraints.txt
	@echo "Installing what Headwater needs into $(VENV): a minute or two, once"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(INSTALL) --editable '.[dev,demo]'
	@touch $(STAMP)
