#!/usr/bin/env bash
# The tests of core alone: what Caffe recorded, trajectories and resumes, in a copy without the rooms that core must not
# need, which therefore needs no compiled kernels either.
#
#     scripts/core_alone.sh FOLDER [arguments of pytest]      # FOLDER, which must not exist, becomes the copy
set -euo pipefail
alone=$(realpath -m "$1")
shift
cd "$(dirname "$0")/.."
mkdir "$alone"
cp -r src tests configs pyproject.toml "$alone"
rm -r "$alone"/src/caffejax/{cpu,forks} "$alone"/tests/{cpu,forks}
cd "$alone/tests/core"
export PYTHONPATH="$alone/src${PYTHONPATH:+:$PYTHONPATH}"
exec python3 -m pytest -k "not properties and not joint_batches" "$@" \
    $(grep -l "= recorded(" layers/test_*.py) layers/test_bvlc_fields.py graph/test_golden_nets.py \
    ops program/test_frozen.py solver/test_trajectories.py solver/test_resume.py solver/test_solverstates.py
