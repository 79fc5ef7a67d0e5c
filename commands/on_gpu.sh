#!/usr/bin/env bash
# Goes on with a reproduction on a machine with one large GPU for a number of minutes, several models at a time under NVIDIA's
# multi-process service, and packs what is new into pieces of 15 MB. From the project's folder:
#
#     commands/on_gpu.sh cifar10 cifar10.npz 25 brought --workers 6 --seeds 1 --only size,strong,distillation
#     cat brought/brought.tar.gz.* | tar -xz -C runs      # on the machine where it is published
#
# What has not ended when the time is over is asked to stop, and lost with the machine: choose --only and --seeds such that
# it ends. Nothing is killed outright, since a process that dies under the service takes the others with it.
set -euo pipefail
GRID=${1:?cifar10, cifar10-long or celeba64} DATA=${2:?the .npz file} MINUTES=${3:?how long} OUT=${4:?a folder for the pieces}
shift 4
mkdir -p "$OUT"

# One thread for each of the models that run beside each other; programs are compiled by a few processes, and kept.
export OMP_NUM_THREADS=1 TORCHINDUCTOR_COMPILE_THREADS=${TORCHINDUCTOR_COMPILE_THREADS:-4} PYTHONUNBUFFERED=1
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
if command -v nvidia-cuda-mps-control >/dev/null && [ ! -e "${CUDA_MPS_PIPE_DIRECTORY:-/tmp/nvidia-mps}/control" ]; then
  nvidia-cuda-mps-control -d
fi

# New work is begun only if it is expected to end; the last minute is for packing.
python3 commands/reproduce.py "$GRID" --data "$DATA" --minutes "$(awk "BEGIN { print $MINUTES - 1 }")" "$@" \
  >"$OUT/log.txt" 2>&1 &
WORK=$!
END=$((SECONDS + $(awk "BEGIN { print int(60 * $MINUTES) }")))
while kill -0 "$WORK" 2>/dev/null && [ "$SECONDS" -lt "$END" ]; do sleep 1; done
kill -TERM "$WORK" 2>/dev/null || true
wait "$WORK" || true
tail -n 40 "$OUT/log.txt"

python3 commands/reproduce.py "$GRID" --data "$DATA" --pack "$OUT/brought.tar"
gzip -f "$OUT/brought.tar"
split -b 15M "$OUT/brought.tar.gz" "$OUT/brought.tar.gz." && rm "$OUT/brought.tar.gz"
ls -l "$OUT"
