"""The style sheet of the page: light and dark, from a phone's width on."""

STYLE = """
:root { color-scheme: light dark; --ground: #ffffff; --raised: #f6f8fa; --line: #d0d7de;
  --ink: #1f2328; --quiet: #59636e; --agree: #1a7f37; --differ: #cf222e; --unknown: #9a6700;
  --accent: #0969da; }
@media (prefers-color-scheme: dark) { :root { --ground: #0d1117; --raised: #161b22;
  --line: #30363d; --ink: #e6edf3; --quiet: #9198a1; --agree: #3fb950; --differ: #f85149;
  --unknown: #d29922; --accent: #58a6ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 62rem; background: var(--ground);
  color: var(--ink); font: 1rem/1.5 system-ui, "Segoe UI", Roboto, sans-serif;
  overflow-wrap: anywhere; }
h1 { font-size: 1.35rem; line-height: 1.3; margin: .2rem 0; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; padding-top: .75rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1rem 0 .35rem; }
p, ul { margin: .35rem 0; }
header { border-left: .5rem solid var(--kind); background: var(--raised); padding: .75rem 1rem;
  border-radius: .4rem; }
.agree { --kind: var(--agree); } .differ { --kind: var(--differ); }
.unknown { --kind: var(--unknown); }
.badge { color: var(--kind); font-weight: 700; text-transform: uppercase; font-size: .85rem;
  letter-spacing: .04em; }
.quiet, figcaption, th { color: var(--quiet); font-size: .875rem; font-weight: 400; }
.card { border: 1px solid var(--line); border-radius: .4rem; padding: .6rem .8rem;
  margin: .6rem 0; }
.card h3 { margin: 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: left; padding: .2rem .9rem .2rem 0; vertical-align: top;
  overflow-wrap: normal; }
td { border-top: 1px solid var(--line); font-variant-numeric: tabular-nums; }
.card td, .card th, .nowrap td { white-space: nowrap; }
tr.odd td { color: var(--differ); font-weight: 600; }
.why td:first-child { white-space: nowrap; } .why td:nth-child(2) { text-align: right; }
code, pre { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; font-size: .875rem; }
code { unicode-bidi: isolate; }
pre { background: var(--raised); border: 1px solid var(--line); border-radius: .4rem;
  padding: .5rem .7rem; margin: .35rem 0; overflow-x: auto; overflow-wrap: normal; }
figure { margin: .5rem 0; } svg { display: block; width: 100%; height: auto; }
svg.shares { height: 14px; border-radius: 3px; max-width: 100%; }
svg text { fill: var(--quiet); font-size: 11px; }
.axis { stroke: var(--line); }
.begin { stroke: var(--quiet); stroke-dasharray: 3 2; --kind: var(--quiet); }
rect, .swatch { fill: var(--kind, var(--accent)); }
.plots { display: grid; gap: .5rem 1.5rem;
  grid-template-columns: repeat(auto-fit, minmax(min(18rem, 100%), 1fr)); }
.legend { list-style: none; padding: 0; font-size: .875rem; display: flex; flex-wrap: wrap;
  gap: .1rem 1rem; }
.swatch { display: inline-block; width: .7rem; height: .7rem; border-radius: 2px;
  margin-right: .35rem; background: var(--kind, var(--accent)); }
.mark { display: inline-block; width: 1.35rem; text-align: center; margin: 0 2px 2px 0;
  border-radius: 3px; color: var(--ground); background: var(--kind); font-weight: 700; }
"""
