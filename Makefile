# Everything runs from .venv, made once by the first command that needs it.
#   make run            a three-node cluster on this machine (Ctrl-C stops it; DETACH=1 returns when it serves)
#   make test           linters, types, layers and the test suite
# The distribution's first: it is built with profiles, and what version managers build mostly is not (decision 0035).
PYTHON ?= $(shell for python in /usr/bin/python3.11 /usr/bin/python3.12 /usr/bin/python3.13 python3.11 python3.12 python3.13 python3; do \
	"$$python" -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && command -v "$$python" && break; done)
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := PYTHONWARNINGS=ignore $(BIN)/python -m pip --disable-pip-version-check
RUN    := $(VENV)/.stamp-run
DEV    := $(VENV)/.stamp-dev
PAGE   := broker/management/page/static/vendor/NOTICE

NODES           ?= 3
DIR             ?= .warrenmq
AMQP_PORT       ?= 5672
MANAGEMENT_PORT ?= 15672
JOBS            ?= 2
# Tests with nodes wait for most of their time: for clocks, syncs and each other.
TEST_JOBS       ?= $(shell expr $(JOBS) + 1)
SEED            ?=
SEEDS           ?= 200
GM_SEEDS        ?= 1000
CI_SEEDS        ?= 15
CI_GM_SEEDS     ?= 75

# With it each start of a node compiles 400 modules: 2.4 s instead of 1. The tests start some hundred nodes.
unexport PYTHONDONTWRITEBYTECODE

PYTHON_TREES := $(wildcard broker raft gm chaos pipeline examples warrenmq.py pyspark_amqp_stream.py)

.PHONY: help setup run stop check style types layers tidy test compiled sim sim-long ci-long ci-nodes ci-faults ci-spark soak proto page-shots tour bench chaos chaos-soak clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^## *//p' $(MAKEFILE_LIST)

## make setup           the virtual environment with everything in it
setup: $(DEV) $(PAGE)

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "WarrenMQ needs Python 3.11 or newer, with venv; found none in /usr/bin or on the PATH" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "WarrenMQ needs Python 3.11 or newer, found: $$("$(PYTHON)" -V)" >&2; exit 1; }
	"$(PYTHON)" -m venv $(VENV)

$(RUN): pyproject.toml | $(BIN)/python
	$(PIP) install -q -e .
	@touch $@

# Libraries are compiled when they are imported, not here: few of pyspark's modules ever are, and all took half a minute.
$(DEV): pyproject.toml $(RUN) | $(BIN)/python
	$(PIP) install -q --no-compile -e '.[dev,pipeline]'
	@touch $@

# The libraries of the management page. Without them all else works, so a failure stops nothing.
$(PAGE): broker/management/page/vendor.py | $(BIN)/python
	-@$(BIN)/python -m broker.management.page.vendor && touch $@

## make run             start three nodes here and print their endpoints; DETACH=1 returns when they serve
run: $(RUN) $(PAGE)
	@$(BIN)/warrenmq cluster start --nodes $(NODES) --dir $(DIR) --amqp-port $(AMQP_PORT) \
		--management-port $(MANAGEMENT_PORT) $(if $(DETACH),,--foreground)

## make stop            stop them
stop: $(RUN)
	@$(BIN)/warrenmq cluster stop --dir $(DIR)

CHECKS := types style layers tidy
## make check           ruff, mypy --strict, import-linter, tests/tidy
check: $(DEV)
	@$(MAKE) --no-print-directory -j $(JOBS) --output-sync=target $(CHECKS)

style: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEV)
	$(BIN)/mypy $(PYTHON_TREES)

layers: $(DEV)
	$(BIN)/lint-imports

tidy: $(DEV)
	$(BIN)/pytest tests/tidy

# $(call pytest,NAME,ARGUMENTS): NAME is where it notes what failed; two that run at the same time have one each.
# AGAIN=1, as CI sets it: tests that failed run once more, one by one. A shared machine stands still for seconds, and tests run
# beside each other; the first failure stays in the output. What simulators and chaos runs find is a finding at once.
PYTEST_IN = $(BIN)/pytest -o cache_dir=.pytest_cache/$(1)
ONCE_MORE = || { test $$? = 1 && echo "== run again, one by one: what failed" && $(PYTEST_IN) --last-failed --last-failed-no-failures none; }
pytest = $(PYTEST_IN) $(2) $(if $(AGAIN),$(ONCE_MORE))
# $(call marked,MARK): the files that have such tests (tests/conftest.py sees to it). Collecting all 9,000 takes 8 s, for each worker.
marked = $(shell grep -rlE 'mark\.$(1)\b' tests --include 'test_*.py' | sort)

## make test            check, then all tests but those that need a Docker engine or minutes (ci-long)
test: $(DEV) $(PAGE)
	@$(MAKE) --no-print-directory -j $(JOBS) --output-sync=target $(CHECKS) compiled
	$(call pytest,test,-m "not docker and not long and not soak" --ignore tests/tidy -n $(TEST_JOBS) --dist loadfile)

# Workers begin together and would each compile all modules of tests: one does it, while mypy has the other processor.
compiled: $(DEV)
	@$(BIN)/pytest --collect-only -qq tests >/dev/null || true # what can't be imported is said by the tests themselves

