#!/bin/sh
# The main job, end to end: a module of an eight-device halo exchange, its permutes
# combined, both versions run on eight emulated devices and compared bit for bit.
set -eu
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
module=corpus/modules/0.10.2/halo_exchange.partitioned.hlo

echo "-- permutes before"
grep -o '%[^ ]* = .* collective-permute([^)]*)' "$module"
hlo-passes opt "$module" --passes=collective-permute-combiner,hlo-dce -o combined.hlo
echo "-- permutes after"
grep -o '%[^ ]* = .* collective-permute([^)]*)' combined.hlo
echo "-- both on eight emulated devices"
hlo-passes run combined.hlo --against="$module"
