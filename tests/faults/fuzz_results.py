"""What is fuzzed of results: the reading of JSON, what the report makes of it, the store, SVG."""

from __future__ import annotations

import copy
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from experiments import result_folder as made

from adahb.experiments import report, result_files, store
from adahb.experiments.report_claims import claims
from adahb.experiments.report_figures import FIGURES, coverage, figure
from adahb.experiments.report_tables import sections
from adahb.experiments.result_files import KINDS, ResultFile

from .fuzz import Choices, Target

RIGHT, REFUSED = "right answer", "clear error"
RESULTS = Path(__file__).resolve().parents[2] / "results"
HOSTILE: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**63, 10**400, 0.5, -1e308, 1e308, 5e-324, "", "x"),
    *([], {}, [[]], [None], {"": None}, ["x"] * 9, [1, 2, 3], "C1", "supported", "cnn", "digits"),
    *(
        made.HOSTILE,
        "javascript:alert(1)",
        "'\"><svg onload=x>",
        "{{ 7*7 }}",
        "\u2028</script",
        "é" * 99,
    ),
)
NAMES = {
    "claims.json": made.claims(),
    "figure5.json": made.figure5(),
    "convex.json": made.convex(),
    "deep-paper.json": made.deep(),
}
WHOLE = 400
"""Of so many inputs that are understood, one is rendered as a page and read as HTML."""


def results_target(folder: Path) -> Target:
    """Small results as the commands write them, and the beginning of each real one."""
    for name in ("digits", "forms", "precision", "projection", "step-cpu", "linear"):
        content = store.read_json(RESULTS / f"{name}.json")
        NAMES[f"{name}.json"] = content if name == "forms" else _short(content)
    texts = {name: store.to_json(content) for name, content in NAMES.items()}
    job = SimpleNamespace(
        name="job", spec=lambda: {"kind": "x", "n": 3}, compute=lambda: {"v": [1.5]}
    )
    kept = store.Store(folder)
    kept.result(job)
    record = kept.path(job).read_text()
    attempt = _Attempt(texts, kept, job, record)
    for name, text in texts.items():  # all are understood, and what is loaded late is loaded
        assert attempt._read(name, text.encode(), Choices(b"")) == RIGHT, name
    return Target(attempt)


def _short(value: Any) -> Any:
    """The same with lists cut short."""
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    return [_short(item) for item in value[:2]] if isinstance(value, list) else value


class _Attempt:
    def __init__(self, texts: dict[str, str], kept: Any, job: Any, record: str) -> None:
        self.texts, self.kept, self.job, self.record = texts, kept, job, record
        self.names = list(texts)
        report._plotly = lambda: "/* plotly */"

    def __call__(self, data: bytes) -> str:
        choose = Choices(data)
        how = choose.below(10)
        if how == 0:
            return self._stored(choose)
        if how == 1:
            return _drawn(choose)
        name = choose.pick(self.names)
        text = self.texts[name]
        if how > 2:
            content = json.loads(text)
            for _ in range(1 + choose.below(3)):
                content = _changed(content, choose)
            text = json.dumps(content)
        return self._read(name, _garbled(text, choose) if how < 5 else text.encode(), choose)

    def _stored(self, choose: Choices) -> str:
        """A result is the one that was kept, or none."""
        path = self.kept.path(self.job)
        path.write_bytes(_garbled(self.record, choose))
        try:
            found = self.kept.result(self.job)
        except ValueError as error:
            return _clear(error, path)
        kept = json.loads(path.read_text())
        assert found == kept["result"] == {"v": [1.5]} or "sum" not in kept, found
        return RIGHT

    def _read(self, name: str, text: bytes, choose: Choices) -> str:
        kind = next(k for k in KINDS if Path(name).match(k.pattern))
        path = Path("fuzzed") / name
        try:
            file = ResultFile(path, kind, store.parsed(text, path))
            with file.understood() as content:
                if not isinstance(content, dict):
                    raise TypeError("it must be an object")
            shown = self._shown(file)
        except ValueError as error:
            return _clear(error, path)
        for chart in shown:
            json.loads(str(report._in_script(chart)), parse_constant=_refuse)
        if choose.below(WHOLE) == 0:
            _check_page(report._render(path.parent, [file]))
        return RIGHT

    def _shown(self, file: ResultFile) -> list[Any]:
        files = [file]
        claims(files), coverage(files), sections(files), report._made_with(file)
        assert re.fullmatch(r"[\w .:/*>|'<~-]*", file.command)
        blocks = (b for n in FIGURES for b in figure(n, file.path.parent, files)["blocks"])
        return [block["chart"] for block in blocks]