## make sim             the deterministic simulators of Raft, GM, mirrored queues, streams and crashes; SEED=n replays one seed
sim: $(DEV)
	$(BIN)/python -m tests.sim $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.sim.gm $(if $(SEED),--seed $(SEED),--seeds $(GM_SEEDS))
	$(BIN)/python -m tests.sim.mirrored $(if $(SEED),--seed $(SEED),--seeds 50)
	$(BIN)/python -m tests.sim.mirrored --set disk_p=0.05 $(if $(SEED),--seed $(SEED),--seeds 20)
	$(BIN)/python -m tests.sim.streams $(if $(SEED),--seed $(SEED),--seeds 50)
	$(BIN)/python -m tests.sim.crashes $(if $(SEED),--seed $(SEED),--seeds 50)

## make sim-long        SEEDS=n seeds of Raft, mirrored queues and streams, GM_SEEDS=n of GM; planted bugs must be found (BUGS= skips them)
BUGS := 'tests.sim.mirrored --bugs --seeds 60' 'tests.sim.crashes --bugs' 'tests.sim --bugs' 'tests.sim.gm --bugs' \
	'tests.sim.streams --bugs'
SIM_RUNS = $(BUGS) 'tests.sim.mirrored --seeds $(SEEDS)' 'tests.sim.mirrored --seeds $(SEEDS) --set disk_p=0.05' \
	'tests.sim.streams --seeds $(SEEDS)' 'tests.sim.crashes --seeds $(SEEDS)' 'tests.sim --seeds $(SEEDS)' 'tests.sim.gm --seeds $(GM_SEEDS)'
sim-long: $(DEV)
	printf '%s\n' $(SIM_RUNS) | xargs -P $(JOBS) -I{} sh -c '$(BIN)/python -m {}'

## make chaos           short chaos runs, all types of queues; SEED=n, ONLY=part of a cell's name (chaos.matrix --list)
chaos: $(DEV)
	$(BIN)/python -m chaos.matrix --seed $(or $(SEED),1) $(if $(ONLY),--only '$(ONLY)',--short)

## make chaos-soak      every fault on every type of queue over SEEDS seeds, to the first bad verdict; ONLY=
chaos-soak: $(DEV)
	$(BIN)/python -m chaos.matrix --seeds $(SEEDS) --stop-early $(if $(ONLY),--only '$(ONLY)')

## make ci-long         what CI adds to `make test`: containers, long tests, more seeds, short chaos runs
# Nodes under test and faults wait for some of their time, so they run beside each other and Spark. Claims about time and memory
# come last, alone.
ci-long: $(DEV)
	$(MAKE) --no-print-directory -j 3 --output-sync=target ci-nodes ci-faults ci-spark
	$(call pytest,alone,-m "long and alone and not soak" --durations 15 $(call marked,alone))

# What takes longest comes first: a file that is left over at the end is waited for.
LONGEST := tests/wire/test_pipeline_cluster.py $(addprefix tests/cluster/test_,upgrades.py link_tls.py rules_under_kills.py)
ci-nodes: $(DEV)
	$(call pytest,nodes,-m "long and not (alone or docker or soak)" -n $(JOBS) --dist loadfile --no-loadscope-reorder \
		--durations 15 $(LONGEST) $(filter-out $(LONGEST) tests/unit/pipeline/%,$(call marked,long)))

# Simulators have no clock: they get the processor's time that others leave. BUGS is empty: `make test` finds each planted bug.
ci-faults: chaos
	$(call pytest,containers,-m "docker and not soak" --durations 15 $(call marked,docker))
	nice -n 19 $(MAKE) --no-print-directory sim-long SEEDS=$(CI_SEEDS) GM_SEEDS=$(CI_GM_SEEDS) BUGS=

ci-spark: $(DEV)
	$(call pytest,spark,-m "long and not soak" tests/unit/pipeline --durations 15)

# The JVMs of tests live for seconds to minutes and answer small questions. Java's second compiler and its concurrent collector
# took a fifth of the processor's time of an audit's tests (206 s, 168 without them), which nodes beside them need.
ci-nodes ci-faults ci-spark: export JAVA_TOOL_OPTIONS := -XX:TieredStopAtLevel=1 -XX:+UseSerialGC

## make soak            what repeats for minutes: fifty SIGKILLs, twenty full disks, 10,000 method sequences, more chaos
soak: $(DEV)
	$(BIN)/pytest -m soak

## make bench           measure the workloads and write docs/benchmarks/latest.md; ONLY=part of a workload's name (writes nothing)
bench: $(RUN)
	$(BIN)/python -m broker.cli.perf.bench $(if $(ONLY),--only '$(ONLY)')

## make page-shots      screenshots of every page in light, dark and phone width into page-shots/; ONLY=part of a page's name
page-shots: $(DEV)
	$(BIN)/python -m tests.page.shots page-shots $(if $(ONLY),--only '$(ONLY)')

## make tour            walk through docs/tour.md in a browser and take its pictures anew
tour: $(DEV) $(PAGE)
	$(BIN)/python -m tests.page.tour docs/images

## make proto           generate the protobuf modules from proto/ (links use generic handlers: no gRPC stubs)
proto: $(DEV)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m grpc_tools.protoc -I proto --python_out=. --mypy_out=. \
		$$(find proto -name '*.proto')

clean:
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist *.egg-info
