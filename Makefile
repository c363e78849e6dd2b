# Two commands are all that a fresh machine needs: `make run` and `make test`. Each installs what it finds missing.

.DEFAULT_GOAL := help
SHELL := /bin/bash

PORT ?= 6379
# Where Redis 8 built from source and the official images look; Debian's own packages look in PREFIX=/usr.
PREFIX ?= /usr/local
MODULEDIR ?= $(PREFIX)/lib/redis/modules
ARGS ?=
TARGETS ?=
# The length of chaos and fuzz (each target), the number of simulated histories, and the seed; without a seed each run chooses and
# prints one.
SECONDS ?= 60
SEED ?=
SEEDS ?= 10000
# The scenario of chaos: `make chaos ARGS=--help` lists them; without one the seed chooses.
SCENARIO ?=
# The histories that judge decides about: `make chaos` writes one to target/chaos.jsonl, or with ARGS='--history FILE' to FILE.
FILES ?=
# The rounds of each fault in the scenarios failover, sentinel and cluster.
ROUNDS ?= 1
# The older version that upgrade begins with; scripts/upgrade knows one.
FROM ?=
# Which servers test-matrix uses: those of CI, or with "yes" all that scripts/servers lists.
WIDE ?=
# The secret key of sign.
KEY ?= $(HOME)/.minisign/redis-lock.key
# The parts of nightly: tests, faults, search, memory, release; without one, all of them.
PARTS ?=
# Where the change begins that mutants alters: a revision, or none.
DIFF ?=

TARGET := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
MODULE := $(TARGET)/release/libredis_lock.so
INSTALLED := $(MODULEDIR)/redis-lock.so

# Where rustup puts cargo, also for a shell that has not been told.
export PATH := $(HOME)/.cargo/bin:$(PATH)
# The scripts read these. No SERVER: the one in PATH, or a private one.
export PORT MODULE FROM WIDE
ifdef SERVER
export SERVER
endif

.PHONY: help build run test test-matrix test-core test-simulated test-clients test-rust-client test-node-client test-go-client test-java-client test-family chaos judge model simulate hunt fuzz \
	coverage mutants monitoring memcheck sanitize upgrade bench bench-core nightly lint check-oldest advisories docs fmt install uninstall clean \
	dist test-dist test-fresh test-images test-platforms sign publish release-check

help: ## list the targets
	@echo 'redis-lock: locks for Redis and Valkey'
	@echo
	@awk -F ' *## *' '/^[a-z-]+:.*## / { sub(/:.*/, "", $$1); printf "  make %-14s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo '  PORT=6380     another port for run'
	@echo '  SERVER=path   another server for run, test, chaos, monitoring, upgrade and bench'
	@echo '  WIDE=yes      test-matrix with every server of scripts/servers, not only those of CI'
	@echo '  ARGS=...      more arguments for cargo test, chaos and the benchmarks: ARGS=--short'

build: ## build the module, target/release/libredis_lock.so
	@scripts/setup build
	cargo build --release --locked

run: ## start a server with the module on 127.0.0.1, in the foreground
	@scripts/setup run
	cargo build --release --locked
	@scripts/run

test: ## run the tests of the module against one server
	@scripts/setup test
	cargo build --release --locked
	cargo build --release --locked --package witness
	cargo build --profile checked --locked --features failpoints
	@scripts/test one $(ARGS)

test-matrix: ## the same against the servers of CI, which it fetches into .servers; WIDE=yes: against all of scripts/servers
	@scripts/setup test
	@scripts/servers
	cargo build --release --locked
	cargo build --release --locked --package witness
	cargo build --profile checked --locked --features failpoints
	@scripts/test matrix $(ARGS)

test-core: ## run the tests of the core and of the commands, which need no server
	@scripts/setup build
	cargo test --locked --no-default-features --lib $(ARGS)

test-simulated: ## run the tests of the module in a simulated server
	@scripts/setup build
	cargo test --locked --no-default-features --features simulated --lib --test scenarios $(ARGS)
	cargo test --profile tool --locked --no-default-features --features simulated --test simulated $(ARGS)

# SCENARIO=failover ROUNDS=3 replaces masters; SCENARIO=soak SECONDS=1800 watches the memory of a server.
chaos: ## put servers under load and faults for SECONDS=60 in a SCENARIO, and check the promises of the module
	@scripts/setup chaos
	cargo build --release --locked
	@server=$$(scripts/servers --server) && SERVER=$$server cargo run --profile tool --locked --package chaos -- \
		$(if $(SCENARIO),--scenario $(SCENARIO)) --seconds $(SECONDS) --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

