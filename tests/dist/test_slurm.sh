#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# timeout: 180
#
# Slurm: munged, slurmctld and two slurmd on the loopback, with their keys, spools, logs and
# configuration in a temporary folder; ranks by srun with PMIx, and the batch script of examples/.
#
# The daemons live in namespaces of this script's second self (processes, network, mounts): they see
# no other Slurm, nothing sees them, and they end with it.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$GW_TESTS_DIR/dist/lib.sh"
PATH=$PATH:/usr/sbin

if [ "${1:-}" != inside ]; then
    [ "$(id -u)" -eq 0 ] || skip "needs root to start Slurm's daemons"
    for tool in munged slurmctld slurmd srun unshare ip; do
        command -v $tool >/dev/null || skip "no $tool (slurm-wlm, munge, iproute2)"
    done
    new=(unshare --mount --net --uts --ipc --pid --fork --kill-child --mount-proc)
    "${new[@]}" ip link set lo up 2>/dev/null || skip "this system makes no network namespaces"
    exec "${new[@]}" bash "$0" inside
fi

dir=$(mktemp -d)
cd "$dir"
hostname gwhead
ip link set lo up
# A machine that has no address but 127.0.0.1 resolves no names (AI_ADDRCONFIG).
ip addr add 10.77.1.1/32 dev lo
echo '127.0.0.1 localhost gwhead gwnode1 gwnode2' >hosts
mount --bind hosts /etc/hosts
mkdir munge state spool-gwnode1 spool-gwnode2 run
chmod 700 munge
head -c 128 /dev/urandom >munge/key
chmod 400 munge/key

munged --foreground --force --key-file="$dir/munge/key" --socket="$dir/munge/socket" \
    --pid-file="$dir/munge/pid" --log-file="$dir/munge/log" --seed-file="$dir/munge/seed" \
    --num-threads=1 >munge/out 2>&1 &

cat >slurm.conf <<CONF
ClusterName=gw
SlurmctldHost=gwhead(127.0.0.1)
SlurmctldPort=16817
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
CredType=cred/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool-%n
SlurmctldPidFile=$dir/run/ctld.pid
SlurmdPidFile=$dir/run/%n.pid
SlurmctldLogFile=$dir/ctld.log
SlurmdLogFile=$dir/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_interval=2,sched_min_interval=0
SelectType=select/linear
MpiDefault=pmix
ReturnToService=2
KillWait=2
InactiveLimit=0
SwitchType=switch/none
PropagateResourceLimits=NONE
NodeName=gwnode1 NodeAddr=127.0.0.1 Port=16821 CPUs=1 State=UNKNOWN
NodeName=gwnode2 NodeAddr=127.0.0.1 Port=16822 CPUs=1 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=10 State=UP
CONF
export SLURM_CONF=$dir/slurm.conf

