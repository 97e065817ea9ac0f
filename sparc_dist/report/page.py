"""index.html: the report as one self-contained page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from sparc_dist.report.tables import DECISIONS
from sparc_dist.runs import TITLES, Results
from sparc_dist.runs.tables import shown

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .2rem .8rem; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child, td.text { text-align: left; }
tr.sparc td { font-weight: 600; }
.bar { display: inline-block; height: .7rem; background: #456; }
.warning { padding: .5rem 1rem; background: #fe9; }
img { max-width: 100%; }
"""


def to_html(results: Results, examples: Sequence[str]) -> str:
    """Returns the page; ``examples`` are the pictures to show, relative to the page."""
    body = "\n".join(_body(results, examples))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>SPARC report</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _body(results: Results, examples: Sequence[str]) -> Iterator[str]:
    yield "<h1>Zero-shot multi-label recognition: mAP (%)</h1>"
    yield from (f'<p class="warning">{escape(warning)}</p>' for warning in results.warnings())
    yield _main_table(results)
    if remarks := list(results.remarks()):
        yield "<ul>" + "".join(f"<li>{escape(remark)}</li>" for remark in remarks) + "</ul>"
    for name in examples:
        yield f'<p><img src="{escape(name)}" alt="Images with their three most likely classes"></p>'
    for (dataset, backbone), metrics in results.metrics.items():
        yield f"<h2>{escape(dataset)} × {escape(backbone)}</h2>"
        yield _counts(metrics)
        if metrics["errors"]["images"]:
            yield _error_table(metrics["errors"])
        if metrics["sparc"]["AP"]:
            yield _class_table(metrics, results.methods)
            yield _decision_table(metrics)


def _main_table(results: Results) -> str:
    head = _cells("th", ["data set", "method", *results.backbones, "average"])
    rows = "".join(
        f'<tr class="{method}"><td>{escape(dataset)}</td><td class="text">{TITLES[method]}</td>'
        f"{_cells('td', map(shown, values))}</tr>"
        for dataset, method, values in results.rows()
    )
    return f"<table><tr>{head}</tr>{rows}</table>"


def _counts(metrics: dict[str, Any]) -> str:
    stages = "; ".join(
        f"{escape(name.replace('_', ' '))} {stage['seconds']:.1f} s"
        for name, stage in metrics["stages"].items()
    )
    recovery = metrics.get("recovery", {})
    recovered = "".join(
        f" {count:,} {name.replace('_', ' ')}." for name, count in recovery.items() if count
    )
    bad = metrics["errors"]["images"]
    return f"<p>{metrics['images']:,} images, {bad:,} errors. {stages}.{recovered}</p>"


def _error_table(errors: dict[str, Any]) -> str:
    """Returns the number of unreadable images per reason; the images are listed in errors/."""
    rows = "".join(
        f"<tr><td>{escape(reason)}</td><td>{count:,}</td></tr>"
        for reason, count in errors["reasons"].items()
    )
    share = f"{100 * errors['share']:.1f} % of the images"
    return f"<table><tr>{_cells('th', [f'errors: {share}', 'images'])}</tr>{rows}</table>"


def _class_table(metrics: dict[str, Any], methods: Sequence[str]) -> str:
    """Returns the AP per class, the largest gain of the primary method over ZSCLIP first."""
    aps = {method: metrics[method]["AP"] for method in methods if method in metrics}
    ours = aps[metrics.get("primary", "sparc")]
    names = [name for name, value in ours.items() if value is not None]
    names.sort(key=lambda name: aps["zsclip"][name] - ours[name])
    rows = "".join(
        f"<tr><td>{escape(name)}</td>{_cells('td', [shown(aps[m][name]) for m in aps])}"
        f"<td>{ours[name] - aps['zsclip'][name]:+.1f}</td>"
        f'<td class="text"><span class="bar" style="width:{ours[name] / 5:.1f}rem"></span>'
        "</td></tr>"
        for name in names
    )
    head = _cells("th", ["AP (%)", *(TITLES[method] for method in aps), "gain", ""])
    return f"<table><tr>{head}</tr>{rows}</table>"


def _decision_table(metrics: dict[str, Any]) -> str:
    """Returns how good the decisions of each method are; nothing for runs without decisions."""
    methods = [name for name in TITLES if "decisions" in metrics.get(name, {})]
    if not methods:
        return ""
    rows = "".join(
        f"<tr><td>{escape(title)}</td>"
        f"{_cells('td', [shown(metrics[m]['decisions'][key], digits) for m in methods])}</tr>"
        for key, title, digits in DECISIONS
    )
    head = _cells("th", ["decisions", *(TITLES[method] for method in methods)])
    return f"<table><tr>{head}</tr>{rows}</table>"


def _cells(tag: str, values: Any) -> str:
    return "".join(f"<{tag}>{escape(value)}</{tag}>" for value in values)
