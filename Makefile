# kaja: `make run` starts a node, `make test` runs every test, foreign clients included. `make help` lists the rest.
#
#   SEED=n N=n        of `make sim`          FUZZTIME=30s   of `make fuzz`, for each target
#   ROUNDS=n          of `make bench-compare`
#   DURATION=300s SEED=n FAULTS=kill,cut   of `make chaos` (none given: every fault); DIR= where several run at once
#   RUN=regexp        of `make compat`       TARGET=kafka   of `make compat`: prove the tests on a real Kafka 4.4

SHELL       := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

GO       ?= go
GOLINT   := $(GO) tool -modfile=tools/go.mod golangci-lint
FUZZTIME ?= 30s
COUNT    ?= 1
ROUNDS   ?= 5
RUN      ?= .
SEED     ?= 1
N        ?= 1
TARGET   ?= kaja
TIMEOUT  ?= 30m
ARGS     ?=
DURATION ?= 300s
FAULTS   ?=
ROOT     := $(CURDIR)
LDFLAGS  := -s -w
COMPAT   := KAJA_COMPAT=1 KAJA_COMPAT_TARGET=$(TARGET) KAJA_COMPAT_BINARY=$(ROOT)/bin/kaja KAJA_COMPAT_LOGS=$(ROOT)/build/compat-logs

# The table of docs/compatibility.md, from what the runs left in build/: a run that begins keeps what the one before it printed, so that
# runs of some tests each (RUN=) add up, on what the document has. The last result of a test counts.
TABLE := $(GO) run ./compat-tests/table -before docs/compatibility.md -kaja 'build/compat-kaja*.txt,build/clients-kaja*.txt' -kafka 'build/compat-kafka*.txt,build/clients-kafka*.txt'
KEEP   = mkdir -p build; f=build/$(1); [ ! -e $$f.txt ] || mv $$f.txt $$f-$$(date -u -r $$f.txt +%Y%m%dT%H%M%SZ).txt

# Of a foreign test's many lines, those that tell how far it is and what went wrong.
PROGRESS := grep --line-buffered -Ev '^ *(=== (RUN|PAUSE|CONT|NAME)|--- PASS: [^ ]*/)'

.PHONY: help run build test unit sim sim-loop chaos chaos-gaps chaos-planted prove-chaos prove-cluster race race-quick lint fmt gen check-gen fuzz fuzz-quick long bench bench-partitions bench-cluster compat compat-install clients compatibility cover vuln ci ci-parts release clean prove-log prove-txn

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 18

run: build ## start a node on localhost:9092 (ARGS="--set name=value" …)
	exec bin/kaja start $(ARGS)

build: ## build bin/kaja, one static binary
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/kaja ./cmd/kaja

test: unit compat clients ## run every test; installs the foreign clients first

unit: ## run the tests that need Go alone
	$(GO) vet ./...
	$(GO) test ./...

sim: ## whole clusters in virtual time, N seeds from SEED on; a seed that fails is repeated with SEED=
	GOMAXPROCS=1 GODEBUG=asyncpreemptoff=1 KAJA_SIM_SEED=$(SEED) KAJA_SIM_N=$(N) \
	  $(GO) test -tags sim,synctests -count=1 -timeout 60m ./sim

sim-loop: ## the event-loop tier of the simulation, N seeds from SEED on; a seed that fails is repeated with SEED=
	KAJA_LOOP_SEED=$(SEED) KAJA_LOOP_N=$(N) $(GO) test -count=1 -timeout 60m -run '^TestSeeds$$' -v ./sim/loop

chaos: build bin/chaos bin/kaja-parent ## real processes in network namespaces under faults of every kind (DURATION= SEED= FAULTS= ARGS=); needs root
	bin/chaos -binary bin/kaja -old bin/kaja-parent -dir $(or $(DIR),build/chaos) -json $(or $(DIR),build/chaos)/result.json -duration $(DURATION) -seed $(SEED) -faults '$(FAULTS)' $(ARGS)

chaos-gaps: build bin/chaos build/kafka-jars ## how long nothing is acknowledged while a node dies: kaja, then Kafka 4.4 (KILLS=100 KAFKA_KILLS=20 SERIES= OTHERS= DIR=)
	KILLS='$(KILLS)' KAFKA_KILLS='$(KAFKA_KILLS)' SERIES='$(SERIES)' OTHERS='$(OTHERS)' KAFKA_OTHERS='$(KAFKA_OTHERS)' SEED='$(SEED)' DIR='$(DIR)' .ci/chaos-gaps

