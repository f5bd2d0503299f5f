#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# timeout: 240
#
# The page of a plan in a real browser: headless Chromium lays it out at the width of a phone and of a
# desk, in light and dark, and a script that the test adds measures it. The page must not scroll
# sideways, no text of a drawing may be cut off or lie on another, text must have a contrast of 4.5
# to 1, scripts must not fail, and nothing may be fetched.
set -euo pipefail

browser=
for b in chromium chromium-browser google-chrome; do
    if command -v "$b" >/dev/null; then browser=$b && break; fi
done
[ -n "$browser" ] || { echo "no Chromium here"; exit 77; }
[ -x "${GW_BIN:-}" ] || { echo "GW_BIN names no program"; exit 77; }
cd "$TMPDIR"

headless() {
    timeout 60 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
        --user-data-dir="$TMPDIR/profile" --allow-file-access-from-files --hide-scrollbars "$@" 2>/dev/null
}

headless --dump-dom 'data:text/html,<p>works' | grep -q works || { echo "Chromium does not start here"; exit 77; }

cat >run.yaml <<'END'
model: {family: llama, layers: 8, hidden: 256, heads: 8, kv_heads: 4, ffn: 512, vocab: 1024}
train: {seq_len: 256, micro_batch: 2, accumulate: 4}
END
"$GW_BIN" plan run.yaml --memory 64MB --html one.html >/dev/null
"$GW_BIN" plan run.yaml --hardware h100-sxm --world 32 --set layout.pp=4 --set layout.tp=2 --set layout.zero=1 \
    --html many.html >/dev/null
"$GW_BIN" plan resnet50 --hardware a100-80g --html net.html >/dev/null

# What is measured, in the page; the frame around it prints what it is told.
cat >check.js <<'END'
const errors = [];
addEventListener('error', e => errors.push(e.message));
addEventListener('securitypolicyviolation', e => errors.push('fetched ' + e.blockedURI));
addEventListener('load', () => setTimeout(() => {
  const wrong = [...errors], root = document.documentElement;
  if (root.scrollWidth > innerWidth) wrong.push(`scrolls sideways: ${root.scrollWidth} of ${innerWidth}`);
  for (const svg of document.querySelectorAll('svg.draw')) {
    const frame = svg.getBoundingClientRect();
    if (frame.width === 0) continue;
    const texts = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
    for (const [s, b] of texts)
      if (b.left < frame.left - 1 || b.right > frame.right + 1 || b.top < frame.top - 1 || b.bottom > frame.bottom + 1)
        wrong.push(`cut off: ${s}`);
    for (let i = 0; i < texts.length; i++)
      for (let k = 0; k < i; k++) {
        const [s, a] = texts[i], [t, b] = texts[k];
        if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 4 && b.top < a.bottom - 4)
          wrong.push(`on each other: ${s} | ${t}`);
      }
  }
  const rgb = c => c.match(/[\d.]+/g).map(Number);
  const light = c => { const [r, g, b] = rgb(c).map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor, v = rgb(c);
    if (v.length < 4 || v[3] === 1) return c; } return 'rgb(255,255,255)'; };
  let texts = 0;
  for (const e of document.querySelectorAll('main *')) {
    if (e.closest('svg') || ![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
    if (!e.getClientRects().length) continue;
    const a = light(getComputedStyle(e).color), b = light(ground(e)), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    texts++;
    if (ratio < 4.5) wrong.push(`contrast ${ratio.toFixed(2)}: ${e.textContent.slice(0, 30)}`);
  }
  const dark = matchMedia('(prefers-color-scheme: dark)').matches;
  parent.postMessage(`done width=${innerWidth} dark=${dark} texts=${texts} wrong=${JSON.stringify(wrong.slice(0, 9))}`, '*');
}, 50));
END

status=0
# The page of a data build is made of the same parts.
mkdir texts
for i in 1 2 3 4 5 6; do
    n=$((i / 2))
    printf 'Page %s.\n%s\n' "$n" "$(yes "Words of the page that have to say what others say." | head -n $((20 + n * 10)))" >"texts/$i.txt"
done
cat >data.yaml <<'END'
input: [texts]
filters: [gopher_quality/datatrove: {min_doc_words: 320}]
dedup: {spans: [lines, paragraphs], substring: 60, bloom: lines}
tokenizer: {path: bytes}
output: {dir: built}
END
"$GW_BIN" data build data.yaml --quiet
cp built/report.html built.html

for page in one many net built; do
    awk 'BEGIN { while ((getline line < "check.js") > 0) js = js line "\n" }
         /<head>/ && !done { sub(/<head>/, "<head><script>\n@CHECK@</script>"); done = 1 }
         { at = index($0, "@CHECK@"); if (at) print substr($0, 1, at - 1) js substr($0, at + 7); else print }' \
        "$page.html" >"$page-checked.html"
    for width in 390 1280; do
        for scheme in 0 1; do # dark, light
            cat >frame.html <<END
<body><output></output><script>onmessage = e => document.querySelector('output').textContent = e.data</script>
<iframe src="$page-checked.html" style="width:${width}px;height:9000px;border:0"></iframe>
END
            said=$(headless --blink-settings=preferredColorScheme=$scheme --window-size=1400,1000 --virtual-time-budget=8000 \
                --dump-dom "file://$TMPDIR/frame.html" | grep -o 'done width=[^<]*' || true)
            echo "$page: ${said:-nothing was measured}"
            dark=$([ "$scheme" = 0 ] && echo true || echo false)
            case $said in
            "done width=$width dark=$dark texts="*'wrong=[]') ;;
            *) status=1 ;;
            esac
        done
    done
done
exit $status
