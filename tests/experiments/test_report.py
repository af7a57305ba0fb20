"""The page that shows the results, read as text; test_report_browser.py looks at it."""

import json
import os
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from experiments import result_folder as made

from adahb.experiments import report, result_tables
from adahb.experiments.errata import ERRATA
from adahb.experiments.findings import STAND_IN
from adahb.experiments.result_files import KINDS
from adahb.experiments.store import read_json, to_json

RESULTS = Path(__file__).parents[2] / "results"
VOID = {"meta", "img", "link", "br"}


class Page(HTMLParser):
    """What a reader meets: text, images, links, and the data and scripts beside them."""

    def __init__(self, html):
        super().__init__()
        self.words, self.images, self.ids, self.links, self.open = [], [], set(), [], []
        self.data, self.scripts, self.metas = [], [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.ids.add(attributes.get("id"))
        if tag not in VOID:
            self.open.append((tag, attributes))
        for name, found in (("img", self.images), ("a", self.links), ("meta", self.metas)):
            if tag == name:
                found.append(attributes)
        assert not any(name.startswith("on") for name in attributes)

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        tag, attributes = self.open[-1] if self.open else ("", {})
        if tag == "script":
            (self.data if attributes else self.scripts).append(data)
        elif tag != "style":
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


@pytest.fixture
def folder(tmp_path):
    return made.filled(tmp_path)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """A stand-in for plotly's five megabytes."""
    monkeypatch.setattr(report, "_plotly", lambda: "/* plotly */")


def page_of(folder):
    path = report.write_report(folder, folder / "page")
    assert path == folder / "page" / "index.html"
    return Page(path.read_text(encoding="utf-8"))


def tiles(page):
    """The words of the list with a tile for each claim."""
    return re.split(r" C\d: | Figure 1: ", page.text.partition("does not count")[2])[0]


def test_verdicts_come_first_and_every_claim_is_there(folder):
    page = page_of(folder)
    order = ("Verdicts A", *(f"Figure {n}:" for n in range(1, 7)), "Deep networks", "Errata:")
    places = [page.text.index(word) for word in order]
    assert places == sorted(places)
    found = tiles(page)
    for name in (f"C{n} " for n in range(1, 9)):
        assert name in found
    assert found.count("not measured") == 2  # C3 and C4
    assert found.count("To measure it: adahb claims --data DATA --out DIR") == 2
    assert "in part (1 supported, 1 not supported)" in found
    assert "statement of C2 HB & <more>" in page.text
    assert "0.5 [0.4, 0.6]" in page.text
    assert "1 [1, ∞]" in page.text
    for erratum in ERRATA:
        assert erratum.title in page.text
    assert all(link["href"][1:] in page.ids for link in page.links)


def test_what_is_missing_gets_a_sentence_with_its_command(tmp_path):
    (tmp_path / "claims.json").write_text(to_json(made.claims()))
    page = page_of(tmp_path)
    assert not page.data
    for kind in KINDS[1:]:
        assert f"{kind.command} measures it" in page.text or kind.command in page.text
    assert page.text.count("Not measured in this folder of results.") == 6 + 7
    assert page.text.count("no measurement: the data could not be obtained") == 2


def test_stand_in_data_do_not_count_beside_the_papers(tmp_path):
    quick = made.deep("digits", ("cnn",), ("C5", "C7"), f"so. {STAND_IN}")
    quick["claims"][0]["verdict"] = "not supported"
    (tmp_path / "deep-quick.json").write_text(to_json(quick))
    found = tiles(page_of(tmp_path))
    assert "✗ not supported on scikit-learn’s digits" in found
    (tmp_path / "deep-paper.json").write_text(to_json(made.deep()))
    page = page_of(tmp_path)
    found = tiles(page)
    assert "not supported" not in found
    assert "on scikit-learn’s digits" not in found
    assert page.text.count("(stand-in data)") == 2
    assert page.text.index("Preset paper") < page.text.index("Preset quick")


def test_a_claim_that_two_files_hold_is_shown_once(folder):
    content = made.claims()
    content["claims"] += made.deep()["claims"]
    (folder / "claims.json").write_text(to_json(content))
    assert page_of(folder).text.count("statement of C5 & <more>") == 1


def test_charts_hold_the_numbers_of_the_files(folder):
    charts = [json.loads(data) for data in page_of(folder).data]
    assert [chart["y"] for chart in charts][:4] == ["training loss", "test accuracy"] * 2
    assert [len(chart["views"]) for chart in charts] == [2, 2, 2, 2, 1, 1]
    assert [chart["logY"] for chart in charts] == [True, False, True, False, False, True]
    assert all(chart["x"] for chart in charts)
    loss, figure5 = charts[0], charts[4]
    assert [curve["label"] for curve in loss["curves"]] == list(made.SIX)
    assert len({curve["colour"] for curve in loss["curves"]}) == 6
    assert loss["views"][0]["panels"][0]["lines"][5]["low"] == [0.9, 0.4, None]
    assert [curve["dash"] for curve in figure5["curves"]] == ["solid", "dash", "dot"]
    for panel, T in zip(figure5["views"][0]["panels"], (10, 20), strict=True):
        assert panel["x"] == [1, 2, T]
        assert panel["lines"][1]["value"] == [0.0, 0.2, 0.4]


def test_cells_may_have_line_ups_of_their_own(tmp_path):
    content = made.deep(networks=("cnn", "cnn-paper"))
    more = {**content["cells"][1]["protocols"]["fair"][0], "label": "Schedule-Free"}
    rows = content["cells"][1]["protocols"] = {"published": [more], "fair": [more]}
    (tmp_path / "deep-modern.json").write_text(to_json(content))
    chart = json.loads(page_of(tmp_path).data[0])
    assert [curve["label"] for curve in chart["curves"]] == [*made.SIX, "Schedule-Free"]
    first, second = chart["views"][0]["panels"]
    assert first["lines"][6] == {"value": [None] * 3}
    assert second["lines"][0] == {"value": [None] * 3}
    assert second["lines"][6]["value"] == rows["fair"][0]["train_loss curve"]["value"]


def test_pictures_stand_in_with_words(folder):
    (folder / "deep-paper-figure1-fair.png").write_bytes(b"\x89PNG\r\n\x1a\n...IEND\xaeB`\x82")
    png, svg = page_of(folder).images
    assert svg["src"].startswith("data:image/svg+xml;base64,")
    assert png["src"].startswith("data:image/png;base64,")
    for word in ("Figure 5", "T = 10; T = 20", "f(wt) − f* against iteration t", "PSG, last"):
        assert word in svg["alt"]
    assert "fair" in png["alt"]
    html = (folder / "page" / "index.html").read_text(encoding="utf-8")
    assert html.count('<details class="still" open>') == 2  # a script closes it, if one runs


def test_without_plotly_there_are_pictures_and_a_word(folder, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "plotly", None)
    page = page_of(folder)
    assert "Static figures only" in page.text
    assert not page.scripts
    assert not page.data
    assert len(page.images) == 1
    assert "There is no picture of it" in page.text
    assert "script-src 'none'" in page.metas[1]["content"]


def test_what_comes_from_a_file_is_escaped(folder):
    content = made.claims()
    for key in ("statement", "remark"):
        content["claims"][0][key] = made.HOSTILE
    content["claims"][0]["findings"][0]["what"] = made.HOSTILE
    content["environment"][made.HOSTILE] = [made.HOSTILE]
    (folder / "claims.json").write_text(to_json(content))
    (folder / f"deep-{made.HOSTILE.replace('/', '')}.json").write_text(to_json(made.deep()))
    path = report.write_report(folder, folder / "page")
    html = path.read_text(encoding="utf-8")
    assert "<script>window" not in html
    assert "<img src=x" not in html
    page = Page(html)
    assert len(page.scripts) == 2
    assert page.text.count(made.HOSTILE) >= 4
    figure5 = next(chart for chart in map(json.loads, page.data) if "T = 10" in chart["says"])
    assert figure5["curves"][1]["label"] == made.HOSTILE


def test_the_page_may_fetch_nothing_and_run_only_its_scripts(folder):
    page = page_of(folder)
    (policy,) = (meta["content"] for meta in page.metas if "http-equiv" in meta)
    assert policy.startswith("default-src 'none'; img-src data:;")
    digests = re.findall(r"'sha256-[^']+'", policy)
    assert digests == [f"'sha256-{report._digest(script)}'" for script in page.scripts]
    html = (folder / "page" / "index.html").read_text(encoding="utf-8")
    assert not re.search(r'(?:src|href)="(?!data:|#)|url\(|@import', html)


def test_the_same_files_give_the_same_page(folder, tmp_path_factory):
    elsewhere = made.filled(tmp_path_factory.mktemp("elsewhere"))
    one, other = (report.write_report(f, f / "page").read_bytes() for f in (folder, elsewhere))
    assert one == other


def test_the_committed_results(tmp_path):
    page = Page(report.write_report(RESULTS, tmp_path).read_text(encoding="utf-8"))
    judged = read_json(RESULTS / "claims.json")["claims"]
    for claim in judged:
        assert claim["statement"] in page.text
    for path in RESULTS.glob("*.json"):
        assert path.name in page.text
    rows = result_tables.projection(read_json(RESULTS / "projection.json"))[1]
    assert all(row[1] in page.text for row in rows)
    assert str(RESULTS) not in page.text


def test_nothing_to_report(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no results; `adahb reproduce quick --out"):
        report.write_report(tmp_path / "nowhere", tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["claims.json", "figure5.json", "convex.json", "deep-paper.json"])
def test_a_file_cut_short_is_named_and_the_old_page_stays(folder, name):
    before = report.write_report(folder, folder / "page").read_bytes()
    text = (folder / name).read_text()
    (folder / name).write_text(text[: len(text) // 2])
    with pytest.raises(ValueError, match=rf"{name} is not a whole JSON file.*delete it and run"):
        report.write_report(folder, folder / "page")
    assert (folder / "page" / "index.html").read_bytes() == before


@pytest.mark.parametrize("name", ["claims", "figure5", "convex", "deep-paper"])
def test_a_file_of_another_shape_never_ends_in_a_traceback(folder, name):
    path = folder / f"{name}.json"
    content = read_json(path)
    broken = [[], 3, {}, *({**content, key: value} for key in content for value in (3, [3], None))]
    if "panels" in content:
        content["panels"][0]["curves"][0]["value"].pop()
        broken.append(content)
    said = []
    for each in broken:
        path.write_text(json.dumps(each))
        said.append(refusal(folder))
    named = [re.search(rf"{name}.json does not hold .* make it anew with: adahb", s) for s in said]
    assert all(bool(found) == bool(words) for found, words in zip(named, said, strict=True))
    assert said.count("") <= 2  # a file without an environment can still be shown


def refusal(folder):
    """Why no page is made of the folder, or nothing."""
    try:
        report.write_report(folder, folder / "page")
    except ValueError as error:
        return str(error)
    return ""


def test_every_kind_of_file_of_another_shape_is_named(tmp_path):
    for kind in KINDS:
        name = kind.pattern.replace("*", "x")
        (tmp_path / name).write_text('{"settings": [3], "cases": [3], "steps": [3]}')
        with pytest.raises(ValueError, match=f"{name} does not hold what its name says"):
            report.write_report(tmp_path, tmp_path)
        (tmp_path / name).unlink()


def test_a_picture_cut_short_is_named(folder):
    (folder / "figure5.svg").write_bytes(made.SVG[:-9])
    with pytest.raises(ValueError, match=r"^\S*figure5\.svg is not a whole picture"):
        report.write_report(folder, folder / "page")


SVG = "<svg xmlns='http://www.w3.org/2000/svg' xmlns:xlink='http://www.w3.org/1999/xlink'>{}</svg>"
PARTS = {
    "script": "<script>alert(1)</script>",
    "prefix": "<x:script xmlns:x='http://www.w3.org/2000/svg'/>",
    "foreign": "<foreignObject><body xmlns='http://www.w3.org/1999/xhtml'/></foreignObject>",
    "onload": "<g onload='alert(1)'/>",
    "capitals": "<g ONCLICK='alert(1)'/>",
    "link": "<a xlink:href='javascript:alert(1)'><path/></a>",
    "elsewhere": "<image xlink:href='https://example.org/x.png'/>",
    "nested": "<image href='data:image/svg+xml,x'/>",
    "set": "<set attributeName='href' to='javascript:alert(1)'/>",
    "cut": "<g>",
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_a_drawing_that_does_something_is_refused(folder, part):
    (folder / "figure5.svg").write_text(SVG.format(part))
    with pytest.raises(ValueError, match=r"figure5\.svg is not a whole picture, or more than a"):
        report.write_report(folder, folder / "page")


def test_pictures_that_are_none(folder):
    (folder / "figure5.svg").write_text("<!DOCTYPE x [<!ENTITY a 'aa'>]>" + SVG.format("&a;"))
    with pytest.raises(ValueError, match=r"figure5\.svg is not a whole picture"):
        report.write_report(folder, folder / "page")
    (folder / "figure5.svg").write_text(SVG.format("<use xlink:href='#a'/><path id='a'/>"))
    report.write_report(folder, folder / "page")
    (folder / "convex.png").write_bytes(b"<script>alert(1)</script>IEND\xaeB`\x82")
    with pytest.raises(ValueError, match=r"convex\.png is not a whole picture"):
        report.write_report(folder, folder / "page")


def test_names_of_files_are_no_words_for_a_shell_and_may_be_no_text(folder):
    names = (b"deep-x; touch y.json", b"deep-'<b>$(z)\xff.json")
    for name in names:
        (folder / os.fsdecode(name)).write_text(to_json(made.deep()))
    page = page_of(folder)
    assert "--preset 'x; touch y' --data" in page.text
    assert r"""--preset ''"'"'<b>$(z)\xff' --data""" in page.text
    assert "b" not in {tag for tag, _ in page.open}


HOSTILE_VALUES = (None, True, 3, 10**400, "", "javascript:alert(1)", [], {}, [[]], {"": None})


@pytest.mark.parametrize("name", ["claims", "figure5", "convex", "deep-paper"])
def test_a_hostile_value_anywhere_is_shown_as_text_or_named(folder, name):
    """Every value of a file in turn: the page is made, or the error names the file."""
    content = read_json(folder / f"{name}.json")
    for count, place in enumerate(places(content)):
        changed = with_value(content, place, HOSTILE_VALUES[count % len(HOSTILE_VALUES)])
        (folder / f"{name}.json").write_text(json.dumps(changed))
        words = refusal(folder)
        assert not words or f"{name}.json does not hold" in words, (place, words)


def places(value, path=()):
    """Where values are, the first of each list standing for the others."""
    inner = value.items() if isinstance(value, dict) else enumerate(value[:1])
    for key, item in inner:
        yield (*path, key)
        if isinstance(item, dict | list):
            yield from places(item, (*path, key))


def with_value(content, place, value):
    copied = json.loads(json.dumps(content))
    *before, last = place
    inner = copied
    for key in before:
        inner = inner[key]
    inner[last] = value
    return copied


def test_steps_that_are_no_object(tmp_path):
    (tmp_path / "step-x.json").write_text("3")
    with pytest.raises(ValueError, match=r"step-x\.json does not hold what its name says"):
        report.write_report(tmp_path, tmp_path)
