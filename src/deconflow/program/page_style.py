"""How the report looks: light or dark, narrow or wide, on paper."""

STYLE = """
:root { color-scheme: light dark;
        --ink: #222; --paper: #fff; --soft: #555; --line: #ddd; --faint: #eee;
        --code: #f5f5f5; --warn: #fff3cd; --warn-line: #d1495b; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e4e4; --paper: #16181c; --soft: #a8acb3; --line: #3b3f46; --faint: #2a2d33;
          --code: #22252b; --warn: #3d3211; --warn-line: #e8727f; }
}
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto;
       padding: 0 1rem; color: var(--ink); background: var(--paper); }
h1, h2, h3 { font-weight: 600; line-height: 1.2; overflow-wrap: anywhere; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); padding-bottom: .3rem; }
h3 { margin-top: 1.5rem; font-size: 1.05rem; }
p { overflow-wrap: anywhere; }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; }
th, td { text-align: left; vertical-align: top; padding: .25rem 1.2rem .25rem 0;
         border-bottom: 1px solid var(--faint); }
td:first-child { white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.caution { background: var(--warn); padding: .5rem .8rem; border-left: 4px solid var(--warn-line); }
img { max-width: 100%; height: auto; background: #fff; border-radius: 4px; }
figure { margin: 1.5rem 0; }
figcaption, .aside { color: var(--soft); }
pre { background: var(--code); padding: .8rem; overflow-x: auto; }
@media (max-width: 36rem) {
  table { font-size: .85rem; }
  th, td { padding-right: .7rem; }
}
@media print {
  :root { color-scheme: light; --ink: #000; --paper: #fff; --soft: #555; --line: #ddd;
          --faint: #eee; --code: #f5f5f5; --warn: #fff3cd; --warn-line: #d1495b; }
  .wide, pre { overflow: visible; } pre { white-space: pre-wrap; }
  figure, tr { break-inside: avoid; }
}
"""
