# SPDX-License-Identifier: Apache-2.0
#
# gradwright's build, whole. GNU make, pkg-config, a C17 compiler; `make help` lists the targets.
#
#   make                     builds ./gradwright
#   make test MODE=asan      builds and runs every test under AddressSanitizer and UBSan
#   make build/release/tests/file
#                            builds one folder's tests, and only what that folder may depend on
#
# How it works: each folder of src/ (HOUSE, in the order in which a folder may include another) becomes
# one static archive; the program is src/cli/main.c linked with all of them. Each folder of tests/
# becomes one executable of its *.c files and the harness, linked with the archives down to the folder
# of the same name, plus those that tests/FOLDER/LINK names, or with all where no folder has that name.
#
# Variables: MODE (below), CC, WERROR=1 (warnings are errors), V=1 (show commands, and each test),
# BUILD (root of what is built), PREFIX (install root; also searched for headers, libraries and .pc
# files), DESTDIR, JOBS (parallel jobs where this file starts make itself), GW_TEST_FILTER.

MODE     ?= release
BUILD    ?= build
JOBS     ?= $(shell nproc 2>/dev/null || echo 2)
VERSION  := $(shell cat VERSION)
B        := $(BUILD)/$(MODE)
prefix   ?= $(or $(PREFIX),/usr/local)
ifeq ($(origin CC),default)
CC       := gcc
endif
ifneq ($(V),1)
Q := @
endif

comma := ,

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SUFFIXES:

# ---------------------------------------------------------------- the house
# Plugins are opened at run time: each is a shared library that needs more than the program does.
PLUGINS := src/comm/mpi/plugin.c
HOUSE   := base ir ops sched pass model kernel comm run plan file data ckpt train net serve ship gateway fleet cli
sources  = $(filter-out $(PLUGINS),$(sort $(wildcard src/$(1)/*.c src/$(1)/*/*.c)))
FOLDERS := $(foreach f,$(HOUSE),$(if $(call sources,$(f)),$(f)))
lib      = $(B)/lib/libgw_$(1).a
objects  = $(patsubst %.c,$(B)/obj/%.o,$(1))
MAIN    := src/cli/main.c

# Folders from the top of the house down to $(1), $(1) included.
upto     = $(if $(2),$(firstword $(2)) $(if $(filter $(1),$(firstword $(2))),,$(call upto,$(1),$(wordlist 2,99,$(2)))))

