# SPDX-License-Identifier: Apache-2.0
#
# For the Makefile: `include hack/kernel.mk`. Tests on a kernel that has dummy links and ip_vs, which runs as an
# ordinary process: see README.md beside this file.

KERNEL_PKGS    ?= ./agent/... ./lab/namespace/...
KERNEL_TIMEOUT ?= 170s

# What that kernel (Debian's user-mode Linux 6.1, one processor) has not; `make test` runs these on the machine's own.
# Anything else that skips there fails the run.
#   no ARP family in nf_tables   TestNftablesChainsThatSeeARPAreListed, TestAMute…, TestMuteKernelLinux: muting is refused there
#   no tcx (Linux 6.6)           TestXDPAndTCXProgramsOfNICsAreListed
#   no second processor          TestC09AChurnNeverMakesAPartialListLookComplete: nothing runs beside the listing
#   optmem_max of a namespace    TestAKernelWithLittleRoomForFiltersStillWatchesAThousandAddresses
KERNEL_LACKS ?= ^(TestNftablesChainsThatSeeARPAreListed|TestAMute.*|TestMuteKernelLinux|TestXDPAndTCXProgramsOfNICsAreListed|TestC09AChurnNeverMakesAPartialListLookComplete|TestAKernelWithLittleRoomForFiltersStillWatchesAThousandAddresses)$$

# All that was said where TESTFLAGS has -v, else what is not a pass.
kernel-show = $(if $(filter -v,$(TESTFLAGS)),cat,grep -v -E '^(=== | *--- PASS|PASS$$)|\[rapid\] OK')

.PHONY: test-kernel
test-kernel: ## Run the kernel-facing tests on a kernel with dummy and ip_vs, and the test of hack/vmexec (KERNEL_PKGS, TESTFLAGS)
	@for tool in linux.uml modprobe ip; do PATH="$$PATH:/usr/sbin:/sbin" command -v $$tool >/dev/null || { \
	  echo "test-kernel: $$tool is missing; apt-get install --no-install-recommends user-mode-linux kmod iproute2" >&2; exit 1; }; done
	@out=$$(mktemp -d); trap 'rm -rf "$$out"' EXIT; set -x; \
	{ $(GO) test -tags kernel -count=1 -v ./hack 2>&1 || : >"$$out/failed"; \
	  CGO_ENABLED=0 $(GO) test -tags kernel -count=1 -v -timeout $(KERNEL_TIMEOUT) -exec "$(CURDIR)/hack/vmexec" \
	    -skip '$(KERNEL_LACKS)' $(TESTFLAGS) $(KERNEL_PKGS) 2>&1 || : >"$$out/failed"; \
	} | tee "$$out/log" | $(kernel-show) || true; \
	{ set +x; } 2>/dev/null; \
	if grep -E '^ *--- SKIP' "$$out/log"; then echo 'test-kernel: skipped, on the one kernel that has to have what these tests need' >&2; exit 1; fi; \
	[ ! -e "$$out/failed" ]

# A real kube-proxy in IPVS mode. Its sources come as Go modules, in a go.mod of their own; cold that is ten minutes.
KUBE_PROXY := $(TOOLS)/kube-proxy
K8SVERSION := k8s.io/component-base/version
KUBE_PROXY_LDFLAGS := -s -w -X $(K8SVERSION).gitVersion=v1.37.2 -X $(K8SVERSION).gitMajor=1 -X $(K8SVERSION).gitMinor=37 \
	-X $(K8SVERSION).gitTreeState=clean -X $(K8SVERSION).gitCommit=unknown -X $(K8SVERSION).buildDate=2026-01-01T00:00:00Z

$(KUBE_PROXY): hack/kubeproxy/go.mod hack/kubeproxy/go.sum | $(TOOLS)/.$(GOVERSION)
	cd hack/kubeproxy && CGO_ENABLED=0 $(GO) build -gcflags=all=-dwarf=false -ldflags '$(KUBE_PROXY_LDFLAGS)' \
	  -o $(CURDIR)/$@ k8s.io/kubernetes/cmd/kube-proxy

.PHONY: test-kube-proxy
test-kube-proxy: $(KUBE_PROXY) ## Let a real kube-proxy make the fault on that kernel, clean it, let it come back (first time: builds kube-proxy)
	@for tool in linux.uml modprobe ip xtables-legacy-multi ipset; do PATH="$$PATH:/usr/sbin:/sbin" command -v $$tool >/dev/null || { \
	  echo "test-kube-proxy: $$tool is missing; apt-get install --no-install-recommends user-mode-linux kmod iproute2 iptables ipset" >&2; exit 1; }; done
	CGO_ENABLED=0 VMEXEC_TIMEOUT=600 VMEXEC_MEMORY=1G KUBE_PROXY='$(CURDIR)/$(KUBE_PROXY)' $(GO) test -tags 'kernel kubeproxy' -count=1 -timeout 570s \
	  -exec '$(CURDIR)/hack/vmexec' -run RealKubeProxy $(TESTFLAGS) ./agent/node
