# Every target works from a bare checkout: the first one makes .venv. PYTHON=/path/to/python picks another Python,
# ARGS adds arguments (make test ARGS="-k relay"), APP picks another app (make run APP=examples/orders),
# JOBS sets the number of test processes.
SHELL = /bin/sh
BIN = .venv/bin/python
# More processes than cores: many tests wait for sockets.
JOBS = 8
ARGS =
APP = .
SECONDS = 60
SEED =
SEEDS = 100
TRACE =
FIFO =
GAPS = all
SIMULATED = simulated.contacts:CONTACTS
# Where byte code is not kept, each process of tests writes the asserts of all tests anew: ten seconds of CPU for each.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help venv run test test-all test-deep test-lowest torture simulate lint format demo bench lock release clean
.PHONY: azurite emulators-up emulators-down test-emulators test-gaps
COMPOSE = docker compose --file deploy/emulators/compose.yaml

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' Makefile

venv: ## make .venv and install what run, test and lint need
	@scripts/bootstrap

# A shell passes on no variable whose name has a dot, such as AzureWebJobs.relay.Disabled: "env" gets these by name.
DOTTED = $(foreach name,$(filter AzureWebJobs.%,$(.VARIABLES)),'$(name)=$(subst ','\'',$(value $(name)))')

# "exec": make's child is the stack itself, so that the stack gets the Ctrl-C and make prints no error about it.
run: ## start the local Azure and the app (APP=examples/orders: another one); Ctrl-C stops
	@scripts/bootstrap run
	@exec env PYTHONPATH=. $(DOTTED) $(BIN) -m devstack --app "$(APP)" $(ARGS)

TESTS = -m pytest -p tests.support.processes --processes $(JOBS)
PYTEST = $(BIN) $(TESTS)

test: venv ## run the tests that are quick, as .ci/run does
	@exec $(PYTEST) -m "not long and not deep" --simulate-seeds=1 $(ARGS)

test-all: venv ## run all tests but the deep ones: the long ones too, as CI does with each Python
	@exec $(PYTEST) -m "not deep" --hypothesis-profile=thorough $(ARGS)

test-deep: venv ## run the torture test's own tests, and look at every state of the models
	@exec $(PYTEST) -m deep $(ARGS)

# The lowest version of what the packages ask for themselves, with the newest of what these need.
LOWEST = .venv/lowest
test-lowest: venv ## run unit and contract tests with the lowest versions that pyproject.toml allows
	@.venv/bin/uv venv --quiet --clear --python $(BIN) $(LOWEST)
	@printf -- '--editable %s\n' '.[functions,servicebus,storagequeue,webhook,fastapi,docs,telemetry,prometheus]' \
	./packages/changefeed ./packages/devstack | .venv/bin/uv pip compile --quiet --no-config --no-annotate --python $(LOWEST)/bin/python \
	--resolution lowest-direct - | grep == > $(LOWEST)/pins.txt
	@.venv/bin/uv pip install --quiet --python $(LOWEST)/bin/python -r requirements-dev.txt --constraint $(LOWEST)/pins.txt
	@exec $(LOWEST)/bin/python $(TESTS) -m "not long and not deep" tests/unit tests/contract $(ARGS)

torture: venv ## break everything for SECONDS (60) and check that nothing was lost; SEED=n repeats a plan
	@exec $(BIN) -m tests.torture --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

simulate: venv ## run SEEDS (100) seeds of the code in virtual time; SEED=n TRACE=- tells one story, FIFO=1 unshuffled
	@PYTHONPATH=.:packages/simulation/tests exec $(BIN) -m outbox_simulation $(SIMULATED) $(if $(SEED),--seed $(SEED) $(if $(TRACE),--trace $(TRACE)),\
	--seeds $(SEEDS)) $(if $(FIFO),--fifo) $(ARGS)

lint: venv ## check style, format and types; change nothing
	@failed=0; \
	$(BIN) -m ruff check . || failed=1; \
	$(BIN) -m ruff format --check . || failed=1; \
	$(BIN) -m mypy || failed=1; \
	exit $$failed

format: venv ## repair style where ruff can, and format
	@$(BIN) -m ruff check --fix .
	@$(BIN) -m ruff format .

demo: venv ## see the path of an event, step by step
	@exec $(BIN) -m tools.demo $(ARGS)

bench: venv ## measure the ratios to the bare SDKs, and write docs/internals/performance.md (ARGS="--only create": one part)
	@exec $(BIN) -m tools.benchmarks $(ARGS)

lock: venv ## renew deploy/requirements.txt: the newest versions that requirements.txt allows, with their hashes
	@.venv/bin/uv pip compile requirements.txt --universal --python-version 3.11 --generate-hashes --upgrade --quiet \
	--no-config --custom-compile-command "make lock" --output-file deploy/requirements.txt

release: venv ## build the distributions into dist/ and test them where nothing else is installed; publish nothing
	@exec $(BIN) -m tools.release $(ARGS)

clean: ## delete the data of the local Azure
	@python=$$(scripts/find-python) && PYTHONPATH=packages/devstack/src exec "$$python" -m devstack clean

azurite: ## start the storage that func start needs, from npm (needs Node.js); Ctrl-C stops
	@exec npx --yes azurite@3 --silent --skipApiVersionCheck --location .devstack/azurite

# SQL Server needs a password that no person uses: each start makes a new one.
emulators-up: ## start Microsoft's emulators (needs a container engine), and wait until they are ready
	@MSSQL_SA_PASSWORD="Aa1-$$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')" $(COMPOSE) up --detach --wait

emulators-down: ## stop Microsoft's emulators and delete their data
	@$(COMPOSE) down --volumes

TEST_COSMOS = http://127.0.0.1:8081/
TEST_SERVICEBUS = amqp://127.0.0.1:5672 http://127.0.0.1:5300

# One process: the Service Bus emulator takes 10 connections.
test-emulators: venv ## run the contract and end-to-end tests against Microsoft's emulators
	@TEST_COSMOS="$(TEST_COSMOS)" TEST_SERVICEBUS="$(TEST_SERVICEBUS)" \
	$(BIN) -m pytest -m "not own_stack" tests/contract tests/e2e $(ARGS)

# Whose tests hold there, or have a mark where they do not.
THROUGH = tests/e2e/test_api.py $(patsubst %,tests/contract/test_%.py,unit_of_work cosmos_unit_of_work own_container_patch \
lists_of_aggregates entries claims parking set_aside inspection ignored_conditions effects old_reads own_container \
operators_day queue_of_service_bus sessions_between_containers subscriber_service subscriber_stores)

test-gaps: venv ## run some of them against devstack with GAPS (all) of the emulators
	@exec $(BIN) -m tests.support.gaps $(GAPS) $(TESTS) -m "not own_stack and not long" $(THROUGH) $(ARGS)
