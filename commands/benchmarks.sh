#!/usr/bin/env bash
# The commands behind the numbers in benchmarks/README.md, from the project's folder, with the package installed; but for
# benchmarks/edm_agreement.py, which needs a checkout of EDM.
# DATA holds CIFAR-10 as cifar10-train-a.npz, cifar10-train-b.npz and cifar10-test.npz (`images`, uint8 NHWC), and all of
# them as cifar10.npz.
set -euo pipefail
DATA=${1:?the folder with CIFAR-10}
OUT=${2:-measured}
mkdir -p "$OUT"

# Against the published way: on a CPU with nothing else running, or on a GPU.
python benchmarks/ratios.py --data "$DATA" --out "$OUT/ratios.jsonl"
# Intervals, copy test, rank-limited spectra (CPU).
python benchmarks/coverage.py > benchmarks/coverage.txt
python benchmarks/interval_methods.py > benchmarks/interval_methods.txt
python benchmarks/copy_test.py
python benchmarks/rank.py
# Audits: known cases, planted copies, hostile files, intervals of how-many (CPU).
python benchmarks/ladder.py --part scoring
python benchmarks/planted_copies.py
python benchmarks/pickle_fuzz.py > benchmarks/pickle_fuzz.txt
python benchmarks/transition_coverage.py > benchmarks/transition_coverage.txt
# Training on digits, and their study, to its end and once more (CPU with nothing else running).
python benchmarks/digits.py
python benchmarks/studies.py
# Passes over memory of group normalisation on a GPU, as planned by the compiler (CPU).
python benchmarks/normalization.py
# Training and sampling (GPU).
if python -c 'import torch, sys; sys.exit(not torch.cuda.is_available())'; then
  python benchmarks/throughput.py --out "$OUT/throughput.jsonl"
  python benchmarks/cifar.py --data "$DATA" --runs "$OUT/runs" --out "$OUT/cifar.jsonl"
  python benchmarks/audit.py --data "$DATA/cifar10.npz" --out "$OUT/audit.jsonl"
fi
