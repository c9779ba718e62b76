#!/bin/sh
# Runs every experiment of this folder and writes the resulting table and figures into README.md and figures/. With
# --check it writes nothing, and fails if the table or a figure is not the one in the folder. Needs FORETOKEN_TRACES.
# FORETOKEN names the binary if it is not target/release/foretoken of this repository.
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

# figure EXPERIMENT NAME FILE: takes one figure of an experiment as figures/FILE.
mkdir "$out/figures"
figure() { cp "$out/results/$1/figures/$2.svg" "$out/figures/$3.svg"; }
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

if [ "${1:-}" = --check ]; then
    diff "$here/README.md" "$out/README.md"
    diff -rq "$here/figures" "$out/figures"
    echo "the table of papers and its figures are the same"
else
    cp "$out/README.md" "$here/README.md"
    cp "$out/figures"/* "$here/figures"
fi
