#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tools/front_image.sh: creates docs/images/front.png, the figure in the README. It shows the page of a six-word scene
# on the left, and the map of 131,072 tokens drawn by examples/maps/run on the right. Requires Chromium and
# build/release/fovea.

set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  echo "tools/front_image.sh: $*" >&2
  exit 1
}
chromium=$(command -v chromium || command -v google-chrome) || fail "no chromium (Debian package chromium)"
[ -x build/release/fovea ] || fail "no build/release/fovea: run make first"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
build/release/fovea explain examples/scenes/001_your_journey.json --format html --output "$work/page.html"
cp docs/images/map_long.png "$work"
cat >"$work/figure.html" <<'END'
<!doctype html>
<style>
  body { margin: 0; width: 1426px; height: 720px; overflow: hidden; background: #fff; font: 20px sans-serif; }
  figure { position: absolute; top: 0; margin: 0; height: 720px; }
  figcaption { position: absolute; bottom: 10px; width: 100%; text-align: center; color: #444; }
  iframe { border: 1px solid #ccc; width: 960px; height: 860px; transform: scale(0.78); transform-origin: 0 0; }
  img { width: 640px; height: 640px; margin: 15px 0 0; border: 1px solid #ccc; }
</style>
<figure style="left: 10px; width: 750px"><iframe src="page.html" scrolling="no"></iframe>
  <figcaption>6 words: every step, every number</figcaption></figure>
<figure style="left: 774px; width: 642px"><img src="map_long.png">
  <figcaption>131,072 tokens: 8.6 billion weights, none stored</figcaption></figure>
END
"$chromium" --headless --no-sandbox --disable-gpu --hide-scrollbars --allow-file-access-from-files \
  --virtual-time-budget=3000 --window-size=1426,720 --screenshot="$work/front.png" "file://$work/figure.html" \
  >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "Chromium failed (see above)"; }
[ -s "$work/front.png" ] || fail "Chromium wrote no picture"
mv "$work/front.png" docs/images/front.png
echo "docs/images/front.png: $(stat -c %s docs/images/front.png) bytes"