logs() { tail -n 20 ./*.log munge/log munge/out 2>/dev/null; }
for _ in $(seq 100); do [ -S munge/socket ] && break; sleep 0.1; done
slurmctld -D -c >ctld.out 2>&1 &
# A node has its name and, since both have one /tmp, a place of its own for PMIx's sockets.
for node in gwnode1 gwnode2; do
    mkdir -p conf-$node tmp-$node
    cp slurm.conf conf-$node/
    echo "PMIxCliTmpDirBase=$dir/tmp-$node" >conf-$node/mpi.conf
    SLURM_CONF=$dir/conf-$node/slurm.conf unshare --uts sh -c "hostname $node; exec slurmd -D -N $node" \
        >$node.out 2>&1 &
done
for _ in $(seq $((300 * slower))); do
    [ "$(timeout 5 sinfo -h -N -o %t 2>/dev/null | grep -c idle)" -eq 2 ] && break
    sleep 0.1
done
if [ "$(timeout 5 sinfo -h -N -o %t 2>/dev/null | grep -c idle)" -ne 2 ]; then
    echo "Slurm did not start:"
    cat ./*.out
    logs
    exit 1
fi
srun --mpi=list 2>&1 | grep -q pmix || skip "this Slurm has no PMIx"

# Both nodes have one address, which Open MPI's TCP transport would leave out by default.
export OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self,vader
export PMIX_MCA_ptl_tcp_if_include=lo

# ranks SCENARIO [OPTION OF srun...]
ranks() {
    local scenario=$1
    shift
    code=0
    GW_DIST=$scenario GW_DIST_TIMEOUT=$((2 * slower)) timeout -k 5 $((30 * slower)) \
        srun -N 2 -n 2 "$@" "$rank" rank >ranks.log 2>&1 || code=$?
    out=$(<ranks.log)
}

ranks where
expect 0 '^rank 0 of 2 on gwnode1, 1 on each host' '^rank 1 of 2 on gwnode2'
ranks values
expect 0 '^rank 0 of 2: ok' '^rank 1 of 2: ok'
ranks stop
expect 1 '^error: rank 1 gives no sign of life for .*all-reduce'
ranks die
[ "$code" -ne 0 ] || expect 1
expect "$code" '^error: rank 1 gives no sign of life for .*all-reduce'
ranks give-up
expect 1 "^error: this rank's disk is full"
GW_DIST_CODE=3 ranks values
expect 3 '^rank 0 of 2: ok' '^rank 1 of 2: ok'
# Without PMIx: what is said names the option.
ranks values --mpi=none
expect 1 'without PMIx' 'srun --mpi=pmix'

if trains; then
    small_run
    code=0
    timeout -k 5 $((60 * slower)) srun -N 2 -n 2 "$GW_BIN" train "$dir/run.yaml" \
        --set layout.dp=2 --out "$dir/out" >ranks.log 2>&1 || code=$?
    out=$(<ranks.log)
    expect 0
    [ "$(wc -l <out/metrics.jsonl)" -ge 4 ]
    # The batch script as it stands, but for the sizes of this cluster.
    code=0
    RUN=$dir/run.yaml OUT=$dir/batch GRADWRIGHT=$GW_BIN timeout -k 5 $((90 * slower)) sbatch --wait \
        --nodes=2 --ntasks-per-node=1 --cpus-per-task=1 --time=5 --output="$dir/batch.log" \
        "$GW_TESTS_DIR/../examples/slurm.sbatch" >ranks.log 2>&1 || code=$?
    out=$(cat ranks.log batch.log)
    expect 0
    [ "$(wc -l <batch/metrics.jsonl)" -ge 4 ]
    # A job that is told of its end queues itself again, and goes on.
    cat >job.sh <<JOB
#!/bin/bash
srun --mpi=pmix --kill-on-bad-exit=0 "$GW_BIN" train "$dir/run.yaml" --out "$dir/again" --requeue \\
    --set layout.dp=auto --set train.steps=1000000
JOB
    # await PATTERN FILE
    await() {
        for _ in $(seq $((300 * slower))); do grep -qsE -- "$1" "$2" && return; sleep 0.1; done
        echo "no line of $2 has '$1':"
        cat job.log
        exit 1
    }
    job=$(sbatch --parsable --requeue --nodes=2 --ntasks-per-node=1 --time=5 --open-mode=append \
        --output="$dir/job.log" job.sh)
    await '"step": 3,' again/metrics.jsonl
    scancel --signal=USR1 "$job"
    await 'asking Slurm to queue job' job.log
    for _ in $(seq $((200 * slower))); do
        restarts=$(scontrol show job "$job" | grep -o 'Restarts=1') && break
        sleep 0.1
    done
    [ -n "${restarts:-}" ] || { scontrol show job "$job"; exit 1; }
    scancel "$job" # Slurm holds it back for two minutes; what it would run then:
    code=0
    SLURM_RESTART_COUNT=1 timeout -k 5 $((60 * slower)) srun -N 2 -n 2 "$GW_BIN" train "$dir/run.yaml" \
        --out "$dir/again" --requeue --set layout.dp=auto --set train.steps=1000000 --until 1 \
        >ranks.log 2>&1 || code=$?
    out=$(<ranks.log)
    expect 0 '^nothing to train: the run is at step'
fi
