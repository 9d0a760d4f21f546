#!/usr/bin/env bash
# Use a GPU that is available for a few minutes only. This script decides for what; docs/development/accelerators.md
# ("To repeat the checks") says what each outcome decides.
#
#     benchmarks/gpu_run.sh RESULTS                                  # at most 8 minutes
#     CAFFEJAX_GPU_RUN_SECONDS=60 benchmarks/gpu_run.sh RESULTS      # a trial on any machine; all limits shrink alike
#
# The parts, each with a file in RESULTS, to which every line is written at once:
#   first_step.txt   GoogLeNet's first training step in bfloat16, with empty and with filled caches
#   scan.txt         LeNet and CIFAR-10 full beside their twins in flax, many steps to a call, with and without XLA's
#                    command buffers
#   joint.txt        iterations a second of `caffejax train`, as many to a call as it chooses, and one
#   recorded.txt     the tests of core alone, with this machine's JAX
#   speed.txt        rows of the table of training speed, the nets that compile soonest first; also as gpu.json, which
#                    replaces the file in benchmarks/results
#
# Each part has a limit, so that a slow one leaves time for the next, and so has each step of a part. A later run with
# the same RESULTS skips the steps that are done. Those that were stopped, failed or found no time in their part are
# tried after the others, within what is left of the 8 minutes.
set -euo pipefail
results=$(realpath -m "${1:?which folder are the results for?}")
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}"
export XLA_PYTHON_CLIENT_PREALLOCATE=false # several processes share the GPU
unset JAX_COMPILATION_CACHE_DIR             # the steps choose their caches
full=480
total=${CAFFEJAX_GPU_RUN_SECONDS:-$full}
end=$((total - total / 40 - 2)) # bash's SECONDS at which the last step is stopped: steps have 2 seconds to end
# not in RESULTS, because they are large and of use on this machine only
export caches="${XDG_CACHE_HOME:-$HOME/.cache}/caffejax_gpu_run"
mkdir -p "$results" "$caches"
scratch=$(mktemp -d)
touch "$scratch/tried"
trap 'rm -rf "$scratch"' EXIT
export results scratch
platform=$(python3 -c "import jax; print(jax.default_backend())")
batch=128 scan_steps=500 first_net=googlenet iterations=4000
if [ "$platform" != gpu ]; then # a trial, which should come to the end of some steps
    batch=2 scan_steps=2 first_net=lenet iterations=40
fi
export platform batch scan_steps first_net iterations

# part SECONDS: limit the following steps together
part() {
    part_end=$end
    if [ "$pass" = first ]; then
        part_end=$((SECONDS + $1 * total / full))
    fi
}

# step FILE SECONDS TITLE COMMAND...: run a command and add what it prints to FILE, unless it is done
step() {
    local file=$results/$1.txt limit=$(($2 * total / full)) title=$3 code=0 start=$SECONDS latest
    shift 3
    if grep -qsxF "== done: $title" "$file"; then
        if [ "$pass" = first ]; then echo "done before: $title"; fi
        return
    elif [ "$pass" = first ] && grep -qsxF "== $title" "$file"; then
        return # an earlier run has tried it
    elif grep -qxF "$title" "$scratch/tried"; then
        return # this run has
    fi
    latest=$((part_end < end ? part_end : end))
    limit=$((limit < latest - SECONDS ? limit : latest - SECONDS))
    if [ "$limit" -lt 1 ]; then
        if [ "$pass" = again ]; then echo "no time left: $title"; fi
        return
    fi
    echo "$title" >>"$scratch/tried"
    echo "== $title" | tee -a "$file"
    # a shell that ends at the first failure, for the functions below; timeout ends its children, too
    timeout --kill-after=2 "$limit" bash -euo pipefail -c '"$@"' step "$@" </dev/null >>"$file" 2>&1 || code=$?
    [ -z "$(tail -c 1 "$file")" ] || echo >>"$file" # it was stopped within a line
    case $code in
        0) echo "== done: $title" ;;
        124 | 137) echo "== stopped: $title" ;;
        *) echo "== failed: $title" ;;
    esac | tee -a "$file"
    echo "-- after $((SECONDS - start)) of at most $limit seconds" | tee -a "$file"
}

# on_gpu FLAGS COMMAND...: run a command with these XLA_FLAGS; XLA for CPUs may not know them, and ends the process
on_gpu() {
    if [ "$platform" = gpu ]; then
        export XLA_FLAGS="${XLA_FLAGS:-} $1"
    fi
    shift
    "$@"
}

# with_cache FOLDER COMMAND...: run a command with JAX's cache in a folder, with caffejax's threshold for what it stores
with_cache() {
    JAX_COMPILATION_CACHE_DIR="$1" JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0.1 "${@:2}"
}