TESTS   := $(patsubst tests/%/,%,$(sort $(dir $(wildcard tests/*/*.c))))
test_extra = $(if $(wildcard tests/$(1)/LINK),$(shell cat tests/$(1)/LINK))
test_folders = $(filter $(FOLDERS),$(if $(filter $(1),$(HOUSE)),$(call upto,$(1),$(HOUSE)) $(call test_extra,$(1)),$(HOUSE)))
SCRIPTED := $(sort $(wildcard tests/*/test_*.sh))

# ---------------------------------------------------------------- libraries
PC_MODULES := libfyaml jansson libxxhash libpcre2-8 libutf8proc libzstd zlib libdeflate libcrypto libcurl libxml-2.0 libbrotlidec
export PKG_CONFIG_PATH := $(if $(PREFIX),$(PREFIX)/lib/pkgconfig:$(PREFIX)/lib64/pkgconfig:)$(PKG_CONFIG_PATH)
PC_HAVE    := $(shell for m in $(PC_MODULES) dnnl; do pkg-config --exists $$m 2>/dev/null && echo $$m; done)
PC_MISSING := $(filter-out $(PC_HAVE),$(PC_MODULES))
PREFIX_INC := $(if $(PREFIX),$(addprefix -isystem ,$(wildcard $(PREFIX)/include)))
PREFIX_LIB := $(if $(PREFIX),$(addprefix -L,$(wildcard $(PREFIX)/lib $(PREFIX)/lib64)))
ifneq ($(PC_HAVE),)
PC_CFLAGS  := $(shell pkg-config --cflags $(PC_HAVE))
PC_LIBS    := $(shell pkg-config --libs $(PC_HAVE))
endif
# Debian's libdnnl-dev brings no .pc file.
DNNL_LIBS  := $(if $(filter dnnl,$(PC_HAVE)),,-ldnnl)

# ---------------------------------------------------------------- flags
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wswitch-enum -Wmissing-prototypes \
        -Wstrict-prototypes -Wvla -Wundef -Wcast-qual -Wwrite-strings -Wdouble-promotion -Wformat=2 \
        $(if $(filter 1,$(WERROR)),-Werror)

MODE_debug   := -O0 -g -DGW_DEBUG
MODE_release := -O2 -g
MODE_asan    := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -DGW_DEBUG -DGW_HOSTILE
MODE_tsan    := -O1 -g -fsanitize=thread -DGW_NO_CLONES
MODE_hostile := -O2 -g -DGW_HOSTILE
ifeq ($(MODE_$(MODE)),)
$(error MODE=$(MODE) is not one of debug release asan tsan hostile)
endif

# Floating point is strict everywhere but in src/kernel/cpu, whose kernels set their own flags.
KERNEL_OPT   := $(if $(filter release hostile,$(MODE)),-O3,-O2)
KERNEL_FLAGS := $(KERNEL_OPT) -fopenmp -ffp-contract=fast -fno-math-errno -fno-trapping-math

GW_CFLAGS := -std=c17 -D_GNU_SOURCE -ffp-contract=off $(MODE_$(MODE)) $(WARN) -Isrc -I$(B) \
             $(PREFIX_INC) $(PC_CFLAGS)
LDLIBS    := -Wl,--as-needed $(PREFIX_LIB) $(PC_LIBS) $(DNNL_LIBS) -lm -ldl -lpthread
LDFLAGS_  := $(MODE_$(MODE)) -fopenmp $(LDFLAGS)
# The linker knows no link order between archives: a folder may call through tables that stand above it.
group      = -Wl,--start-group $(1) -Wl,--end-group

# ---------------------------------------------------------------- compiling
.PHONY: FORCE
FORCE:

# A generated file is rewritten only when its text changes, so that it is a prerequisite like any other.
define write_if_changed
@mkdir -p $(dir $@)
@printf '%b\n' '$(1)' > $@.new; if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
endef

$(B)/flags: FORCE
	@$(if $(PC_MISSING),echo "missing libraries: $(PC_MISSING); 'make deps' installs them" >&2; exit 1,:)
	$(call write_if_changed,$(CC) $(subst ",,$(GW_CFLAGS) $(CFLAGS) | $(KERNEL_FLAGS)))

COMMIT = $(shell git describe --always --dirty 2>/dev/null || echo unknown)
$(B)/version.h: FORCE
	$(call write_if_changed,/* Written by make. */\n#define GW_VERSION "$(VERSION)"\n#define GW_COMMIT "$(COMMIT)")

# Hardware files become arrays of bytes, so that the program needs no file when it runs.
HARDWARE := $(sort $(wildcard hardware/*.yaml))
$(B)/hardware.list: FORCE
	$(call write_if_changed,$(HARDWARE))
$(B)/hardware_files.h: $(HARDWARE) $(B)/hardware.list
	@mkdir -p $(@D)
	@{ echo '/* Written by make from hardware/. */'; i=0; for f in $(HARDWARE); do \
	    echo "static const unsigned char hardware_file_$$i[] = {"; \
	    od -An -v -tu1 $$f | sed 's/  */,/g; s/^,//; s/$$/,/'; echo '0};'; i=$$((i + 1)); done; \
	  echo 'static const gw_machine_file hardware_files[] = {'; i=0; for f in $(HARDWARE); do \
	    echo "{\"$$(basename $$f .yaml)\", hardware_file_$$i, sizeof hardware_file_$$i - 1},"; i=$$((i + 1)); done; \
	  echo '};'; } > $@.new && mv $@.new $@
GENERATED := $(B)/version.h $(B)/hardware_files.h

COMPILE = $(CC) $(GW_CFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

$(B)/obj/src/kernel/cpu/%.o: src/kernel/cpu/%.c $(B)/flags | $(GENERATED)
	@mkdir -p $(@D)
	$(if $(Q),@echo "  CC      $<")
	$(Q)$(COMPILE) $(KERNEL_FLAGS)

# Sums and copies of collectives are loops over memory on the rank's threads; their floats stay strict.
$(B)/obj/src/comm/%.o: src/comm/%.c $(B)/flags | $(GENERATED)
	@mkdir -p $(@D)
	$(if $(Q),@echo "  CC      $<")
	$(Q)$(COMPILE) $(KERNEL_OPT) -fopenmp

$(B)/obj/tests/%.o: tests/%.c $(B)/flags | $(GENERATED)
	@mkdir -p $(@D)
	$(if $(Q),@echo "  CC      $<")
	$(Q)$(COMPILE) -Itests -DGW_TESTS_DIR='"$(CURDIR)/tests"'

$(B)/obj/%.o: %.c $(B)/flags | $(GENERATED)
	@mkdir -p $(@D)
	$(if $(Q),@echo "  CC      $<")
	$(Q)$(COMPILE)

# The list of an archive's members is a prerequisite too: a source file that goes leaves the archive.
define folder_rules
$(B)/lib/$(1).list: FORCE
	$$(call write_if_changed,$$(call sources,$(1)))
$(call lib,$(1)): $(call objects,$(filter-out $(MAIN),$(call sources,$(1)))) $(B)/lib/$(1).list
	@rm -f $$@ $$@.new
	$(Q)$$(AR) rcs $$@.new $$(filter %.o,$$^) && mv $$@.new $$@
endef
$(foreach f,$(FOLDERS),$(eval $(call folder_rules,$(f))))

# ---------------------------------------------------------------- linking
LIBS := $(foreach f,$(FOLDERS),$(call lib,$(f)))
link  = $(CC) $(LDFLAGS_) $(2) -o $@ $(filter %.o,$^) $(call group,$(1)) $(LDLIBS)

$(B)/gradwright: $(call objects,$(MAIN)) $(LIBS)
	$(if $(Q),@echo "  LINK    $@")
	$(Q)$(call link,$(LIBS))

# The MPI plugin lies beside the program; without Open MPI's headers it is left out.
MPI_CFLAGS := $(shell pkg-config --cflags ompi-c 2>/dev/null || mpicc --showme:compile 2>/dev/null)
MPI_LIBS   := $(shell pkg-config --libs ompi-c 2>/dev/null || mpicc --showme:link 2>/dev/null)
MPI_PLUGIN := $(if $(MPI_LIBS),$(B)/gradwright-mpi.so)
$(B)/gradwright-mpi.so: src/comm/mpi/plugin.c $(B)/flags | $(GENERATED)
	@mkdir -p $(B)/obj/src/comm/mpi
	$(if $(Q),@echo "  PLUGIN  $@")
	$(Q)$(CC) $(GW_CFLAGS) $(CFLAGS) $(patsubst -I%,-isystem %,$(MPI_CFLAGS)) -fPIC -shared -MMD -MP \
	    -MF $(B)/obj/src/comm/mpi/plugin.d -MT $@ $< -o $@ $(LDFLAGS) $(MPI_LIBS)

define test_rules
$(B)/tests/$(1): $(call objects,$(wildcard tests/$(1)/*.c) tests/harness.c tests/command.c) $(foreach f,$(call test_folders,$(1)),$(call lib,$(f)))
	@mkdir -p $$(@D)
	$(if $(Q),@echo "  LINK    $$@")
	$(Q)$$(call link,$(foreach f,$(call test_folders,$(1)),$(call lib,$(f))))
endef
$(foreach t,$(TESTS),$(eval $(call test_rules,$(t))))
TEST_EXES := $(TESTS:%=$(B)/tests/%)

$(B)/run_tests: $(B)/obj/tests/run_tests.o
	$(Q)$(CC) $(LDFLAGS_) -o $@ $^

BENCHES := $(patsubst bench/%.c,$(B)/bench/%,$(wildcard bench/*.c))
$(BENCHES): $(B)/bench/%: $(B)/obj/bench/%.o $(LIBS)
	@mkdir -p $(@D)
	$(Q)$(call link,$(LIBS))

-include $(shell find $(B)/obj -name '*.d' 2>/dev/null)

# ---------------------------------------------------------------- targets
.PHONY: all deps quickstart data test test-long test-build lint fmt bench install uninstall bundle clean help

all: $(B)/gradwright $(MPI_PLUGIN) ## build ./gradwright
	@cmp -s $(B)/gradwright gradwright || cp -f $(B)/gradwright gradwright
	@$(if $(MPI_PLUGIN),cmp -s $(MPI_PLUGIN) gradwright-mpi.so || cp -f $(MPI_PLUGIN) gradwright-mpi.so,\
	    echo "  note: no Open MPI here (libopenmpi-dev): built without gradwright-mpi.so$(comma) for mpirun and srun")

deps: ## install the Debian packages that building and testing need
	@scripts/deps.sh

# What needs the packages runs in a second make, so that pkg-config is asked after they are there.
SUBMAKE = @+$(MAKE) --no-print-directory $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(JOBS))

quickstart: deps ## build, train a small model on real prose, resume, sample, compare with the plan
	$(SUBMAKE) all
	@scripts/quickstart.sh

data: deps ## prepare the quickstart's text and tokens under build/data
	$(SUBMAKE) all
	@scripts/data.sh

TEST_ENV = GW_MAKE_BUILD='$(BUILD)' GW_MAKE_CC='$(CC)' GW_BIN=$(abspath $(B)/gradwright) GW_BUILD=$(abspath $(B)) GW_MODE=$(MODE) GW_TESTS_DIR=$(CURDIR)/tests \
           LSAN_OPTIONS=suppressions=$(CURDIR)/tests/lsan.supp:print_suppressions=0 \
           TSAN_OPTIONS=suppressions=$(CURDIR)/tests/tsan.supp \
           UBSAN_OPTIONS=print_stacktrace=1 V=$(V)

test: deps ## run the tests (GW_TEST_FILTER=folder/name selects, V=1 shows each)
	$(SUBMAKE) test-build
	@$(TEST_ENV) $(B)/run_tests $(TEST_EXES) $(SCRIPTED)

test-build: $(if $(wildcard $(MAIN)),$(B)/gradwright) $(MPI_PLUGIN) $(TEST_EXES) $(B)/run_tests ## build the tests, run none

test-long: ## run the tests, long ones included
	@GW_TEST_LONG=1 $(MAKE) --no-print-directory test

lint: ## warnings as errors, format, include order, SPDX lines, forbidden functions, scripts
	@CC='$(CC)' JOBS='$(JOBS)' scripts/lint.sh

fmt: ## format the C sources
	clang-format -i $(shell find src tests bench \( -name '*.c' -o -name '*.h' \) 2>/dev/null)

bench: all $(BENCHES) ## run each executable file of bench/, with its C programs built
	@set -e; for s in $(sort $(shell find bench -maxdepth 1 -type f -perm -u+x 2>/dev/null)); do echo "== $$s"; GW_BIN=$(abspath $(B)/gradwright) GW_BUILD=$(abspath $(B)) $$s; done

install: all ## install under DESTDIR/prefix (default /usr/local)
	@DESTDIR='$(DESTDIR)' prefix='$(prefix)' scripts/install.sh install $(B)/gradwright

uninstall: ## remove what install put there
	@DESTDIR='$(DESTDIR)' prefix='$(prefix)' scripts/install.sh uninstall

# DT_RPATH (not RUNPATH), because it serves the libraries' own dependencies too.
$(B)/bundled/gradwright: $(call objects,$(MAIN)) $(LIBS) $(MPI_PLUGIN)
	@mkdir -p $(@D)
	@$(if $(MPI_PLUGIN),cp -f $(MPI_PLUGIN) $(@D)/)
	$(Q)$(call link,$(LIBS),-Wl$(comma)--disable-new-dtags$(comma)-rpath$(comma)'$$ORIGIN/../lib')

bundle: $(B)/bundled/gradwright ## a folder that runs wherever it is moved: build/bundle/gradwright-VERSION
	@prefix= scripts/bundle.sh $< $(BUILD)/bundle/gradwright-$(VERSION)

clean: ## remove what was built
	rm -rf $(BUILD) gradwright gradwright-mpi.so

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1\t\2/p' Makefile | expand -t 16
	@echo "  MODE=debug|release|asan|tsan|hostile   WERROR=1   V=1   PREFIX=   DESTDIR=   BUILD="
