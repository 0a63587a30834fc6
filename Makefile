# The commands of a person.  Everything stays inside the project's folder, except programs that are built
# for tests (control plane, judge of histories, client libraries): these are kept in $XDG_CACHE_HOME, or ~/.cache.
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast test-units test-simulation soak canaries check crds metrics dashboards session chart helm control-plane history-judge client-libraries dashboard-types s3-server images nodes bench bench-mixed overload constraints clean

VENV   := .venv
PY     := $(VENV)/bin/python
STAMP  := $(VENV)/.installed
PYTEST := $(PY) -m pytest -p no:cacheprovider

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## virtual environment in .venv with pinned dependencies

# Sources come first, so that --no-build-isolation finds pinned build tools for all that follows.
$(STAMP): constraints-build.txt constraints.txt pyproject.toml
	@bash tools/make-venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r constraints-build.txt
	$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes --no-build-isolation -r constraints.txt
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: setup ## the whole story on this machine: load, kill, scale, restart, validate (under 3 minutes)
	$(PY) -m quorate_cli.demo

test: setup ## every test: also real kube-apiserver, real processes, Spark; deep ones while MINUTES=n last
	@bash tools/run-tests "$(PYTEST)" --minutes $(MINUTES)

test-fast: setup ## unit, property and simulation tests on both cores, two to three minutes
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target test-units test-simulation

# Two halves of about the same length; what takes longer is for `make test`.
test-units test-simulation: setup
test-units:
	$(PYTEST) -q -m "not integration and not process and not spark" tests/unit tests/scenarios tests/property/core tests/property/spark \
	  --ignore tests/unit/agent/test_damaged_log.py
test-simulation:
	$(PYTEST) -q -m "not deep" tests/property/planning \
	  $(addprefix tests/simulation/test_,seeds.py planted_defects.py replay.py)

SEEDS   ?= 2000
# Empty: a seed that nobody chose.
FIRST   ?=
MINUTES ?= 0
# Millions of states of each small cluster.
MILLIONS ?= 1

soak: setup ## simulated clusters on all cores: SEEDS=n FIRST=k, or MINUTES=n; then small ones in every order
	PYTHONPATH=core:operator:tests $(PY) -m quorate_sim.soak --seeds $(SEEDS) $(if $(FIRST),--first $(FIRST)) --minutes $(MINUTES)
	PYTHONPATH=core:operator:node_agent:tests $(PY) -m quorate_exhaustive $(MILLIONS)

canaries: setup ## every planted defect must be found by the simulator; prints by which check, and how soon
	PYTHONPATH=core:operator:tests $(PY) -m quorate_sim.canaries --seeds $(SEEDS)

check: setup ## style, types, architecture, generated files
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(PY) -m quorate_operator.kube.write_crds --check crds
	$(PY) tools/write_chart.py --check
	$(PY) tools/write_reference.py --check
	$(PY) tools/write_metrics.py --check
	$(PY) tools/write_dashboards.py --check

crds: setup ## write crds/ and docs/crds.md from the models
	$(PY) -m quorate_operator.kube.write_crds crds
	$(PY) tools/write_reference.py

metrics: setup ## write docs/metrics.md from the definitions of metrics
	$(PY) tools/write_metrics.py

dashboards: setup ## write charts/quorate/files/dashboards, for Grafana
	$(PY) tools/write_dashboards.py

session: setup ## record docs/pictures/session.svg, the terminal session of README.md
	$(PY) tools/record_session.py

chart: setup ## write the kinds and the README of charts/quorate
	$(PY) tools/write_chart.py

helm: setup ## find or build helm 3 and helm 4 for the tests of the chart (minutes)
	PYTHONPATH=core:tests $(PY) -m quorate_helm

control-plane: setup ## find or build etcd, kube-apiserver, kube-controller-manager and kubectl for the tests; VERSION=v1.34.4
	PYTHONPATH=tests $(PY) -m quorate_control_plane $(VERSION)

history-judge: setup ## find or build the program that judges clients' histories (within a minute)
	PYTHONPATH=core:tests $(PY) -m quorate_porcupine

images: setup ## build the images of operator, agent and validations, as root with buildah and debootstrap (minutes)
	PYTHONPATH=core:tests $(PY) -m quorate_images

nodes: setup ## build kubelet and what else nodes of a test need, beside packages of Debian (minutes)
	PYTHONPATH=core:tests $(PY) -m quorate_nodes

client-libraries: setup ## install the stock client libraries that tests try, pinned, into the cache (minutes)
	PYTHONPATH=core:tests $(PY) -m quorate_clients

dashboard-types: setup ## install Grafana's types of dashboards and a compiler for tests, pinned, into the cache
	PYTHONPATH=core:tests $(PY) -m quorate_dashboard_types

s3-server: setup ## install moto's server, which takes the part of S3 in tests, pinned, into the cache
	PYTHONPATH=core:tests $(PY) -m quorate_s3

bench: setup ## measure beside Redis; figures go to docs/benchmarks.md
	PYTHONPATH=tests $(PY) benchmarks/run.py $(BENCH)

bench-mixed: setup ## measure only the mixed loads, about 10 minutes on an idle machine
	PYTHONPATH=tests $(PY) benchmarks/run.py --only mixed-in-memory,mixed-on-disk $(BENCH)

overload: setup ## three agents at twice what they can do, MINUTES=n (30): nobody may be taken for lost
	PYTHONPATH=tests $(PY) benchmarks/overload.py --minutes $(or $(filter-out 0,$(MINUTES)),30) $(BENCH)

UV_COMPILE = $(VENV)/uv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
  --no-annotate --custom-compile-command "make constraints"

constraints: setup ## bring the constraints files up to date with pyproject.toml
	$(PY) -m pip install --quiet --disable-pip-version-check --upgrade --target $(VENV)/uv uv
	$(UV_COMPILE) --all-extras --group dev --output-file constraints.txt pyproject.toml
	$(UV_COMPILE) --group build --constraint constraints.txt --output-file constraints-build.txt
	$(UV_COMPILE) --extra operator --constraint constraints.txt --output-file constraints-operator.txt pyproject.toml
	$(UV_COMPILE) --extra agent --constraint constraints.txt --output-file constraints-agent.txt pyproject.toml
	$(UV_COMPILE) --extra spark --constraint constraints.txt --output-file constraints-spark.txt pyproject.toml
	$(UV_COMPILE) --group jre --output-file constraints-jre.txt
	$(UV_COMPILE) --group go --output-file constraints-go.txt
	$(UV_COMPILE) --group node --output-file constraints-node.txt

clean: ## forget what these commands made here (not the data in .quorate)
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find core operator node_agent spark cli tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