# first_step CACHES: a line about the caches, and a row with the seconds from reading the net to the end of a step
first_step() {
    echo "-- $1"
    python3 benchmarks/gpu.py --nets "$first_net" --batches "$batch" --steps 1 --rounds 1 --iterations 0 \
        --no-torch --no-flax
}

# JAX has XLA keep its choices of kernels beside the programs (jax_persistent_cache_enable_xla_caches, by default)
export programs="$caches/programs" choices="$caches/programs/xla_gpu_per_fusion_autotune_cache_dir"

plain() {
    rm -rf "$caches"
    mkdir -p "$caches"
    with_cache "$programs" first_step "empty caches"
    if [ -n "$(ls -A "$choices" 2>/dev/null)" ]; then
        touch "$caches/chosen"
    fi
    with_cache "$programs" first_step "programs and choices of kernels from the cache"
}

# whether `plain` has filled the cache on this machine; if not, the steps after it must choose kernels first
has_choices() {
    [ -e "$caches/chosen" ]
}

only_choices() {
    mkdir -p "$choices"
    export CAFFEJAX_CACHE=off
    if ! has_choices; then
        on_gpu "--xla_gpu_per_fusion_autotune_cache_dir=$choices" first_step "some or no choices of kernels"
    fi
    on_gpu "--xla_gpu_per_fusion_autotune_cache_dir=$choices" first_step "choices of kernels, no programs"
}

all_xla_caches() {
    local folder=$caches/all
    rm -rf "$folder"
    mkdir -p "$folder" "$choices"
    cp -r "$choices" "$folder"
    export JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES=all
    if has_choices; then
        with_cache "$folder" first_step "choices of kernels, no programs"
    else
        with_cache "$folder" first_step "some or no choices of kernels"
    fi
    find "$folder" -maxdepth 1 -type f -not -name "xla_*" -delete
    with_cache "$folder" first_step "choices of kernels and compiled kernels, no programs"
}

# in_scan NETS OPTIONS...
in_scan() {
    with_cache "$programs" python3 benchmarks/gpu.py --nets "$1" --batches "$batch" --scan --steps "$scan_steps" \
        --iterations 0 "${@:2}"
}

joint() {
    local folder=$scratch/digits option
    for option in "" --steps_per_dispatch=1; do
        rm -rf "$folder"
        cp -r configs/digits "$folder"
        sed -i "s/^max_iter.*/max_iter: $iterations/; s/^display.*/display: $((iterations / 4))/; /^test_i/d; /^snapshot:/d" \
            "$folder/lenet_solver.prototxt"
        echo "-- LeNet of configs/digits $option"
        (cd "$folder" && python3 -m caffejax train --solver=lenet_solver.prototxt ${option:+"$option"} 2>&1) |
            grep -E "iter/s|caffejax:"
    done
}

recorded() {
    python3 -c "import jax; print(jax.__version__, jax.devices())"
    rm -rf "$scratch/core_alone" # of an attempt that was stopped
    # -v, so that a run that is stopped shows the tests before; a cache, so that the next one gets further; JAX warns on
    # GPUs. Failed tests are a result, too: exit code 1, after pytest has come to its end and written its report
    local report=$scratch/recorded.xml
    with_cache "$caches/recorded" scripts/core_alone.sh "$scratch/core_alone" -n auto --maxprocesses 14 \
        -v -o filterwarnings=default --junit-xml "$report" || { [ $? = 1 ] && [ -e "$report" ]; }
}

row() {
    with_cache "$programs" python3 benchmarks/gpu.py --nets "$1" --batches "$batch" --iterations 0 \
        --json "$results/gpu.json"
}

export -f on_gpu with_cache first_step plain has_choices only_choices all_xla_caches in_scan joint recorded row

first_steps() {
    part 220
    local title="first step of $first_net" # the two others need the choices of the first
    step first_step 180 "$title" plain
    step first_step 60 "$title, --xla_gpu_per_fusion_autotune_cache_dir" only_choices
    step first_step 90 "$title, jax_persistent_cache_enable_xla_caches=all" all_xla_caches
}

scans() {
    part 120
    local net buffers
    for net in lenet cifar10_full; do
        step scan 45 "$net in a scan" in_scan "$net"
    done
    step joint 40 "joint steps" joint
    for buffers in "" +WHILE; do # none; those of the default and whole loops
        step scan 45 "scans of caffejax, --xla_gpu_enable_command_buffer=$buffers" \
            on_gpu "--xla_gpu_enable_command_buffer=$buffers" in_scan lenet,cifar10_full --no-flax
    done
}

tests_of_core() {
    part 120
    step recorded 240 "recorded cases" recorded
}

rows() {
    part $full
    local net
    for net in lenet cifar10_full caffenet squeezenet mobilenet resnet50 googlenet; do
        step speed 240 "training speed of $net" row "$net"
    done
}

pass=first
first_steps
scans
tests_of_core
pass=again # with their cache the tests get further, and they decide more than rows
tests_of_core
pass=first
rows
pass=again
first_steps
scans
rows