judge: ## decide whether FILES='a.jsonl b.jsonl', histories that chaos has written, are linearizable
	@scripts/setup build
	cargo run --profile tool --locked --package judge -- $(FILES)

model: ## check the claim of docs/guides/failover.md in a model, and that each of its conditions is needed
	@scripts/setup build
	cargo test --profile tool --locked --package judge
	cargo run --profile tool --locked --package judge -- --failover

simulate: ## run SEEDS=n histories in simulated servers, from SEED on, and check the contract after each step
	@scripts/setup build
	cargo run --profile tool --locked --package simulator -- --seeds $(SEEDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

# ARGS chooses some: names, or --since=HEAD~1 for those that a change touches. The module has no debug assertions here: it is the
# checker that has to find the defect.
hunt: ## give the simulated server faults and the module defects, one by one, and see that the simulation finds each
	@scripts/setup hunt
	cargo test --profile tool --locked --package simulator
	cargo run --profile tool --config profile.tool.package.redis-lock.debug-assertions=false --locked --package simulator --bin hunt -- \
		$(ARGS)

# SECONDS for each target of fuzz/; TARGETS chooses some of them.
fuzz: ## make up bytes for the option parser, for histories in simulated servers, and for a server, for SECONDS=60 each
	@scripts/setup fuzz
	cargo build --release --locked
	cargo clippy --locked --manifest-path fuzz/Cargo.toml --target-dir $(TARGET)/fuzz --all-targets -- -D warnings
	@server=$$(scripts/servers --server) && SERVER=$$server scripts/fuzz $(SECONDS) $(TARGETS)

coverage: ## measure which lines of the module its tests run, on three servers and in simulated ones
	@scripts/setup coverage
	@scripts/servers
	@scripts/coverage $(ARGS)

# DIFF is the revision where the change begins; without it, the one where the branch has left main. DIFF=none takes whole files.
mutants: ## alter the lines of a change and list what no test notices; DIFF=none ARGS='--file src/core/stall.rs': those of a file
	@scripts/setup mutants
	@DIFF='$(DIFF)' scripts/mutants $(ARGS)

test-clients: ## check the Python package and run its tests, with several servers and client libraries
	@scripts/setup clients
	$(if $(SERVER),,@scripts/servers)
	cargo build --release --locked
	@scripts/test-clients $(ARGS)

test-rust-client: ## check the Rust package and run its tests, on SERVER or on several servers; ARGS go to its test program
	@scripts/setup test
	$(if $(SERVER),,@scripts/servers)
	cargo build --release --locked
	@scripts/test-rust-client $(ARGS)

test-node-client: ## check the Node.js package and run its tests, with several servers and versions of Node.js
	@scripts/setup node
	$(if $(SERVER),,@scripts/servers)
	cargo build --release --locked
	@scripts/test-node-client $(ARGS)

test-go-client: ## check the Go package and run its tests, on SERVER or on several servers; ARGS go to go test
	@scripts/setup go
	$(if $(SERVER),,@scripts/servers)
	cargo build --release --locked
	@scripts/test-go-client $(ARGS)

test-java-client: ## check the Java package and run its tests, on SERVER or on several servers; ARGS go to Maven
	@scripts/setup java
	$(if $(SERVER),,@scripts/servers)
	cargo build --release --locked
	@scripts/test-java-client $(ARGS)

test-family: ## let the packages of all languages wait for each other's locks
	@scripts/setup node
	@scripts/setup clients
	@scripts/setup go
	@scripts/setup java
	cargo build --release --locked
	@scripts/test-family

# All servers in one run, or SERVER alone.
monitoring: ## run the alerts, the dashboard and the exporter's script of contrib/ with Prometheus
	@scripts/setup monitoring
	cargo build --release --locked
	@server=$$(scripts/servers --server) && SERVER=$$server cargo test --locked --package monitoring -- $(ARGS)

memcheck: ## run integration tests on Valkey 9.1 under valgrind's memcheck; ARGS=... chooses some by name
	@scripts/setup memcheck
	@scripts/servers valkey-9.1.2
	cargo build --profile checked --locked --features failpoints
	cargo build --profile checked --locked --package witness
	@scripts/memcheck $(ARGS)

# TESTS=no leaves out the tests.
sanitize: ## run the simulation and its tests under AddressSanitizer, which also finds leaks
	@scripts/setup build
	@TESTS=$(TESTS) scripts/sanitize --seeds $(SEEDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

upgrade: ## run an older version (FROM=commit) and this one in one replicated set, and one after the other
	@scripts/setup test
	cargo build --release --locked
	@scripts/upgrade $(ARGS)

# Servers start slowly under callgrind, more so when several start together.
bench: ## measure the module and the lock libraries of today, into target/bench
	@scripts/setup bench
	cargo build --release --locked
	cargo build --profile tool --locked
	@server=$$(scripts/servers --server) && PATIENCE_FACTOR=6 SERVER=$$server cargo run --profile tool --locked --package bench -- $(ARGS)

bench-core: ## time the core alone: the queue, and the decision about an uncontended request
	@scripts/setup build
	cargo bench --profile tool --locked --package bench --bench core -- $(ARGS)

nightly: ## run what takes long: all servers, all known defects, memcheck and sanitizers, long load and faults
	@.ci/run nightly $(PARTS)

lint: ## check format, clippy, documentation, scripts, subjects of commits and what is used of others; warnings are errors
	@scripts/setup lint
	! git log -20 --format=%s | grep --extended-regexp '.{73}'
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo clippy --locked --workspace --exclude witness --no-default-features --features redis-lock/simulated --all-targets -- -D warnings
	cargo clippy --locked --package redis-lock --package witness --all-targets -- -D warnings
	cargo clippy --locked --features failpoints -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --locked --no-deps --document-private-items
	shellcheck $$(grep -ls '^#!.*sh' scripts/* packaging/* packaging/deb/*) .ci/run
	@scripts/deny check

check-oldest: ## build the module and check all packages with the oldest Rust; ARGS=client: check the Rust package
	@scripts/setup build
	@scripts/check-oldest $(ARGS)

advisories: ## ask whether a defect is known of anything that is used; says so where that cannot be known
	@scripts/setup lint
	@scripts/deny advisories

docs: ## build the site of the documents, target/docs/index.html, and check its links and its search
	@scripts/setup docs
	@scripts/docs

fmt: ## format the code
	cargo fmt --all

# Builds nothing, so that root need not run cargo.
install: ## install as MODULEDIR/redis-lock.so (PREFIX=/usr/local, DESTDIR honoured)
	@test -f '$(MODULE)' || { echo 'There is nothing to install yet: run make build first.' >&2; exit 1; }
	install -d '$(DESTDIR)$(MODULEDIR)'
	install -m 755 '$(MODULE)' '$(DESTDIR)$(INSTALLED)'
	@echo 'Now add this line to the redis.conf of the server (redis.conf.example has more):'
	@echo 'loadmodule $(INSTALLED)'

uninstall: ## remove what install installed
	rm -f '$(DESTDIR)$(INSTALLED)'

dist: ## make the files of a release in dist/: tarballs, packages, SBOM, checksums; ARGS=twice: a second time elsewhere, and compare
	@scripts/setup dist
	@scripts/dist $(ARGS)

test-dist: ## install the packages of dist/ on fresh Debian systems and use them there; needs root
	@scripts/setup release
	@packaging/test $(ARGS)

test-images: ## build the images of packaging/docker, start them, and compose.yaml; needs root; ARGS=stand-ins: without official images
	@scripts/setup images
	@packaging/test-images $(ARGS)

test-fresh: ## run make run and make test on fresh Debian 12 and 13 with git and make only; needs root; ARGS=trixie: on one of them
	@scripts/setup release
	@scripts/test-fresh $(ARGS)

# Another platform than those of scripts/servers.
test-platforms: ## run the scenarios with the modules of the last make dist on musl, and on aarch64 under qemu; needs root
	@scripts/setup dist
	@scripts/setup platforms
	@packaging/test-platforms $(ARGS)

release-check: ## check that the version, CHANGELOG.md, docs/compatibility.md and dist/ belong together
	@scripts/dist check

# KEY may be /dev/stdin.
sign: ## sign the checksums of dist/ with minisign and KEY, and check it with the public key
	@test -f dist/SHA256SUMS || { echo 'There is nothing to sign yet: run make dist first.' >&2; exit 1; }
	@scripts/setup release </dev/null
	minisign -S -s '$(KEY)' -m dist/SHA256SUMS
	minisign -V -p packaging/minisign.pub -m dist/SHA256SUMS

publish: ## publish dist/ as a release of the forge, for the tag of the version
	@scripts/dist publish

clean: ## remove what was built (.servers and .tools stay)
	cargo clean
