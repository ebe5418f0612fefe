"""The style sheet: light, dark, and print."""

STYLE = """
:root{color-scheme:light dark;--paper:#fff;--ink:#1a1f24;--soft:#5b6670;--line:#d8dde2;
--ok:#2a7ab0;--again:#d98a1f;--bad:#b3372e;--waits:#c3ccd4;--publish:#4d8f5b;--p95:#8a5fb0}
@media (prefers-color-scheme:dark){:root{--paper:#14181c;--ink:#e4e8ec;--soft:#98a4ae;
--line:#333b43;--ok:#5aa7da;--again:#e8a54a;--bad:#e46a5f;--waits:#46515b;--publish:#6fb57f;
--p95:#b48ad6}}
body{margin:0;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1000px;margin:0 auto;padding:24px 20px 60px}
h1{font-size:26px;margin:0 0 12px}h2{font-size:19px;margin:36px 0 8px}
h3{font-size:14px;margin:22px 0 0;overflow-wrap:anywhere}
p{margin:6px 0}section p{color:var(--soft);font-size:13px}
table{border-collapse:collapse;font-size:13px;margin:10px 0;display:block;overflow-x:auto}
th,td{padding:4px 12px 4px 0;text-align:left;border-bottom:1px solid var(--line);
white-space:nowrap}
th{color:var(--soft);font-weight:600}td.n,th.n{text-align:right}td.n{font-variant-numeric:tabular-nums}
svg{width:100%;height:auto;display:block}
svg text{fill:var(--soft);font-size:11px}
.grid{stroke:var(--line);stroke-width:1}
.ok,.p50{fill:var(--ok);background:var(--ok);stroke:var(--ok)}
.again,.p99{fill:var(--again);background:var(--again);stroke:var(--again)}
.bad{fill:var(--bad);background:var(--bad)}.waits{fill:var(--waits);background:var(--waits)}
.publish{fill:var(--publish);background:var(--publish)}
.deep{fill:var(--soft);background:var(--soft)}
.p95{fill:var(--p95);background:var(--p95);stroke:var(--p95)}
rect.ok,rect.again{stroke:none}
.line{fill:none;stroke-width:1.6}
.p95.line{stroke-dasharray:7 3}.p99.line{stroke-dasharray:2 3}
.key{display:inline-block;width:11px;height:11px;margin:0 4px 0 12px;vertical-align:-1px}
@media print{section{break-inside:avoid}}
"""
