// SPDX-License-Identifier: Apache-2.0
// The page's style sheet and its few lines of script.
//
// Colours are variables with a light and a dark value, chosen by the reader's system; print takes
// the light ones. Text meets a contrast of 4.5 to 1 on its ground in both. Marks of one chart
// differ in lightness as well as in hue, and every colour is named beside its mark. Widths follow
// the screen: tables and timelines scroll inside their cards, other drawings have a form for
// phones, so that the page itself never scrolls sideways.
//
// Classes of parts: m1 .. m9, m0 are causes of memory; t1 .. t9 parts of a step; f1 .. f5 phases.
// The timeline's own style sheet (timeline_svg.c) stands inside its drawing; rules on `.lane` give
// it this page's colours.
#include "plan/html_impl.h"

// clang-format off
#define LIGHT \
    "--bg:#f6f6f4;--card:#fff;--fg:#1c1c1a;--dim:#5e5d58;--hair:#e6e5e0;--edge:#8f8e87;--zone:#efeeea;" \
    "--yes:#0a6b3b;--yesbg:#e7f3ec;--no:#a61e16;--nobg:#fbeae8;--link:#1d5fb4;" \
    "--m1:#2a78d6;--m2:#4a3aa7;--m3:#1baf7a;--m4:#eda100;--m5:#eb6834;--m6:#d83b3a;--m7:#e87ba4;--m8:#0b7a0b;--m9:#8a8983;--m0:#c9c8c2;" \
    "--t1:#2a78d6;--t2:#4a3aa7;--t3:#eda100;--t4:#1baf7a;--t5:#a46a2b;--t6:#d83b3a;--t7:#e87ba4;--t8:#b9b8b1;--t9:#6b6a65;" \
    "--f1:#3a6fc4;--f2:#2b8f62;--f3:#e09a2d;--f4:#1f8a9c;--f5:#805cb8;"
#define DARK \
    "--bg:#131312;--card:#1c1c1a;--fg:#ecebe6;--dim:#a9a8a1;--hair:#32312e;--edge:#77766f;--zone:#262623;" \
    "--yes:#6fd09b;--yesbg:#16291f;--no:#ff9d94;--nobg:#351a18;--link:#86b8f5;" \
    "--m1:#3987e5;--m2:#9085e9;--m3:#199e70;--m4:#c98500;--m5:#d95926;--m6:#e66767;--m7:#d55181;--m8:#3f9a3f;--m9:#8f8e88;--m0:#565550;" \
    "--t1:#3987e5;--t2:#9085e9;--t3:#c98500;--t4:#199e70;--t5:#b07a45;--t6:#e66767;--t7:#d55181;--t8:#6d6c66;--t9:#a3a29b;" \
    "--f1:#5a8fe0;--f2:#3aa877;--f3:#d9962f;--f4:#2fa3b5;--f5:#9a7ad0;"

