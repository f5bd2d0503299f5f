#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
#
# Two hosts: two network namespaces with host names of their own, joined by a veth pair. mpirun
# starts the ranks of the second through a script that enters it, as it would through ssh.
#
# All of it lives in unnamed namespaces of this script's second self, which is process 1 of a process
# namespace: when it ends, in whatever way, every process, host and wire of the test is gone.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$GW_TESTS_DIR/dist/lib.sh"

if [ "${1:-}" != inside ]; then
    [ "$(id -u)" -eq 0 ] || skip "needs root to make network namespaces"
    for tool in unshare nsenter ip; do
        command -v $tool >/dev/null || skip "no $tool"
    done
    new=(unshare --mount --net --uts --ipc --pid --fork --kill-child --mount-proc)
    "${new[@]}" ip link add gw0 type veth peer name gw1 2>/dev/null ||
        skip "this system makes no network namespaces or veth pairs"
    exec "${new[@]}" bash "$0" inside
fi

dir=$(mktemp -d)
cd "$dir"
hostname gw-a
ip link set lo up
unshare --net --uts --mount --ipc sleep 600 &
other=$!
for _ in $(seq 100); do
    [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/self/ns/net)" ] && break
    sleep 0.05
done
on_b() { nsenter -t $other --net --uts --mount --ipc "$@"; }
# A veth pair between the two; each end gets its address in 10.77.0.0/24. Who has which is known, not asked: now and
# then nobody answered for seconds (no route to host), and mpirun's daemons gave up.
ip link add gw0 address 02:00:00:00:00:0a type veth \
    peer name gw0 address 02:00:00:00:00:0b netns /proc/$other/ns/net
ip addr add 10.77.0.1/24 dev gw0
ip link set gw0 up
on_b hostname gw-b
on_b ip link set lo up
on_b ip addr add 10.77.0.2/24 dev gw0
on_b ip link set gw0 up
ip neigh replace 10.77.0.2 lladdr 02:00:00:00:00:0b dev gw0 nud permanent
on_b ip neigh replace 10.77.0.1 lladdr 02:00:00:00:00:0a dev gw0 nud permanent
cat /etc/hosts - >hosts <<<$'10.77.0.1 gw-a\n10.77.0.2 gw-b'
for _ in $(seq 100); do # a port that nobody has is refused once the wire works
    on_b bash -c 'echo >/dev/tcp/10.77.0.1/9' 2>&1 | grep -q refused && break
    sleep 0.05
done
mount --bind hosts /etc/hosts
on_b mount --bind "$dir/hosts" /etc/hosts

cat >agent <<SH
#!/bin/sh
# mpirun's ssh: HOST COMMAND...
[ "\$1" = gw-b ] || { echo "asked for host \$1" >&2; exit 1; }
shift
exec nsenter -t $other --net --uts --mount --ipc sh -c "\$*"
SH
chmod +x agent

# ranks N PER_HOST SCENARIO [VARIABLE=VALUE...]: sets $code and $out. The output goes to a file: a pipe
# would stay open as long as a daemon of mpirun on a host that has been cut off.
mpi=(mpirun --mca plm_rsh_agent "$dir/agent" --mca btl_tcp_if_include 10.77.0.0/24
    --mca oob_tcp_if_include 10.77.0.0/24 --mca pml ob1 --mca btl "tcp,vader,self" --bind-to none
    -x GRADWRIGHT_MPI -x ASAN_OPTIONS -x OMP_NUM_THREADS -x OMP_WAIT_POLICY)
ranks() {
    for _ in 1 2 3; do
        try_ranks "$@"
        # mpirun's daemons give up on each other where the machine is very busy: no rank has begun.
        grep -q 'ORTE was unable to reliably start' ranks.log || break
    done
}
try_ranks() {
    local n=$1 each=$2 scenario=$3
    shift 3
    code=0
    env GW_DIST="$scenario" GW_DIST_TIMEOUT=$((2 * slower)) "$@" timeout -k 5 $((40 * slower)) \
        "${mpi[@]}" --host "gw-a:$each,gw-b:$each" -n "$n" -x GW_DIST -x GW_DIST_TIMEOUT \
        -x GW_DIST_RANK="${GW_DIST_RANK:-1}" "$rank" rank >ranks.log 2>&1 || code=$?
    out=$(<ranks.log)
}

ranks 4 2 where
expect 0 '^rank 0 of 4 on gw-a, 2 on each host' '^rank 3 of 4 on gw-b, 2 on each host'
# shellcheck disable=SC2016
sent() { on_b awk '/gw0:/ { print $10 }' /proc/net/dev; }
before=$(sent)
ranks 2 1 values
expect 0 '^rank 0 of 2: ok' '^rank 1 of 2: ok'
# The bytes went over the wire: each kind and algorithm sent its largest case at least once.
[ $(($(sent) - before)) -gt 1000000 ] || { echo "$(($(sent) - before)) bytes on the wire"; exit 1; }
ranks 4 2 values
expect 0 '^rank 0 of 4: ok' '^rank 3 of 4: ok'

GW_DIST_RANK=3 ranks 4 2 stop
expect 1 '^error: rank 3 gives no sign of life for .*all-reduce'

# The wire is cut while the ranks work: a rank says which it misses, and the ranks on both sides end.
# mpirun itself may wait for its daemon on the other side; it is not what is tested.
GW_DIST=loop GW_DIST_TIMEOUT=$((2 * slower)) GW_DIST_RANK=1 "${mpi[@]}" --host gw-a:1,gw-b:1 -n 2 \
    -x GW_DIST -x GW_DIST_TIMEOUT "$rank" rank >cut.log 2>&1 &
launcher=$!
ranks_left() { # processes whose program is the ranks'
    local p n=0
    for p in /proc/[0-9]*/exe; do [ "$(readlink "$p")" != "$(readlink -f "$rank")" ] || n=$((n + 1)); done
    echo $n
}
for _ in $(seq $((100 * slower))); do
    [ "$(ranks_left)" -lt 2 ] || break
    sleep 0.1
done
[ "$(ranks_left)" -eq 2 ] || { echo "the ranks did not start"; cat cut.log; exit 1; }
sleep $((2 * slower))
ip link set gw0 down
for _ in $(seq $((200 * slower))); do
    grep -q '^error: rank' cut.log && [ "$(ranks_left)" -eq 0 ] && break
    sleep 0.1
done
kill -KILL $launcher 2>/dev/null || true
wait $launcher 2>/dev/null || true
code=0
out=$(<cut.log)
expect 0 '^error: rank . gives no sign of life for .*all-reduce'
[ "$(ranks_left)" -eq 0 ] || { echo "ranks are left:"; ps -ef; exit 1; }
ip link set gw0 up

if trains; then
    small_run
    code=0
    timeout -k 5 $((60 * slower)) "${mpi[@]}" --host gw-a:1,gw-b:1 -n 2 \
        "$GW_BIN" train "$dir/run.yaml" --set layout.dp=2 --out "$dir/out" >ranks.log 2>&1 || code=$?
    out=$(<ranks.log)
    expect 0
    [ "$(wc -l <out/metrics.jsonl)" -ge 4 ]
fi
