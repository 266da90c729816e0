# Apiary: every target installs what it needs into .venv; `make help` lists them.
SHELL := /bin/bash
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
# Tests start our programs hundreds of times: each is compiled once.
unexport PYTHONDONTWRITEBYTECODE
HOSTS ?= 1

.PHONY: help demo demo-down test lint lint-scenarios check night e2e unit browser lab faults loss fleet docs-test telemetry routers molecule sanity build release pictures stranger stranger-fleet docs docs-site requirements clean test-model test-engine test-quality test-vm test-busy chaos

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

demo: .venv/ready ## A bare simulated MI325X host becomes two serving replicas (HOSTS=3 for three, ENGINE=vllm for real vLLM and a real model, QUESTION="…")
	python tests/lab/demo.py up --hosts $(HOSTS) $(if $(ENGINE),--engine $(ENGINE)) $(if $(QUESTION),--question '$(QUESTION)')

demo-down: .venv/ready ## Remove all that the demo made
	python tests/lab/demo.py down

test: .venv/ready ## Unit, golden and property tests, then simulated hosts and the tutorial to the letter
	python tests/stages.py test

unit: .venv/ready
	pytest -n auto --dist worksteal --durations=25

browser: .venv/ready ## Open the reports in a real browser
	pytest --quiet tests/browser

lab: .venv/ready ## What needs simulated hosts: molecule, loss, faults and the tutorial, beside one another (STAGE=loss for one)
	python tests/stages.py $(or $(STAGE),lab)

faults: .venv/ready ## Break a simulated host in every way and see that it is found
	pytest --quiet tests/faults tests/containers tests/bundle

loss: .venv/ready ## Change and break replicas, hosts and routers under load: requests lost
	pytest --quiet tests/router tests/loss

chaos: .venv/ready ## Kills, hangs, cuts, full disks, clock jumps, stalls of NFS and rollouts at random, under load (MINUTES=30 SEED= STEPS=)
	PYTHONPATH=tests:tests/lab python -m chaos --minutes $(or $(MINUTES),30) $(if $(SEED),--seed $(SEED)) $(if $(STEPS),--steps $(STEPS)) $(if $(JSON),--json $(JSON))

fleet: .venv/ready ## Rollouts over twelve simulated hosts, interrupted in every way, and tunings over two (long, as e2e)
	pytest --quiet tests/fleet tests/tune/lab

docs-test: .venv/ready ## Follow the tutorial and every how-to page literally on simulated hosts
	python tests/stages.py docs-test

telemetry: .venv/ready ## A real Prometheus reads what a host exposes: each rule and panel finds its series
	pytest --quiet tests/telemetry

routers: .venv/ready ## Our router, vllm-router, smg and plain HAProxy before the same mock engines, three seeds (SECONDS_EACH=150)
	test -f .lab/routers/ready -a .lab/routers/ready -nt requirements/routers.txt || { python -m venv .lab/routers && \
	  .lab/routers/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/routers.txt && touch .lab/routers/ready; }
	python benchmarks/routers.py --rates 14,36 --seeds 1,2,3 --seconds $(or $(SECONDS_EACH),150) --routers \
	  apiary,apiary/unkeyed,vllm-router:cache_aware,vllm-router:sticky_least_loaded,smg:cache_aware,smg:prefix_hash,smg:consistent_hashing,leastconn,hash

molecule: .venv/ready ## Molecule scenarios on two simulated hosts (SCENARIO="ci", "night", a name; all without)
	python tests/lab/scenarios.py $(SCENARIO)

lint: .venv/ready ## ruff, mypy, import-linter, yamllint, ansible-lint
	ruff format --check .
	ruff check .
	mypy
	lint-imports
	yamllint --strict .
	ansible-lint --offline --exclude extensions --exclude tests

lint-scenarios: .venv/ready ## ansible-lint on the playbooks of tests, which run them anyway: as long as the other linters together
	ansible-lint --offline extensions tests

sanity: .venv/ready ## ansible-test sanity on the built collection
	tests/sanity/run.sh

test-busy: .venv/ready ## The unit suite three times while other processes keep every core busy
	python tests/busy.py

check: .venv/ready ## What CI runs: lint, sanity and test
	python tests/stages.py check

night: .venv/ready ## What is too long for CI: every page, every scenario, fleets, real vLLM, kernels, the doubles
	python tests/stages.py night

e2e: .venv/ready ## The same site playbook with real vLLM (CPU build, a model of 135 million parameters)
	python tests/lab/demo.py e2e

test-model: .venv/ready ## Parameter counts against transformers' own models, on the meta device
	python tests/meta/run.py

test-engine: .venv/ready ## Real vLLM releases judge the recipes (ENGINE="--small", "0.16.0 --gpu MI355X", …)
	PYTHONPATH=tests python -m engine $(ENGINE)

test-vm: .venv/ready ## A host and a weight server with a real kernel, under QEMU: tune, mount, reboot, drift, undo
	python tests/vm/vm.py test

test-quality: .venv/ready ## Thirty wrongs in real vLLM, and whether the quality gate catches them (hours; goes on where it ended)
	python tests/quality/table.py test .lab/quality

docs: .venv/ready ## Regenerate the reference pages
	python tools/dashboards/build_dashboards.py
	python tools/make_docs.py

docs-site: .venv/ready ## The documentation as a web site without network needs, in site/
	python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/docs.txt
	python tools/docs/site.py --strict

build: .venv/ready ## The release's files of the tree as it is, for trying, in dist/
	python tools/release.py --draft

release: .venv/ready ## The release's files in dist/, the same bytes anywhere, and their provenance; signed (KEY=FILE)
	python tools/release.py $(if $(KEY),--key '$(KEY)')

pictures: .venv/ready ## Draw the README's pictures again (PICTURE="demo fleet …" for some)
	python tools/pictures.py $(PICTURE)

stranger: .venv/ready ## A newcomer's machine: a bare container, the README's commands and nothing else (as root)
	pytest --quiet tests/stranger

stranger-fleet: .venv/ready ## A newcomer takes four hosts to serving without internet, a kernel, a driver, a new host (as root; JSON=1)
	@PYTHONPATH=tests:tests/lab python -m stranger.fleet $(if $(JSON),--json)

requirements: .venv/ready ## Pin again, with hashes
	tools/pin.sh

.venv/ready: requirements/dev.txt pyproject.toml galaxy.yml tools/setup.sh
	tools/setup.sh

clean: ## Remove the environment and everything built
	test ! -d .lab/vm || python3 tests/vm/vm.py down --all
	rm -rf .venv dist site .docs artifacts .ansible .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache .lab/engine .lab/mirror .lab/meta .lab/routers .lab/repository .lab/repository.tar
