# One target per habit. `make demo` and `make test` work from a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export OMP_NUM_THREADS ?= 1

.PHONY: setup browser demo test check unit dask-test ray-test spark-test access-check bases-test java docs site-check pictures report-picture crash-test audit stress reproduce-paper bench bench-simulated bench-rivals bench-custodian mutants lock clean api dist sbom newcomer lowest-test newest-test python3.12-test python3.13-test release

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	touch $(STAMP)

browser:               ## Chromium from Debian for the tests of the report, where it is missing
	command -v chromium > /dev/null || { apt-get update -qq && apt-get install -y -qq chromium; }

demo: setup            ## train on real data and print table and certificate
	$(BIN)/python -m bench.experiments.demo

test: check unit       ## everything CI runs

check: setup           ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

unit: setup
	$(BIN)/python -m pytest -n 2 --dist worksteal

ENGINES = $(BIN)/python -m pip install --quiet --no-deps -r requirements-engines.lock
ENGINE_TEST = JUSTITIA_ENGINES=1 $(BIN)/python -m pytest

dask-test: setup       ## data frames of Dask; on top of requirements.lock, which stays as it is
	$(ENGINES)
	$(ENGINE_TEST) tests/engines/test_dask.py

ray-test: setup        ## data frames of Ray
	$(ENGINES)
	$(ENGINE_TEST) tests/engines/test_ray.py

java:                  ## Java from Debian for Spark, where it is missing
	command -v java > /dev/null || { apt-get update -qq && apt-get install -y -qq default-jre-headless; }

spark-test: setup java ## data frames of Spark
	$(ENGINES)
	$(ENGINE_TEST) tests/engines/test_spark.py

docs: setup            ## the site, in out/docs; warnings are errors
	rm -rf docs/api
	$(BIN)/python -m sphinx -W --keep-going -n -q -b html docs out/docs

access-check: setup browser ## accessibility of report, monitor page, custodian's page and notebook forms, with axe-core in Chromium
	$(BIN)/python -m pytest tests/report/test_access.py tests/report/test_browser.py tests/custodian/test_custodian_page.py

site-check: setup      ## links, phone layout and search of the site in out/docs, in Chromium
	$(BIN)/python -m bench.site_check out/docs

bases-test: setup      ## bases of CatBoost and scikit-learn, saved in their own formats
	$(ENGINES)
	$(BIN)/python -m pytest tests/persistence/test_formats.py

pictures: setup        ## the drawings of docs/how_it_works.md
	$(BIN)/python -m bench.pictures

REPORT = out/report
JUSTITIA = cd $(REPORT) && $(abspath $(BIN))/justitia

report-picture: setup browser ## the commands of the README on Income, and a picture of the report
	rm -rf $(REPORT) && mkdir -p $(REPORT)
	$(JUSTITIA) datasets write income --out income.csv && $(abspath $(BIN))/justitia split income.csv --test 0.25
	$(JUSTITIA) train income-train.csv --target income --sensitive sex --groups Female,Male --epsilon 1 --out model
	$(JUSTITIA) evaluate model income-test.csv --epsilon 0.5
	$(JUSTITIA) report model --limit 0.05 --title "Income above 50,000" --positive-means "income above 50,000" --out report.html
	chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1280,790 \
	  --screenshot=$(abspath docs/pictures/report.png) file://$(abspath $(REPORT))/report.html

crash-test: setup      ## kill 500 processes while they debit a durable ledger, 500 in checkpoint folders, 200 custodians, 10 workers; fuzz and attack those
	JUSTITIA_KILLS=500 $(BIN)/python -m pytest tests/privacy/test_durable_crash.py
	JUSTITIA_KILLS=200 JUSTITIA_FUZZ=10000 $(BIN)/python -m pytest tests/custodian/test_process.py tests/custodian/test_fuzz.py
	JUSTITIA_ATTACKS=1000 $(BIN)/python -m pytest tests/custodian/test_attacks.py
	JUSTITIA_KILLS=10 $(BIN)/python -m pytest tests/cli/test_workers.py

audit: setup           ## attack mechanism and whole fits, and the printed engine: results/audit.csv, results/trial.csv
	$(BIN)/python -m bench.experiments audit --jobs 2
	$(BIN)/python -m bench.experiments trial --jobs 2