const char *const gw_page_style[] = {
    ":root{color-scheme:light dark;" LIGHT "}\n",
    "@media (prefers-color-scheme:dark){:root{" DARK "}}\n",
    "@media print{:root{color-scheme:light;" LIGHT "}}\n",
    "*{box-sizing:border-box}html{-webkit-text-size-adjust:100%}\n",
    "body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;overflow-wrap:anywhere}\n",
    "main{max-width:1080px;margin:0 auto;padding:30px 20px 56px}\n",
    "h1{font-size:26px;line-height:1.25;font-weight:650;letter-spacing:-.01em;margin:0 0 14px}h2{font-size:16px;font-weight:620;margin:0 0 2px}h3{font-size:14px;font-weight:620;margin:18px 0 4px}\n",
    ".over{margin:0;color:var(--dim);font-size:13px}.about{margin:0 0 12px;color:var(--dim);font-size:13.5px;max-width:96ch;text-wrap:pretty}\n",
    ".facts{margin:0 0 18px;display:grid;gap:3px}.facts div{display:grid;grid-template-columns:74px 1fr;gap:8px}.facts dt{color:var(--dim)}.facts dd{margin:0}\n",
    ".verdict{border-radius:10px;padding:11px 16px 13px;margin:0 0 12px}.verdict p{margin:0 0 6px}.verdict b{font-weight:650}\n",
    ".yes{background:var(--yesbg)}.yes p b{color:var(--yes)}.no{background:var(--nobg)}.no p b{color:var(--no)}\n",
    ".meter{position:relative;height:6px;border-radius:3px;background:var(--card);margin-top:9px}.meter i{display:block;height:6px;border-radius:3px;background:var(--yes)}.no .meter i{background:var(--no)}\n",
    ".meter b{position:absolute;top:-3px;height:12px;width:2px;margin-left:-2px;background:var(--fg)}\n",
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(148px,1fr));gap:12px;margin:0 0 12px}.tiles div,.card{background:var(--card);border:1px solid var(--hair);border-radius:10px}\n",
    ".tiles div{padding:11px 15px}.tiles dd{margin:0;font-size:22px;font-weight:620;letter-spacing:-.01em;white-space:nowrap}.tiles dt{color:var(--dim);font-size:13px}\n",
    ".card{padding:16px 18px 18px;margin:0 0 12px}.card>:last-child{margin-bottom:0}\n",
    "data,.num,.tiles dd{font-variant-numeric:tabular-nums}code{font:12.5px/1.5 ui-monospace,'DejaVu Sans Mono',monospace;background:var(--zone);padding:1px 5px;border-radius:4px}\n",
    ".scroll{overflow-x:auto;margin:0 -18px;padding:0 18px}.scroll:focus-visible,summary:focus-visible{outline:2px solid var(--link);outline-offset:2px}\n",
    "table{border-collapse:collapse;width:100%;font-size:14px}caption{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}\n",
    "thead th{font-weight:500;color:var(--dim);text-align:left;vertical-align:bottom;padding:4px 12px 5px 0;border-bottom:1px solid var(--edge);white-space:nowrap}\n",
    "tbody th{font-weight:400;text-align:left;white-space:nowrap}tbody th,td{padding:5px 12px 5px 0;border-bottom:1px solid var(--hair);vertical-align:top}\n",
    "tr>:last-child{padding-right:0!important}tbody tr:last-child>*{border-bottom:0}thead th.num,td.num{text-align:right}td.num{white-space:nowrap}td.txt{color:var(--dim);overflow-wrap:normal}td.long{min-width:200px}\n",
    ".sum>*{border-top:1px solid var(--edge);font-weight:620!important}\n",
    ".sq{display:inline-block;width:10px;height:10px;border-radius:2.5px;margin-right:8px}.keys{display:flex;flex-wrap:wrap;gap:3px 16px;margin:8px 0 0;padding:0;list-style:none;font-size:13px;color:var(--dim)}.keys .sq{margin-right:6px}\n",
    ".keys .ln{display:inline-block;width:16px;height:0;border-top:2px solid var(--fg);margin-right:6px;vertical-align:4px}.keys .dash{border-top-style:dashed;border-top-width:1.5px}\n",
    ".bar{display:flex;gap:1px;height:16px;border-radius:4px;overflow:hidden;background:var(--zone);margin:4px 0 12px}.bar i{display:block;min-width:1px}td .bar{height:10px;margin:5px 0 0;min-width:140px}\n",
    "svg.draw{display:block;width:100%;height:auto;margin:6px 0 0}svg.narrow{display:none}@media (max-width:640px){svg.wide{display:none}svg.narrow{display:block}}\n",
    "svg.draw text{font:11px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:var(--dim);font-variant-numeric:tabular-nums}svg.draw .big{fill:var(--fg);font-weight:600}\n",
    "svg.draw .halo{fill:var(--fg);paint-order:stroke;stroke:var(--card);stroke-width:3.5px;stroke-linejoin:round}\n",
    "svg.draw .gl{stroke:var(--hair);fill:none}svg.draw .ax{stroke:var(--edge);fill:none}svg.draw .mk{stroke:var(--fg);fill:none;stroke-width:1.3}svg.draw .da{stroke:var(--fg);fill:none;stroke-width:1.3;stroke-dasharray:5 3}\n",
    "svg.draw .hit{fill:transparent}svg.draw .hit:hover{fill:var(--fg);fill-opacity:.09}svg.draw .dot{stroke:var(--card);stroke-width:1;fill-opacity:.82}svg.draw .roof{stroke:var(--fg);stroke-width:1.6;fill:none}svg.draw .rail{fill:var(--zone)}\n",
    "svg.draw .cu{fill:none;stroke:var(--m1);stroke-width:1.5}\n",
    ".m1{fill:var(--m1);background:var(--m1)}.m2{fill:var(--m2);background:var(--m2)}.m3{fill:var(--m3);background:var(--m3)}.m4{fill:var(--m4);background:var(--m4)}.m5{fill:var(--m5);background:var(--m5)}.m6{fill:var(--m6);background:var(--m6)}.m7{fill:var(--m7);background:var(--m7)}.m8{fill:var(--m8);background:var(--m8)}.m9{fill:var(--m9);background:var(--m9)}.m0{fill:var(--m0);background:var(--m0)}.t1{fill:var(--t1);background:var(--t1)}.t2{fill:var(--t2);background:var(--t2)}.t3{fill:var(--t3);background:var(--t3)}.t4{fill:var(--t4);background:var(--t4)}.t5{fill:var(--t5);background:var(--t5)}.t6{fill:var(--t6);background:var(--t6)}.t7{fill:var(--t7);background:var(--t7)}.t8{fill:var(--t8);background:var(--t8)}.t9{fill:var(--t9);background:var(--t9)}.f1{fill:var(--f1);background:var(--f1)}.f2{fill:var(--f2);background:var(--f2)}.f3{fill:var(--f3);background:var(--f3)}.f4{fill:var(--f4);background:var(--f4)}.f5{fill:var(--f5);background:var(--f5)}\n",
    ".lane{overflow-x:auto;margin:0 -18px;padding:0 18px}.lane svg{display:block;--ink:var(--fg);--soft:var(--dim);--page:var(--card);--track:var(--zone);--wait:var(--hair);--rule:var(--edge)}.lane svg .page{fill:none}.lane svg .name{font-weight:600}\n",
    "details{margin-top:4px}summary{cursor:pointer;font-weight:620}details+details{border-top:1px solid var(--hair);padding-top:10px;margin-top:10px}details>.scroll,details>p,details>ul{margin-top:8px}\n",
    "footer{color:var(--dim);font-size:13px;margin-top:22px}footer p{margin:0 0 6px}.line{margin:6px 0 0}.op{margin:4px 0 0}.op code{display:block;padding:8px 10px;border-radius:6px}.eq{font:12.5px/1.7 ui-monospace,'DejaVu Sans Mono',monospace;margin:6px 0 0;padding:0;list-style:none}\n",
    "#tip{position:fixed;z-index:9;max-width:min(360px,calc(100vw - 12px));background:var(--fg);color:var(--bg);font-size:12.5px;line-height:1.4;padding:5px 9px;border-radius:6px;pointer-events:none;white-space:pre-line}#tip[hidden]{display:none}\n",
    ".two{display:grid;grid-template-columns:1fr 1fr;gap:0 32px}@media (max-width:760px){.two{grid-template-columns:1fr}}\n",
    "@media (max-width:640px){main{padding:20px 12px 40px}.card{padding:14px 14px 15px}.scroll,.lane{margin:0 -14px;padding:0 14px}h1{font-size:22px}.tiles{grid-template-columns:1fr 1fr;gap:8px}.tiles dd{font-size:19px}.facts div{grid-template-columns:1fr;gap:0}.facts{gap:7px}.facts dt{font-size:13px}}\n",
    "@media print{body{background:#fff;font-size:11pt}main{max-width:none;padding:0}.card,.tiles div,.verdict{break-inside:avoid;border-color:#ccc}.scroll,.lane{overflow:visible}.lane svg{width:100%;height:auto}table{font-size:9.5pt}.card{break-inside:auto}svg,tr{break-inside:avoid}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}#tip{display:none}}\n",
    NULL};

const char gw_page_script[] =
    "(()=>{const tip=document.createElement('div');tip.id='tip';tip.hidden=true;document.body.append(tip);\n"
    "for(const t of document.querySelectorAll('svg title')){const e=t.parentNode;if(e.tagName==='svg')e.setAttribute('aria-label',t.textContent);else e.setAttribute('data-t',t.textContent);t.remove()}\n"
    "for(const e of document.querySelectorAll('.bar i'))e.removeAttribute('title');\n"
    "const show=e=>{const m=e.target.closest?e.target.closest('[data-t]'):null;tip.hidden=!m;if(!m)return;tip.textContent=m.getAttribute('data-t');\n"
    "const w=document.documentElement.clientWidth,b=tip.getBoundingClientRect();tip.style.left=Math.max(6,Math.min(e.clientX+12,w-b.width-6))+'px';\n"
    "tip.style.top=(e.clientY+18+b.height>innerHeight?e.clientY-b.height-12:e.clientY+18)+'px'};\n"
    "addEventListener('pointermove',show);addEventListener('pointerdown',show);addEventListener('scroll',()=>{tip.hidden=true},true)})();\n";
// clang-format on
