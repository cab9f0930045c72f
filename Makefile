# Every routine of the repository. `make help` lists them; CONTRIBUTING.md says when to use which.
#
#   PYTHON=python3.12   the interpreter that .venv is built on, said once; without it python3, or a newer one on the PATH
#   TORCH_CPU_INDEX=URL the set-up takes torch without CUDA, from this index of such builds
#   ARGS="..."          more arguments for make demo, test and bench

PYTHON ?=
TORCH_CPU_INDEX ?=
ARGS ?=
UPGRADE ?=
BIN := .venv/bin

ifeq ($(wildcard tools/setup.sh),)
$(error this folder is not the repository's: go there first (cd $(dir $(realpath $(lastword $(MAKEFILE_LIST))))))
endif

.DEFAULT_GOAL := help
.PHONY: help setup demo test bench lint lint-style lint-types lint-imports lint-words lint-docs lint-protos check-plans check-containers docs format protos constraints clean distclean

help: ## list the routines
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile
	@echo "Settings: PYTHON=python3.12, TORCH_CPU_INDEX=URL, ARGS=\"more arguments for make demo, test or bench\""

setup: ## make .venv with everything that the other routines need; quick when nothing changed
	@PYTHON="$(PYTHON)" TORCH_CPU_INDEX="$(TORCH_CPU_INDEX)" sh tools/setup.sh

demo: setup ## train a small model on two ranks with and without the planner, and show the difference
	@$(BIN)/python -m examples.demo $(ARGS)

test: setup ## run all tests; ARGS="tests/dip -k digest" for some of them
	@echo "Running the tests, one after the other; with two cores all of them take about 20 minutes."
	@$(BIN)/python -m pytest --durations=10 $(ARGS)

bench: setup ## measure plans against all baselines, into runs/bench.md; ARGS="--suite quick" for a minute of it
	@mkdir -p runs
	@$(BIN)/dip bench --suite all --json runs/bench.json --markdown runs/bench.md --plots runs/images $(ARGS)

check-plans: setup ## plan all five model set-ups with the dip command, and check each plan
	@sh tools/check_plans.sh

lint: lint-style lint-types lint-imports lint-words lint-docs lint-protos ## run every check that reads the code without running it (-k: all despite failures)

lint-style: setup # ruff: rules and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

lint-types: setup # mypy, strict
	$(BIN)/mypy

lint-imports: setup # the arrows between the packages
	$(BIN)/lint-imports --no-logo

lint-words: setup # misspellings
	$(BIN)/codespell

lint-docs: setup # pages that are written from the code
	$(BIN)/python tools/settings_docs.py --check

lint-protos: setup # the contract: rules, formatting, stale stubs, changes that break a released one
	$(BIN)/buf lint
	$(BIN)/buf format --diff --exit-code
	sh tools/check_stubs.sh
	sh tools/check_breaking.sh

check-containers: setup ## build the images and start what they hold, without a container engine (root, buildah, mmdebstrap)
	@TORCH_CPU_INDEX="$(TORCH_CPU_INDEX)" sh tools/check_containers.sh $(ARGS)

format: setup ## format the Python code and the protos, and mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/buf format --write

docs: setup ## write docs/settings.md from the classes that read the settings
	$(BIN)/python tools/settings_docs.py

protos: setup ## generate the stubs in protos/ from the .proto files
	sh tools/protos.sh

constraints: setup ## pin what is new in pyproject.toml; UPGRADE="ruff mypy" or UPGRADE=all takes newer versions
	$(BIN)/python tools/constraints.py $(UPGRADE)

clean: ## remove caches and build outputs
	rm -rf build dist .make *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean ## remove .venv and the demo's results too
	rm -rf .venv runs