prove-chaos: build bin/chaos ## 225 s of every kind of fault and 15 power cuts on real processes, disks and links; needs root
	.ci/prove-chaos

chaos-planted: bin/chaos ## planted bugs that `make chaos` has to find
	CGO_ENABLED=0 $(GO) build -tags planted -o bin/kaja-planted ./cmd/kaja
	.ci/chaos-planted

.PHONY: bin/chaos bin/kaja-parent
bin/chaos:
	CGO_ENABLED=0 $(GO) build -o $@ ./chaos

# The binary of the commit before this one, to upgrade from.
bin/kaja-parent:
	mkdir -p build && parent=$$(mktemp -d build/parent.XXXXXX) && trap "rm -rf $(ROOT)/$$parent" EXIT && \
	  git archive HEAD^ | tar -x -C $$parent && cd $$parent && \
	  CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o $(ROOT)/$@ ./cmd/kaja

race: ## run the tests that need Go alone under the race detector
	$(GO) test -race ./...

race-quick: ## run the packages where goroutines meet under the race detector
	$(GO) test -race ./broker/... ./coord/... ./groupcoord/... ./raftctl ./internal/...

lint: ## run the linters
	$(GOLINT) run ./...
	cd compat-tests/clients && $(GO) vet ./...

fmt: ## format the code
	$(GOLINT) fmt ./...

gen: ## write the generated documents again
	$(GO) test -count=1 -run 'DocIsCurrent' ./broker ./broker/config -update

check-gen: gen ## fail if a generated document in the repository is not what the code says
	git --no-pager diff --exit-code -- docs

fuzz: ## fuzz each target for FUZZTIME
	.ci/fuzz $(FUZZTIME)

fuzz-quick: ## fuzz each target for a moment, but those that prove-log fuzzes for longer
	.ci/fuzz 4s $$($(GO) list ./... | grep -vE '/kaja/(log|broker/replica)$$')

long: build compat-install ## fuzz, race and compatibility for a long time; appends a line per run to docs/ledger.md
	.ci/long

bench: ## run the benchmarks
	$(GO) test -run '^$$' -bench . -benchmem ./...

bench-compare: build build/kafka-jars ## measure kaja, Kafka 4.4 and the machine's floor in one run (ROUNDS=5, ARGS="-only produce")
	mkdir -p build/perf/scratch
	cd tools/perf && $(GO) build -o $(ROOT)/build/perf/ ./cmd/...
	build/perf/compare -kaja bin/kaja -kafka-jars build/kafka-jars -bin build/perf -dir build/perf/scratch -rounds $(ROUNDS) $(ARGS)

bench-partitions: build ## measure a node with 100,000 partitions beside one with 100, and restarts of 500 with sealed segments
	mkdir -p build/perf
	cd tools/perf && $(GO) build -o $(ROOT)/build/perf/ ./cmd/partitions
	build/perf/partitions -mode series -kaja bin/kaja -dir build/perf/many-partitions -count 5000 $(ARGS)
	build/perf/partitions -mode sealed -kaja bin/kaja -dir build/perf/sealed-segments -topics 1 -partitions 500

bench-cluster: build build/kafka-jars ## measure three nodes: idle, metadata, three replicas beside Kafka, deaths, busy loops (ARGS="-mode idle,rf3")
	mkdir -p build/perf/scratch
	cd tools/perf && $(GO) build -o $(ROOT)/build/perf/ ./cmd/cluster ./cmd/rawproduce
	build/perf/cluster -kaja bin/kaja -kafka-jars build/kafka-jars -bin build/perf -dir build/perf/scratch $(ARGS)

build/kafka-jars: compat-tests/install/pom.xml
	rm -rf $@ $@.part
	mvn -q -B -f $< org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(ROOT)/$@.part
	mv $@.part $@
	touch $@

compat-install: ## install the foreign clients that the compatibility tests drive
	compat-tests/install/install.sh

compat: build compat-install ## run foreign clients and Kafka's tools against kaja (RUN=regexp, TARGET=kafka)
	$(call KEEP,compat-$(TARGET))
	status=0; $(COMPAT) $(GO) test -v -p 1 -count=$(COUNT) -timeout $(TIMEOUT) -run '$(RUN)' ./compat-tests/... | tee build/compat-$(TARGET).txt | $(PROGRESS) || status=$$?; \
	  $(TABLE); exit $$status

clients: build compat-install ## run foreign Go clients (own module) against kaja
	$(call KEEP,clients-$(TARGET))
	cd compat-tests/clients && $(COMPAT) $(GO) test -v -count=$(COUNT) -timeout $(TIMEOUT) -run '$(RUN)' ./... | tee $(ROOT)/build/clients-$(TARGET).txt | $(PROGRESS)

