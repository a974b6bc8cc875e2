#!/usr/bin/env bash
# Makes docs/images/report.webp: the HTML page of a job of four ranks, the demo on the simulated driver.
# Needs build/ with the tests, Chromium, and Pillow (which matplotlib brings).
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
ALLOGRAFT=$ROOT/build/allograft DEMO=$ROOT/build/tests/sim/demo/demo-sim
FOLDER=$(mktemp -d)
trap 'rm -rf "$FOLDER"' EXIT

cd "$FOLDER"
for rank in 0 1 2 3; do
    steps=100 trace=off
    [[ $rank != 3 ]] || steps=200
    [[ $rank != 0 ]] || trace=rank0.trace
    RANK=$rank "$ALLOGRAFT" run --simulate --rule 'size<=512:managed' --stats 'rank%r.json' --trace "$trace" \
        -- "$DEMO" "$steps" >/dev/null
done
"$ALLOGRAFT" report --html page.html rank*.json rank0.trace
chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --force-device-scale-factor=1.5 \
    --window-size=900,1450 --screenshot=page.png page.html >/dev/null 2>&1
python3 - "$ROOT/docs/images/report.webp" <<'END'
import sys
from PIL import Image
Image.open("page.png").convert("RGB").save(sys.argv[1], lossless=True, method=6)
END
ls -l "$ROOT/docs/images/report.webp"
