#!/bin/sh
# Runs every experiment of this folder and writes the resulting table and figures into README.md and figures/. Needs
# FORETOKEN_TRACES, and FORETOKEN if the binary is not target/release/foretoken of this repository.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
foretoken=${FORETOKEN:-$here/../../target/release/foretoken}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

"$foretoken" run "$here" -o "$out/results" >"$out/table"
awk -v table="$out/table" '
    /^```text$/ { print; while ((getline line <table) > 0) print line; skip = 1; next }
    /^```$/ { skip = 0 }
    !skip' "$here/README.md" >"$out/README.md"
cp "$out/README.md" "$here/README.md"

# figure EXPERIMENT NAME FILE: copies one figure of an experiment to figures/FILE.
figure() { cp "$out/results/$1/figures/$2.svg" "$here/figures/$3.svg"; }
rate=speedup.workload.arrivals.poisson.rate
for name in smartspec-fig01 smartspec-fig11-7b smartspec-fig11-33b smartspec-fig11-70b smartspec-fig12 smartspec-fig15; do
    figure $name $rate $name
done
figure smartspec-fig05 speedup.workload.arrivals.closed-loop smartspec-fig05
figure smartspec-fig14 speedup smartspec-fig14
figure adaspec-fig11 slo-attainment.slo.adaspec-scale adaspec-fig11-attainment
figure adaspec-fig11 speedup.slo.adaspec-scale adaspec-fig11-speedup
figure adaspec-fig12 speedup.workload.arrivals.closed-loop adaspec-fig12
trace1=path-t1_azure_conv_1920
figure adaspec-table2 batch-size.$trace1 adaspec-fig13-batch-size
figure adaspec-table2 draft-length.$trace1 adaspec-fig13-draft-length
figure sglang-phases speedup.workload.arrivals.closed-loop sglang-phases
figure sglang-phases draft-length.closed-loop-1 sglang-phases-draft-length
figure eagle-lesson-table speedup.acceptance.source.constant.rate eagle-lesson-table
figure eagle-lesson-batch speedup.workload.arrivals.closed-loop eagle-lesson-batch
figure context-reads speedup.workload.lengths.fixed.prompt context-reads
