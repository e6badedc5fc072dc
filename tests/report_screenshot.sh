#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# report_screenshot.sh BUILD: perf's report is opened in headless Chromium at the width of a
# desktop and of a phone, light and dark; the page must hold its plots, must not be blank, must not
# scroll sideways, and must fetch nothing. Screenshots stay in BUILD/screenshots to be looked at.
# Exits 77 (skipped) where no Chromium is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}

browser=
for name in chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null 2>&1 && browser=$name && break
done
if [ -z "$browser" ]; then
    echo "report_screenshot: no Chromium is installed: skipped"
    exit 77
fi

shots=$(realpath -m "$build/screenshots")
mkdir -p "$shots"
profile=$(mktemp -d)
trap 'rm -rf "$profile"' EXIT
page=$shots/report.html
"$build/bin/solccl" perf --from tests/data/report.jsonl --report "$page" >"$shots/table.txt"

fail() {
    echo "report_screenshot: $*" >&2
    exit 1
}

[ "$(grep -o '<svg viewBox="0 0 640' "$page" | wc -l)" -eq 3 ] || fail "3 plots were expected"
grep -q 'src=\|http\|@import\|url(' "$page" && fail "the page refers to something outside"
grep -q '<script' "$page" && fail "the page has a script"

# chrome NAME ARGUMENTS: one headless run, bounded.
chrome() {
    timeout 120 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars \
        --user-data-dir="$profile" --force-prefers-reduced-motion "$@" 2>/dev/null
}

# A copy of the page that tells the frame around it how wide its content is.
sed "s#</body>#<script>parent.postMessage(document.documentElement.scrollWidth, '*')</script></body>#" \
    "$page" >"$shots/probe.html"

for width in 1280 390; do
    # A window cannot be as narrow as a phone, so the page is shown in a frame that is.
    window=$((width < 500 ? 500 : width)),2400
    for part in report probe; do
        cat >"$shots/$part-frame.html" <<FRAME
<!DOCTYPE html><html data-width="none"><style>body{margin:0}iframe{border:0;width:${width}px;height:2400px}</style>
<script>onmessage = e => document.documentElement.setAttribute('data-width', e.data)</script>
<iframe src="$part.html"></iframe></html>
FRAME
    done
    for scheme in light dark; do
        flags=()
        [ $scheme = dark ] && flags=(--blink-settings=preferredColorScheme=0)
        shot=$shots/report-$width-$scheme.png
        rm -f "$shot"
        chrome ${flags[@]+"${flags[@]}"} --screenshot="$shot" --window-size=$window \
            "file://$shots/report-frame.html" >/dev/null ||
            fail "Chromium failed at $width px, $scheme"
        [ -s "$shot" ] || fail "no screenshot at $width px, $scheme"
        # A blank picture of this size has some 10 KB as PNG.
        [ "$(stat -c %s "$shot")" -gt 60000 ] || fail "the page looks blank at $width px, $scheme"
    done
    cmp -s "$shots/report-$width-light.png" "$shots/report-$width-dark.png" &&
        fail "light and dark look the same at $width px"
    wide=$(chrome --virtual-time-budget=3000 --window-size=$window --dump-dom \
        "file://$shots/probe-frame.html" | sed -n 's/.*data-width="\([^"]*\)".*/\1/p' | head -1)
    [ "$wide" = "$width" ] || fail "at $width px the content is ${wide:-?} px wide"
done
echo "report_screenshot: 4 screenshots in $shots"
