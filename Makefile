# The doors of Drover. Everything runs on one machine, on loopback, with nothing but Rust.
CARGO ?= cargo
DIR ?= .drover
ARGS ?=
WORLDS ?= lab kube

.PHONY: dev kube-assets clients userdata-judges test lint bench bench-kube clean openstack-up openstack-down test-openstack record-openstack record-kube test-upstream

dev: ## build, start the embedded world and drive it; ARGS="--demo --speed 20" for more
	$(CARGO) run --quiet --package drover -- dev --data $(DIR) $(ARGS)

kube-assets: ## build a real Kubernetes control plane for the tests, once per version, and print its folder; needs Go
	@tools/kube/build.sh

clients: ## build the foreign clients that judge the lab, once per version; needs Go, Python 3 and a network
	@tools/clients/setup.sh

userdata-judges: ## make the programs that judge user-data, once per version; needs Go, Python 3, Debian's apt and a network
	@tools/userdata/setup.sh

test: ## every test of the workspace; with Go, also on a real control plane
	@if command -v go >/dev/null; then tools/kube/build.sh >/dev/null \
		|| echo "NOT RUN: tests on a real control plane, for it can't be built (see above)" >&2; fi
	@tools/clients/setup.sh >/dev/null || true # it has said what it can't make
	@tools/userdata/setup.sh >/dev/null || true # so has this
	$(CARGO) test --workspace --lib --bins --tests

test-upstream: ## tests that others wrote; prints how many of those that pass on the real thing pass on the lab; WORLDS=lab spares the real one
	tools/upstream/kube/e2e.sh $(WORLDS)
	tools/upstream/openstack/tempest.sh

record-kube: ## write anew what a real API server answers in the lab's cases; CASE=watch/ takes some of them
	@tools/kube/build.sh >/dev/null
	RECORD=1 $(CARGO) test --package drover-lab --test apiserver the_real_server -- --nocapture

lint: ## formatting and clippy, warnings are errors
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --workspace --all-targets -- --deny warnings

bench: ## print the measures of planning and of whole pools; asserts nothing
	$(CARGO) bench --package drover-sim --bench plan --bench pool

bench-kube: kube-assets ## print what Drover costs on a real control plane; takes 15 minutes, asserts nothing
	$(CARGO) build --profile bench --package drover --package drover-sim --bin drover --bench kube
	DROVER=$${CARGO_TARGET_DIR:-$(CURDIR)/target}/release/drover $(CARGO) bench --package drover --package drover-sim --bench kube

openstack-up: ## start real OpenStack services on loopback; the first time it installs them, once (Debian 12 and PyPI)
	tools/openstack/up.sh

openstack-down: ## stop them; what was installed and their data stay
	tools/openstack/down.sh

test-openstack: ## Drover on real OpenStack services, and the recorded exchanges asked again of them
	tools/openstack/test.sh

record-openstack: ## ask real OpenStack services anew what the lab's cloud is compared with
	tools/openstack/test.sh record

clean: ## remove what was built and the data of the embedded world
	$(CARGO) clean
	rm -rf $(DIR)
