#!/usr/bin/env bash
# Goes on with reproductions on a machine with one large GPU for a number of minutes, several models at a time under NVIDIA's
# multi-process service, and packs what is new into pieces of 15 MB. From the project's folder, with a line for each group of
# models on standard input: variables, if any, then grid, file and options of reproduce.py.
#
#     commands/on_gpu.sh 25 brought <<'END'
#     cifar10-long cifar10-long.npz --only strong --splits s2:782 --widths 128
#     CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25 cifar10-long cifar10-long.npz --only strong --splits s2:782 --widths 4
#     CUDA_MPS_CLIENT_PRIORITY=1 cifar10 cifar10.npz --workers 2 --seeds 1 --only networks,identity --networks adm
#     END
#     cat brought/cifar10.tar.gz.* | tar -xz -C runs      # on the machine where it is published
#
# Groups begin together. Under the service all trainings make steps at one rate, whatever their width: a quarter of the
# multiprocessors is enough for narrow networks, and what is wanted last gets a low priority (1). Groups that need the same
# model wait for each other. IMAGES is how many images of each array to bring, as many as there are samples for a model whose
# pair is trained elsewhere.
#
# A group of which something failed is tried twice more, from where it was. What has not ended when the time is over is asked
# to stop, and lost with the machine: choose options such that it ends. Nothing is killed outright, since a process that dies
# under the service takes the others with it.
set -euo pipefail
MINUTES=${1:?how long} OUT=${2:?a folder for the pieces}
mkdir -p "$OUT"

# One thread for each of the models that run beside each other; programs are compiled by a few processes, and kept.
export OMP_NUM_THREADS=1 TORCHINDUCTOR_COMPILE_THREADS=${TORCHINDUCTOR_COMPILE_THREADS:-4} PYTHONUNBUFFERED=1
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
if command -v nvidia-cuda-mps-control >/dev/null && [ ! -e "${CUDA_MPS_PIPE_DIRECTORY:-/tmp/nvidia-mps}/control" ]; then
  nvidia-cuda-mps-control -d
fi

# Runs a command, with its output in a log, up to three times until it ends well.
tried() {
  local log=$1
  shift
  for _ in 1 2 3; do
    "$@" >>"$log" 2>&1 </dev/null &
    # shellcheck disable=SC2064  # this process, not a later one
    trap "kill -TERM $! 2>/dev/null; wait $!; exit" TERM
    if wait $!; then return; fi
  done
}

STARTED=$SECONDS
groups=() files=()
while read -r -a words; do
  settings=()
  while [[ ${words[0]-} == *=* ]]; do
    settings+=("${words[0]}")
    words=("${words[@]:1}")
  done
  [ ${#words[@]} -gt 0 ] || continue
  tried "$OUT/log-${#groups[@]}.txt" \
    env "${settings[@]}" python3 commands/reproduce.py "${words[0]}" --data "${words[1]}" "${words[@]:2}" &
  groups+=($!)
  files+=("${words[0]} ${words[1]}")
done
: "${groups[0]:?no group of models on standard input}"
END=$((STARTED + $(awk "BEGIN { print int(60 * $MINUTES) }")))
while [ -n "$(jobs -pr)" ] && [ "$SECONDS" -lt "$END" ]; do sleep 1; done
kill -TERM "${groups[@]}" 2>/dev/null || true
wait || true
tail -n 20 "$OUT"/log-*.txt

printf '%s\n' "${files[@]}" | sort -u | while read -r grid data; do
  python3 commands/reproduce.py "$grid" --data "$data" --pack "$OUT/$grid.tar" ${IMAGES:+--images "$IMAGES"}
  gzip -f "$OUT/$grid.tar"
  split -b 15M "$OUT/$grid.tar.gz" "$OUT/$grid.tar.gz." && rm "$OUT/$grid.tar.gz"
done
ls -l "$OUT"