def _refuse(text: str) -> Any:
    raise AssertionError(f"{text} in a chart")


def _clear(error: ValueError, path: Path) -> str:
    assert type(error) is ValueError, repr(error)
    assert path.name in str(error), f"no file is named: {error}"
    return REFUSED


def _changed(value: Any, choose: Choices) -> Any:
    """The same with a hostile value somewhere, or something missing, or something twice."""
    if not isinstance(value, dict | list) or not value or choose.below(6) == 0:
        return copy.deepcopy(choose.pick(HOSTILE))
    keys = list(value) if isinstance(value, dict) else range(len(value))
    key = choose.pick(keys)
    how = choose.below(12)
    if how == 0:
        del value[key]
    elif how == 1 and isinstance(value, list):
        value.append(copy.deepcopy(value[key]))
    elif how == 2 and isinstance(value, dict):
        value[choose.pick(("", "x", made.HOSTILE, "id", *value))] = copy.deepcopy(value[key])
    elif how == 3:
        value[key] = [value[key]]
    else:
        value[key] = _changed(value[key], choose)
    return value


TOKENS = (
    *("NaN", "Infinity", "-Infinity", "1e999", "-1e999", '"\\ud800"', '"\\u001b[2J"', '"\\u0000"'),
    *(
        "[" * 60 + "]" * 60,
        "[" * 5000,
        "9" * 5000,
        "\x00",
        "\x1b",
        "{",
        "}",
        ",",
        '"',
        "\\",
        "null",
    ),
    *("\u2028", "\ufeff", '"\\u009b"', '{"a":' * 2000),
)


def _garbled(text: str, choose: Choices) -> bytes:
    """The bytes of a text with a token in it, or cut, or with bits turned over."""
    data = bytearray(text.encode())
    for _ in range(choose.below(4)):
        at, how = choose.below(65_521) * 97 % (len(data) + 1), choose.below(5)
        if how == 0:
            del data[at:]
        elif how == 1 and at < len(data):
            data[at] ^= 1 << choose.below(8)
        elif how == 2:
            del data[at : at + 1 + choose.below(9)]
        else:
            data[at : at + (how == 3)] = choose.pick(TOKENS).encode()
    return bytes(data)


# ---------------------------------------------------------------- what a browser is given

PARTS = (
    *("<script>alert(1)</script>", "<svg:script xmlns:svg='http://www.w3.org/2000/svg'/>"),
    *(
        "<foreignObject/>",
        "<a href='x'/>",
        "<g onload='x'/>",
        "<g ONCLICK='x'/>",
        "<use href='#p'/>",
    ),
    *("<use xlink:href='https://x/y' xmlns:xlink='http://www.w3.org/1999/xlink'/>", "<path/>"),
    *("<set attributeName='href' to='javascript:x'/>", "<image href='data:image/png;base64,AA'/>"),
    *("<image href='data:image/svg+xml,x'/>", "&x;", "<!-- x -->", "]]>", "\x00", "<g>", "</g>"),
)
HEADS = (
    *("", "<?xml version='1.0' encoding='utf-8'?>", "<?xml version='1.0' encoding='spam'?>"),
    *("<!DOCTYPE svg [<!ENTITY x 'y'>]>", "<?xml version='1.0' encoding='utf-7'?>", "<svg/>", "x"),
)
BAD = re.compile(r"script|foreignobject|<a |onload|onclick|https:|<set|svg\+xml|entity", re.I)


def _drawn(choose: Choices) -> str:
    inner = "".join(choose.pick(PARTS) for _ in range(choose.below(4)))
    text = choose.pick(HEADS) + f"<svg xmlns='http://www.w3.org/2000/svg'>{inner}</svg>\n"
    if choose.below(2):  # harm may take the harm away: only that it ends well is looked at
        return RIGHT if result_files._is_drawing(_garbled(text, choose)) else REFUSED
    if not result_files._is_drawing(text.encode()):
        return REFUSED
    assert not BAD.search(text), text
    return RIGHT


class _Page(HTMLParser):
    """Counts what runs, and refuses what must not be there."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), name
            inner = name in ("href", "src")
            assert not inner or (value or "").startswith(("#", "data:image/")), value


def _check_page(html: str) -> None:
    html.encode()
    page = _Page()
    page.feed(html)
    page.close()
    charts = html.count('<script type="application/json">')
    assert page.tags.count("script") == 2 + charts
    assert not {"iframe", "object", "embed", "form", "base", "link"} & set(page.tags)