stress: setup          ## people on whom a fit may go wrong: results/stress.csv, a table in docs/stress.md
	$(BIN)/python -m bench.experiments stress --jobs 2

reproduce-paper: setup ## Table 2's rows of PF-LD and one figure beside the paper: out/paper, less than 30 minutes
	$(BIN)/python -m bench.experiments paper --jobs 2

reproduce-%: setup     ## one table or figure, by its name in `python -m bench.experiments --help`
	$(BIN)/python -m bench.experiments $* --jobs 2

MILLIONS ?= 1 4 16

bench: setup           ## speed, memory, start and groups as ratios, in results/{bench,moments,scale,start,groups}.json; MILLIONS="0.25 1" is quicker
	$(BIN)/python -m bench.performance.speed
	$(BIN)/python -m bench.performance.moments
	$(BIN)/python -m bench.performance.scale --rows $(MILLIONS)
	$(BIN)/python -m bench.performance.start
	$(BIN)/python -m bench.performance.groups
	$(BIN)/python -m bench.performance.pages scale scale_targets groups
	$(BIN)/python -m bench.performance.billion

bench-simulated: setup ## rows that are made inside the passes and stored nowhere: results/simulated.json; MILLIONS=20 is quicker
	$(BIN)/python -m bench.performance.simulated --rows $(if $(filter command%,$(origin MILLIONS)),$(MILLIONS),200)
	$(BIN)/python -m bench.performance.pages simulated

bench-rivals: setup    ## other methods beside ours on Income and on a million rows, up to half an hour: results/rivals.json
	$(BIN)/python -m bench.performance.rivals
	$(BIN)/python -m bench.performance.pages rivals

bench-custodian: setup ## 50 clients for five minutes; as root, two users on Income: results/custodian.json
	$(BIN)/python -m bench.performance.custodian
	$(BIN)/python -m bench.performance.two_users --income
	$(BIN)/python -m bench.performance.pages custodian

SAMPLE ?= 30
SEED ?= 0

mutants: setup         ## break SAMPLE lines of privacy, Lagrangian and bounds, one at a time: which do tests not notice?
	$(BIN)/python -m bench.performance.mutants --sample $(SAMPLE) --seed $(SEED)

lock: setup            ## rewrite requirements.lock from what is installed
	$(BIN)/python -m pip freeze --exclude-editable | sed -E 's/\+cpu$$//' \
	  | grep -v -x -F -f requirements-engines.lock > requirements.lock

api: setup             ## write tests/public_api.txt; RELEASED=1 when a version is released
	$(BIN)/python -m bench.release.api $(if $(RELEASED),--released)

RELEASE_TOOLS := out/release/tools

$(RELEASE_TOOLS)/.installed: requirements-release.lock
	test -x $(RELEASE_TOOLS)/bin/python || $(PYTHON) -m venv $(RELEASE_TOOLS)
	$(RELEASE_TOOLS)/bin/python -m pip install --quiet -r requirements-release.lock
	touch $@

dist: $(RELEASE_TOOLS)/.installed ## wheel, sdist and their SHA-256, in dist; built twice and compared
	$(RELEASE_TOOLS)/bin/python -m bench.release.dist

sbom: dist             ## dist/justitia-VERSION.cdx.json: the wheel's dependencies as CycloneDX, with the versions of requirements.lock
	$(RELEASE_TOOLS)/bin/python -m bench.release.sbom

newcomer: dist         ## from the wheel to a report in the browser, with minutes and megabytes
	$(PYTHON) -m bench.newcomer

lowest-test: dist      ## the wheel with the lower bounds of pyproject.toml
	$(PYTHON) -m bench.release.environments lowest

newest-test: dist      ## the wheel with the newest dependencies
	$(PYTHON) -m bench.release.environments newest

python3.12-test: dist  ## the same with another Python; PYTHON312=/path/to/python
	$(PYTHON) -m bench.release.environments newest --python $(or $(PYTHON312),python3.12)

python3.13-test: dist
	$(PYTHON) -m bench.release.environments newest --python $(or $(PYTHON313),python3.13)

release: dist sbom newcomer lowest-test newest-test python3.12-test python3.13-test ## before a release, after make test and make docs

clean:
	rm -rf $(VENV) out mutants dist
