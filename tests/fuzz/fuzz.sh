#!/bin/sh
# Fuzzes for some seconds: fuzz.sh PROGRAM CORPUS SECONDS. What it finds stays beside the program.
set -eu
found=$1.found
mkdir -p "$found"
exec "$1" -max_total_time="$3" -timeout=20 -max_len=4096 -print_final_stats=1 -error_exitcode=1 \
    -artifact_prefix="$found/" "$found" "$2"
