# Two commands do everything on a fresh clone: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
VENV_COMPILED := .venv-compiled
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# The variable makes old versions of pip build as new ones do; those know it no more, and ignore it.
INSTALL = PIP_USE_PEP517=1 $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
INSTALL_COMPILED = PIP_USE_PEP517=1 $(VENV_COMPILED)/bin/pip install --quiet --disable-pip-version-check

.PHONY: demo quick test spark lowest setup fmt lint types interop interop-clients soak hostile power compiled bench bench-amqp bench-spark docs check

demo: $(STAMP)          ## the whole story on real data; KEEP=1 leaves the server running
	@$(BIN)/python -m demo $(if $(KEEP),--keep)

test: $(STAMP)          ## the test suite; the tests on Spark come last, file by file, because each has a session of its own
	$(BIN)/python -m pytest -n 2 --dist worksteal --ignore tests/spark
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/spark

QUICK := tests/core tests/formats tests/amqp/protocol tests/amqp/filters tests/amqp/streams

quick: $(STAMP)         ## what needs no disk and no server: under a minute; the contract on the log in memory
	$(BIN)/python -m pytest -q -n 2 --dist worksteal $(QUICK)
	$(BIN)/python -m pytest -q tests/contract -k memory

spark: $(STAMP)         ## the tests on Spark alone; HEADWATER_KILLS=5 kills archivers more often
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/spark

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

compiled:               ## a wheel with AMQP as machine code, in dist/compiled, and the AMQP tests on it; needs a C compiler
	@test -x $(VENV_COMPILED)/bin/python || $(PYTHON) -m venv $(VENV_COMPILED)
	@rm -rf dist/compiled
	@HATCH_BUILD_HOOK_ENABLE_CUSTOM=1 PIP_USE_PEP517=1 $(VENV_COMPILED)/bin/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist/compiled .
	@$(VENV_COMPILED)/bin/pip uninstall --quiet --yes headwater
	@$(INSTALL_COMPILED) --constraint constraints.txt "$$(echo dist/compiled/*.whl)[dev]"
	$(VENV_COMPILED)/bin/python -m pytest -n 2 --dist worksteal tests/amqp

bench: $(STAMP)         ## benchmarks against SQLite, UmaDB and the bare disk; some minutes
	@$(INSTALL) --editable '.[bench]'
	$(BIN)/python -m benchmarks --markdown

bench-amqp: $(STAMP)    ## the same AMQP load on Headwater, Artemis, Broker-J and RabbitMQ; about half an hour
	$(BIN)/python -m benchmarks.amqp --markdown

bench-spark: $(STAMP)   ## Spark reading and writing, beside its own Parquet reader and Kafka; about an hour
	$(BIN)/python -m benchmarks.spark --markdown

docs: $(STAMP)          ## check the documents: links, examples, the OpenAPI file
	$(BIN)/python -m pytest -q tests/docs

soak: $(STAMP)          ## clients of all protocols on one server that is killed again and again; SECONDS=60 for short
	$(BIN)/python -m tests.soak $(or $(SECONDS),600)

hostile: $(STAMP)       ## one client of each protocol misbehaves, the others must not pay; SECONDS=30 each, SCALE=4
	$(BIN)/python -m tests.hostile.street $(or $(SECONDS),30) $(or $(SCALE),4)

power: $(STAMP)         ## power cuts of a server of all protocols, at any record of what it wrote; STATES=1000 for fewer
	$(BIN)/python -m tests.power $(or $(STATES),5000)

check: lint types interop-clients test  ## what CI runs

$(STAMP): pyproject.toml constraints.txt
	@echo "Installing what Headwater needs into $(VENV): a minute or two, once"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(INSTALL) --editable '.[dev,demo]'
	@touch $(STAMP)
