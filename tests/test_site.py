"""The documentation site builds strictly, is whole, and fetches nothing."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import adahb
from adahb import schedules
from adahb.experiments.errata import ERRATA

pytest.importorskip("mkdocs")
pytest.importorskip("material")
pytest.importorskip("mkdocstrings")
ROOT = Path(__file__).resolve().parent.parent


class Page(HTMLParser):
    """The links, the anchors, what is fetched, and the text of a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors, self.fetched, self.text = [], set(), [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.anchors.update(attrs[key] for key in ("id", "name") if attrs.get(key))
        if tag == "a" and attrs.get("href"):
            self.links.append(attrs["href"])
        elif attrs.get("src") or (tag == "link" and attrs.get("href")):
            self.fetched.append(attrs.get("src") or attrs["href"])

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Every page by its path; a warning fails the build."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        check=False,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html")}
    return {path.relative_to(folder).as_posix(): (path, page) for path, page in pages.items()}


def test_no_link_is_broken(site):
    pages = dict(site.values())
    broken = []
    for path, page in pages.items():
        for link in page.links + page.fetched:
            parts = urlsplit(link)
            if parts.scheme or path.name == "404.html":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchors = pages[target].anchors | {""} if target in pages else {""}
            if not target.is_file() or unquote(parts.fragment) not in anchors:
                broken.append(f"{path.name}: {link}")
    assert not broken


def test_nothing_is_fetched_from_elsewhere(site):
    for path, page in site.values():
        assert not [url for url in page.fetched if urlsplit(url).netloc], path
    folder = site["index.html"][0].parent
    styles = [path for path in folder.rglob("*.css") if path.is_file()]
    assert styles
    for path in styles:
        assert not re.search(r"url\(['\"]?(https?:)?//", path.read_text(encoding="utf-8")), path


def test_the_guarantees_table_has_every_schedule(site):
    text = site["guarantees.html"][1].text
    source = Path(schedules.__file__).read_text(encoding="utf-8")
    names = set(re.findall(r"^class (\w+)\((?:\w+, )*(?:Schedule|Adaptive|HB\w*)", source, re.M))
    assert len(names) >= 7
    for name in names - {"Adaptive"}:
        assert re.search(rf"^{name}$", text, re.M), name
    assert "Theorem 5 of the paper" in text


def test_each_erratum_has_its_counterexample(site):
    text = site["errata.html"][1].text
    source = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    for erratum in ERRATA:
        for said in (erratum.title, erratum.problem, erratum.remedy):
            assert said in text
        assert all(claim in text for claim in erratum.shown_by)
        section = source.split(f"<!-- /erratum {erratum.title} -->")[1].split("<!-- erratum")[0]
        assert ">>> " in section, erratum.title


def test_every_written_page_and_every_room_is_in_the_nav(site):
    folder = site["index.html"][0].parent
    index = site["index.html"][1].links
    written = {
        path.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        for path in (ROOT / "docs").rglob("*.md")
    }
    linked = {(folder / link).resolve() for link in index if not urlsplit(link).scheme}
    for page in written:
        assert (folder / page).resolve() in linked, page
    for room in adahb._ROOMS:
        assert f"api/{room}.html" in site


def test_the_api_is_told_from_docstrings(site):
    optim = site["api/optim.html"][1]
    assert "adahb.optim.AdaHB" in optim.anchors
    assert "averaged_parameters" in optim.text  # of the base class
    assert ":class:" not in "".join(page.text for _, page in site.values())
