# Every target sets up the virtual environment it needs, once, and says what it does.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PEERS := .venv-peers
ROUNDS ?= 3000
CLANG := clang-19
FIRST ?= 1000000
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt

# Else every process that a test starts compiles all of Folkmoot anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test check format faults soak bench bench-peer bench-run bench-liars bench-store bench-solana bench-federated bench-federated-tls bench-federated-simulation bench-elastic bench-job bench-learning program program-check clang pages clean
help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

$(BIN)/python:
	@echo "==> creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "==> installing Folkmoot with its test tools (once; a few minutes, mostly torch)"
	@$(PIP) -e '.[all,dev]'
	@touch $@

$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	@echo "==> installing Folkmoot (once; a few minutes, mostly torch)"
	@$(PIP) -e '.[train]'
	@touch $@

setup: $(VENV)/.dev ## install everything into .venv (every target below does it if need be)

demo: $(VENV)/.demo ## a real collaborative training run on this machine, about two minutes
	@$(BIN)/python examples/demo.py

# Half of their time tests wait: for a time limit, a process, a disk.
test: $(VENV)/.dev ## run the tests
	@$(BIN)/python -m pytest -n 4 --dist worksteal

check: $(VENV)/.dev ## format, lint, types, import law
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest tests/test_rooms.py tests/test_public_names.py

format: $(VENV)/.dev ## rewrite the code in the house format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

faults: $(VENV)/.dev clang ## long fault runs: simulated worlds, damaged bytes, real processes
	@$(BIN)/folkmoot simulate --world run --seeds 5000
	@$(BIN)/folkmoot simulate --world federation --seeds 5000
	@$(BIN)/folkmoot simulate --world iteration --seeds 10000
	@$(BIN)/folkmoot simulate --world job --seeds 10000
	@$(BIN)/python -m pytest tests/fuzz --hypothesis-profile=long
	@$(BIN)/python -m pytest -m 'hypothesis and not faults' --hypothesis-profile=long
	@$(BIN)/python -m pytest -m faults

soak: $(VENV)/.dev ## a long run with churn: whether processes grow or rounds slow down (ROUNDS=3000)
	@$(BIN)/python benchmarks/soak.py --rounds $(ROUNDS)

bench: $(VENV)/.dev ## the core of a run at ten thousand clients, against its goals
	@$(BIN)/python benchmarks/core.py

bench-peer: $(VENV)/.dev ## content and gossip between peers, beside the bare transport
	@$(BIN)/python benchmarks/peer.py

bench-run: $(VENV)/.dev ## a live run: throughput beside plain loops, a server with 2,000 clients, what deaths cost
	@$(BIN)/python benchmarks/run_throughput.py
	@$(BIN)/python benchmarks/run_server.py
	@$(BIN)/python benchmarks/run_deaths.py

bench-liars: $(VENV)/.dev ## what liars do to a run, attack by attack, and that the honest stay (resumes)
	@$(BIN)/python benchmarks/run_liars.py
	@$(BIN)/python benchmarks/run_liars.py --honest 2000

bench-store: $(VENV)/.dev ## a run in a store with 200 members; the demo in stores beside a server
	@$(BIN)/python benchmarks/run_store.py
	@$(BIN)/python benchmarks/run_store_demo.py

bench-solana: $(VENV)/.dev ## what a run on Solana costs; the demo there beside a server (ten minutes)
	@$(BIN)/python benchmarks/run_solana.py
	@$(BIN)/python benchmarks/run_solana_demo.py

bench-federated: $(VENV)/.dev ## federated rounds beside Flower (half an hour; resumes)
	@$(BIN)/python benchmarks/federated.py

bench-federated-tls: $(VENV)/.dev ## the same across machines: TLS, no shared folder (ten minutes; resumes)
	@$(BIN)/python benchmarks/federated_tls.py

bench-federated-simulation: $(VENV)/.dev ## a thousand virtual participants beside Flower's simulation (minutes)
	@$(BIN)/python benchmarks/federated_simulation.py

bench-elastic: $(VENV)/.dev ## agreement through a store beside a bare barrier; a killed rank beside torchrun and torchft (ten minutes)
	@$(BIN)/python benchmarks/elastic.py

# What cannot be installed is left out of the benchmark, and tried again the next time.
$(PEERS)/.job: benchmarks/job/peers.txt
	@echo "==> installing Ray Train and DLRover into $(PEERS) (once; 1.6 GB, mostly torch)"
	@{ $(PYTHON) -m venv $(PEERS) && \
		$(PEERS)/bin/python -m pip --disable-pip-version-check install --quiet -c $< 'dlrover[ray,torch]' 'ray[train]' && \
		touch $@; } || echo "    they cannot be installed here: the benchmark leaves them out"

bench-job: $(VENV)/.dev $(PEERS)/.job ## a job: start and restart beside torchrun, Ray Train and DLRover, calls and channels beside Ray's (ten minutes)
	@$(BIN)/python benchmarks/job_start.py
	@$(BIN)/python benchmarks/job_rpc.py
	@$(BIN)/python benchmarks/job_channel.py

bench-learning: $(VENV)/.dev ## speed of the exchange methods, then loss against bytes (an hour; resumes)
	@$(BIN)/python benchmarks/distro_speed.py
	@$(BIN)/python benchmarks/learning_curves.py

pages: $(VENV)/.dev ## fill diagrams and figures into the pages, from the tables and benchmarks/results
	@$(BIN)/python scripts/pages.py

program: $(VENV)/.dev ## build the Solana program from its source, to the same bytes everywhere
	@$(BIN)/python -m folkmoot.authority.solana.build

program-check: $(VENV)/.dev clang ## the Solana program beside the core: 20,000 sequences, 2,000 as clang builds it (an hour; other ranges: FIRST=…)
	@$(BIN)/python tests/authority/solana/at_length.py sequences $(FIRST) 20000
	@! command -v $(CLANG) >/dev/null || $(BIN)/python tests/authority/solana/at_length.py sequences $(FIRST) 2000 --compiler $(CLANG)

# Only targets that run for long install it: a system's packages are not for `make test` to change.
clang:
	@if ! command -v $(CLANG) >/dev/null; then \
		root=; [ "$$(id -u)" = 0 ] || root="sudo -n"; \
		echo "==> installing $(CLANG), the second compiler of the Solana program (once; 60 MB)"; \
		($$root apt-get update -qq && $$root apt-get install -y -qq --no-install-recommends $(CLANG)) >/dev/null 2>&1 \
			|| echo "    it cannot be installed here (apt and root are needed): what it compiles is not tested"; \
	fi

clean: ## remove the virtual environment and everything generated
	rm -rf $(VENV) $(PEERS) out .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