compatibility: ## write docs/compatibility.md from what make compat and make clients printed (with TARGET=kafka, too)
	mkdir -p build && $(TABLE) >build/compatibility.md
	cp build/compatibility.md docs/compatibility.md

cover: ## test coverage in build/cover.html
	mkdir -p build
	$(GO) test -coverprofile=build/cover.out ./...
	$(GO) tool cover -html=build/cover.out -o build/cover.html
	$(GO) tool cover -func=build/cover.out | tail -n 1

vuln: ## look for known vulnerabilities (needs the vulnerability database)
	$(GO) tool -modfile=tools/go.mod govulncheck ./...

prove-cluster: ## 750 seeds of the event loop, some of them twice, 44 of whole nodes, disks that hang, planted bugs chosen by the commit
	KAJA_LOOP_N=750 $(GO) test -count=1 -timeout 20m -run '^TestSeeds$$' -v ./sim/loop
	KAJA_COMMIT=$$(git rev-parse HEAD) $(GO) test -count=1 -tags planted -timeout 20m -run '^TestPlanted' -v ./sim/loop
	GOMAXPROCS=1 GODEBUG=asyncpreemptoff=1 KAJA_SIM_SEED=1 KAJA_SIM_N=3 $(GO) test -count=1 -tags sim,synctests -timeout 20m \
	  -run '^(TestDiskThatHangs|TestHeartbeatsWaitForNoDisk|TestNodeThatIsBehindIsNotPromoted|TestMemberIsSentTheSnapshotAtOnce)$$' -v ./sim
	mkdir -p build && $(GO) test -c -tags sim,synctests -o build/sim.test ./sim
	cd sim && printf '%s\n' 1 16 31 46 | xargs -P 2 -I{} env GOMAXPROCS=1 GODEBUG=asyncpreemptoff=1 KAJA_SIM_SEED={} KAJA_SIM_N=11 \
	  $(ROOT)/build/sim.test -test.run '^TestThreeNodesUnderNemeses$$' -test.v -test.timeout 20m
	GOMAXPROCS=1 GODEBUG=asyncpreemptoff=1 KAJA_COMMIT=$$(git rev-parse HEAD) \
	  $(GO) test -count=1 -tags planted,sim,synctests -timeout 20m -run '^TestPlantedBugsOfForming$$' -v ./sim

prove-log: ## 37,500 crash-recoveries of the log, three planted bugs chosen by the commit, its readers fuzzed
	KAJA_CRASHES=37500 $(GO) test -count=1 -timeout 20m -run '^TestMetamorphic$$' -v ./log
	KAJA_COMMIT=$$(git rev-parse HEAD) $(GO) test -count=1 -tags planted -timeout 20m -run '^TestPlanted' -v ./log
	.ci/fuzz 15s ./log ./broker/replica

prove-txn: ## 160,000 records in transactions on a node that is killed all the time, three planted bugs chosen by the commit
	GOMAXPROCS=1 GODEBUG=asyncpreemptoff=1 KAJA_SIM_SEED=1 KAJA_SIM_N=8 KAJA_EOS_RECORDS=20000 \
	  $(GO) test -count=1 -tags sim,synctests -timeout 20m -run '^TestTransactionsOnALoneNode$$' -v ./sim
	GOMAXPROCS=1 GODEBUG=asyncpreemptoff=1 KAJA_COMMIT=$$(git rev-parse HEAD) \
	  $(GO) test -count=1 -tags planted,sim,synctests -timeout 20m -run '^TestPlantedBugsOfTransactions$$' -v ./sim

# What .ci/run runs, in this order. All of it together has 45 minutes on two cores with empty caches (CONTRIBUTING.md).
CI := lint check-gen unit compat clients race-quick prove-log prove-cluster prove-chaos prove-txn fuzz-quick

ci: $(CI) ## what .ci/run runs

ci-parts:
	@echo $(CI)

release: ## build static binaries for each platform into build/release
	mkdir -p build/release
	for platform in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64; do \
	  echo "build $$platform"; \
	  CGO_ENABLED=0 GOOS=$${platform%/*} GOARCH=$${platform#*/} $(GO) build -trimpath -ldflags '$(LDFLAGS)' \
	    -o build/release/kaja-$${platform%/*}-$${platform#*/} ./cmd/kaja; \
	done
	cd build/release && sha256sum kaja-* > SHA256SUMS

clean: ## remove what was built
	rm -rf bin build
