# The five things one does. Each uses .venv, and makes it if it is not there.
PYTHON ?= python3

.PHONY: test check docs bench demo

.venv:
	$(PYTHON) -m venv .venv
	.venv/bin/pip install --quiet -e '.[dev]'

test: .venv ## the short suite
	.venv/bin/python -m pytest

check: ## everything that decides, on a fresh clone of HEAD
	.ci/run

docs: .venv ## the pages as a site, in site/
	.venv/bin/pip install --quiet -e '.[docs]'
	.venv/bin/python -m sphinx -W -b html docs site

bench: .venv ## publish and consume beside other clients
	.venv/bin/python benchmarks/publish.py
	.venv/bin/python benchmarks/consume.py

demo: .venv ## a redesigned cluster on this machine, with a leader that moves
	.venv/bin/python -m nsqsmart demo
