"""What MkDocs calls while it builds the site: generated pages, filled places, links, the nav.

The pages in docs/ are written to be read in the repository too.  Here their links out of docs/ are
led to copies inside of the site, and places `<!-- name -->` that the page leaves empty are filled.
"""

from __future__ import annotations

import logging
import posixpath
import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pages
from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(?P<text>!?\[[^\]]*\])\((?P<target>(?:\.\./)+[^)#\s]+)(?P<anchor>#[^)]*)?\)")
EMPTY = re.compile(r"<!-- (?P<name>[^/][^>]*?) -->\s*<!-- /(?P=name) -->")
SESSION = re.compile(r"^```python\n(?=>>> )", re.MULTILINE)
LAST_LINE = re.compile(r"^(```pycon\n(?:(?!```).*\n)*?)\n+```$", re.MULTILINE)
log = logging.getLogger("mkdocs.hooks.adahb")
_generated: dict[str, str] = {}
_external: dict[str, set[str]] = defaultdict(set)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Make the nav: without pages that are not there, with all that are."""
    docs = Path(config.docs_dir)
    written = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    _generated.clear()
    _generated.update(pages.generated(ROOT))
    _external.clear()
    nav = _existing(config.nav, written | set(_generated))
    (how_to,) = (section["How to"] for section in nav if "How to" in section)
    how_to += sorted(written - set(_leaves(nav)))
    config.nav = nav
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and the results that pages show or link to."""
    for name, content in _generated.items():
        files.append(File.generated(config, name, content=content))
    for path in pages.results(ROOT):
        files.append(
            File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path))
        )
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Fill empty places, lead links that leave docs/ to their copies, mark up sessions."""
    source = page.file.src_uri
    markdown = EMPTY.sub(lambda place: pages.filled(place["name"], ROOT), markdown)
    markdown = LINK.sub(lambda link: _inside(link, source), markdown)
    return LAST_LINE.sub(r"\1```", SESSION.sub("```pycon\n", markdown))


def on_page_content(html: str, page: Page, **_: Any) -> str:
    """Take note of the links that leave the site."""
    for link in re.findall(r'href="(https?://[^"]+)"', html):
        _external[link].add(page.file.src_uri)
    return html


def on_post_build(**_: Any) -> None:
    """List the links that leave the site, which nothing follows here."""
    for link, sources in sorted(_external.items()):
        log.info("external, not checked: %s (%s)", link, ", ".join(sorted(sources)))


def _inside(link: re.Match[str], source: str) -> str:
    """A link out of docs/ led to the copy of its target; without a link, where none is measured."""
    folder = posixpath.dirname(source)
    target = posixpath.normpath(posixpath.join("docs", folder, link["target"]))
    if target.startswith("docs/"):
        return link[0]
    if target.startswith("results/") and not (ROOT / target).is_file():
        return f"<em>{link['text'].strip('![]')} (not measured yet)</em>"
    copy = posixpath.relpath(pages.place(target), folder or ".")
    return f"{link['text']}({copy}{link['anchor'] or ''})"


def _existing(entry: Any, there: set[str]) -> Any:
    """The part of the nav that there are pages for; a folder stands for the pages in it."""
    if isinstance(entry, list):
        return [kept for each in entry if (kept := _existing(each, there))]
    if isinstance(entry, dict):
        ((title, content),) = entry.items()
        kept = _existing(content, there)
        return {title: kept} if kept else None
    if entry.endswith("/"):
        return sorted((n for n in there if n.startswith(entry)), key=pages.index_first)
    return entry if entry in there else None


def _leaves(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    children = nav.values() if isinstance(nav, dict) else nav
    return [leaf for child in children for leaf in _leaves(child)]
