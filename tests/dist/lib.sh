# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
#
# What the scripts of this folder share. To be sourced; it skips the test where MPI is not there.

skip() { echo "$1"; exit 77; }

rank=$GW_BUILD/tests/dist
export GRADWRIGHT_MPI=$GW_BUILD/gradwright-mpi.so
[ -e "$GRADWRIGHT_MPI" ] || skip "built without Open MPI (libopenmpi-dev)"
command -v mpirun >/dev/null || skip "no mpirun (openmpi-bin)"

# mpirun refuses root unless told twice.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
# Open MPI keeps much until the process ends, from components that it has unloaded by then, so that no
# suppression can name them.
export ASAN_OPTIONS=detect_leaks=0

# With a sanitizer everything takes longer.
slower=1
case ${GW_MODE:-release} in asan | tsan) slower=4 ;; esac

# expect CODE PATTERN... : the last command's status ($code) and what its output ($out) must contain
expect() {
    local want=$1 pattern
    shift
    [ "$code" -eq "$want" ] || { echo "exit status $code, not $want:"; echo "$out"; exit 1; }
    for pattern in "$@"; do
        grep -qE -- "$pattern" <<<"$out" || { echo "no line has '$pattern':"; echo "$out"; exit 1; }
    done
}

# In this folder: run.yaml, a small model over the text of the tests' README.
small_run() {
    "$GW_BIN" tokenizer encode bytes "$GW_TESTS_DIR/README.md" --out tokens >/dev/null
    cat >run.yaml <<YAML
model: {family: llama, layers: 1, hidden: 32, heads: 2, ffn: 64}
data: {train: $PWD/tokens, tokenizer: bytes}
train: {steps: 4, seq_len: 32, micro_batch: 2, threads: 1}
checkpoint: {every: 2}
YAML
}

# Does the program train over several ranks?
trains() { "$GW_BIN" train --help 2>&1 | grep -q -- --ranks; }
