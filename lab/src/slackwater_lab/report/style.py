"""The looks of a report: sober, for screens of any width, light or dark, and for paper."""

from __future__ import annotations

from typing import Final

CSS: Final = """
:root { color-scheme: light dark; --ink: #16191d; --dim: #5b626b; --page: #fdfdfc; --card: #fff;
  --line: #dcdedf; --link: #1f5f99; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e6e1; --dim: #a3a8ae; --page: #16191d; --card: #1c2025; --line: #363b42;
    --link: #8bbdea; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 2rem 1.25rem 4rem; background: var(--page);
  color: var(--ink); font: 1rem/1.55 system-ui, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.7rem; margin: 0; letter-spacing: -0.01em; }
h2 { font-size: 1.25rem; margin: 3rem 0 0.5rem; padding-top: 1rem;
  border-top: 1px solid var(--line); }
header p, .missing, caption, dd { color: var(--dim); }
a { color: var(--link); }
nav ol { padding-left: 1.25rem; }
.options { list-style: none; display: flex; flex-wrap: wrap; gap: 0.25rem 1.25rem; padding: 0;
  color: var(--dim); }
.options b { color: var(--ink); font-weight: 600; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 1rem 0; }
caption { text-align: left; padding-bottom: 0.4rem; }
th, td { padding: 0.28rem 0.9rem 0.28rem 0; border-bottom: 1px solid var(--line);
  text-align: right; white-space: nowrap; }
th[scope="row"], thead th:first-child, .plain td { text-align: left; font-weight: 400; }
thead th { font-weight: 600; border-bottom-width: 2px; }
.spread { color: var(--dim); font-size: 0.8rem; line-height: 1.2; }
td small { color: var(--dim); display: inline-block; min-width: 3.5em; }
.plots { display: grid; gap: 1rem; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); }
figure { margin: 0; padding: 0.9rem 1rem; background: var(--card); border: 1px solid var(--line);
  border-radius: 6px; }
figcaption { font-weight: 600; margin-bottom: 0.4rem; }
img { width: 100%; height: auto; display: block; }
.missing p { margin: 1rem 0 0; }
.missing ul { margin: 0.25rem 0; padding-left: 1.25rem; }
dt { font-weight: 600; }
dd { margin: 0 0 0.5rem; }
@media print {
  body { max-width: none; }
  figure, tr { break-inside: avoid; }
  nav { display: none; }
}
"""
