# Two commands do everything on a fresh clone: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
C      := $(wildcard src/headwater/speedups/*.[ch])
# Named after what is compiled: another checkout may have fewer files, and none that is newer.
STAMP  := $(VENV)/.installed-$(shell cat $(C) | cksum | cut -d ' ' -f 1)
# Without bytecode beside the source each process that a test starts compiles all that it imports: 1.5 s for a server.
unexport PYTHONDONTWRITEBYTECODE
export UV_COMPILE_BYTECODE := 1
# pip brings uv, at its pinned version, and uv the rest.
INSTALL = $(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt

.PHONY: help demo demo-replicas quick test room spark nightly lowest setup fmt lint types interop interop-clients soak hostile power simulate chaos bench bench-amqp bench-homes bench-spark screenshots docs site pages check

help:                   ## these lines
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1: /p' Makefile

demo: $(STAMP)          ## the whole story on real data; KEEP=1 leaves the server running
	@$(BIN)/python -m demo $(if $(KEEP),--keep)

demo-replicas: $(STAMP) ## three servers of one home, and a kill -9 of the primary and of its database; about a minute
	@$(BIN)/python -m demo.replicas

PYTEST = $(BIN)/python -m pytest -n 2$(if $(SHUFFLE), --shuffle $(SHUFFLE))
SPREAD = --dist worksteal
BY_FILE = --dist loadfile --no-loadscope-reorder
# Clients in other languages, environments of their own and Spark take minutes each: `make check` has them.
APART := interop packaging spark

test: $(STAMP)          ## the tests of every room: a quarter of an hour on two cores; without clients, packaging and Spark
	$(PYTEST) $(SPREAD) $(APART:%=--ignore tests/%)

QUICK := tests/core tests/formats tests/amqp/protocol tests/amqp/filters tests/amqp/streams

quick: $(STAMP)         ## what needs no disk and no server: under a minute; the contract on the log in memory
	$(PYTEST) -q $(SPREAD) $(QUICK)
	$(BIN)/python -m pytest -q tests/contract -k memory

room: $(STAMP)          ## the tests of one room: ROOM=storage
	$(PYTEST) $(if $(filter spark,$(ROOM)),$(BY_FILE),$(SPREAD)) tests/$(or $(ROOM),core)

spark: $(STAMP)         ## the tests on Spark alone
	$(PYTEST) $(BY_FILE) tests/spark

nightly: interop-clients ## everything at full length; PART=3 for one of its parts, of half an hour at most each
	$(BIN)/python -m tests.nightly $(PART)

lowest: $(STAMP)        ## the lowest versions that pyproject.toml allows serve every way in; one of the tests
	$(BIN)/python -m pytest -q tests/packaging/test_lowest.py

setup: $(STAMP)         ## make .venv with everything pinned (done by the others where it is missing)

fmt: $(STAMP)
	$(BIN)/ruff format src tests benchmarks examples demo docs/conf.py hatch_build.py
	$(BIN)/ruff check --fix src tests benchmarks examples demo docs/conf.py hatch_build.py

lint: $(STAMP)
	$(BIN)/ruff format --check src tests benchmarks examples demo docs/conf.py hatch_build.py
	$(BIN)/ruff check src tests benchmarks examples demo docs/conf.py hatch_build.py
	$(BIN)/lint-imports

types: $(STAMP)
	$(BIN)/mypy

interop: interop-clients  ## AMQP clients of five libraries against a server; builds them first
	$(BIN)/python -m pytest -n 2 --dist loadscope tests/interop

interop-clients: $(STAMP)
	@$(BIN)/python -m tests.interop.install

bench: $(STAMP)         ## benchmarks against SQLite, UmaDB and the bare disk; some minutes
	@$(INSTALL) --editable '.[bench]'
	$(BIN)/python -m benchmarks.served --write
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

site: $(STAMP)          ## the documents as a site in build/site, for a browser, with search; says where to open it
	@$(BIN)/python -m tests.docs.site

pages: $(STAMP)         ## write what is made from the code: the blocking client, pages of the reference; tests say where one is old
	$(BIN)/python -m tests.client.unasync
	$(BIN)/python -m tests.docs.python_api > docs/reference/python.md
	$(BIN)/python -m tests.roles.table > docs/reference/rights.md
	$(BIN)/python -m tests.docs.configuration
	$(BIN)/python -m tests.docs.entities
	$(BIN)/python -m tests.docs.events
	$(BIN)/python -m tests.docs.troubleshooting

screenshots: $(STAMP)   ## the console's pictures in docs/images, from the demo's data; needs Chromium
	$(BIN)/python -m tests.console.screenshots

soak: $(STAMP)          ## clients of all protocols on one server that is killed again and again; SECONDS=60 for short
	$(BIN)/python -m tests.load soak $(or $(SECONDS),600) --seed $(or $(SEED),0)

hostile: $(STAMP)       ## bad clients beside good ones, SECONDS=30 each, SCALE=4; then what many of them may make a server hold
	$(BIN)/python -m tests.load street $(or $(SECONDS),30) --scale $(or $(SCALE),4) --seed $(or $(SEED),0)
	$(BIN)/python -m tests.load hostile $(ONLY:%=--only %)

power: $(STAMP)         ## power cuts of a server of all protocols, at any record of what it wrote; STATES=1000 for fewer
	$(BIN)/python -m tests.power $(or $(STATES),5000)

simulate: $(STAMP)      ## servers of a shared home, a schedule of faults for each seed; SCHEDULES=2000 for fewer
	$(BIN)/python -m tests.homes $(or $(SCHEDULES),50000)

chaos: $(STAMP)         ## three servers of a shared home, while servers, network and database fail; SECONDS=60 for short, SEED=7
	$(BIN)/python -m tests.load chaos $(or $(SECONDS),600) --seed $(or $(SEED),0)

SLICE_S := 120
check: $(STAMP)         ## what CI runs: the day, and twice SLICE_S of what runs by night alone, by the commit's id
	@$(MAKE) --no-print-directory --jobs 3 --output-sync=target lint types interop-clients
	$(PYTEST) $(SPREAD) --ignore tests/spark --slice $(SLICE_S)
	$(PYTEST) $(BY_FILE) tests/spark --slice $(SLICE_S)

$(STAMP): pyproject.toml constraints.txt hatch_build.py $(C)
	@echo "Installing what Headwater needs into $(VENV): a minute or less, once"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(BIN)/uv || $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
	@$(INSTALL) --editable '.[dev,demo]'
	@rm -f $(VENV)/.installed*
	@touch $(STAMP)
