VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
FLINK := .flink

# Spark starts its Python workers by name: without this they would be whatever python3 is on PATH.
export PYSPARK_PYTHON := $(abspath $(BIN)/python)

# Precedes a command that needs Spark.
WITH_JAVA = JAVA_HOME=$$(scripts/ensure_java.sh) && export JAVA_HOME &&

.DEFAULT_GOAL := help
.PHONY: help install demo flink lint test test-slow format clean

help: ## Show what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1 - \2/p' Makefile

install: $(INSTALLED) ## Create .venv with Slackwater and all that its development needs

$(INSTALLED): pyproject.toml lab/pyproject.toml
	scripts/ensure_venv.sh $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]' --editable ./lab
	@touch $@

demo: $(INSTALLED) ## Run the demonstration
	@$(WITH_JAVA) $(BIN)/slackwater demo

flink: $(FLINK)/.installed ## Install Flink, for `slackwater bench` to compare with (330 MB to download)

$(FLINK)/.installed: scripts/ensure_flink.sh $(wildcard lab/src/slackwater_lab/bench/flink/java/*.java)
	$(WITH_JAVA) scripts/ensure_flink.sh $(FLINK)
	@touch $@

lint: $(INSTALLED) ## Check style, types and the direction of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint ## Check everything but the slow tests
	$(WITH_JAVA) $(BIN)/pytest -m 'not slow'

test-slow: $(INSTALLED) ## Run the slow tests (recovery soak)
	$(WITH_JAVA) $(BIN)/pytest -m slow

format: $(INSTALLED) ## Format the code and mend what ruff can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean: ## Remove all that make has made
	rm -rf $(VENV) $(FLINK) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
