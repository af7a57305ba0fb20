"""Docstrings as they are written here, made Markdown for the site.

Roles such as ``:class:`HB` `` become links, doctests become highlighted sessions, and lists of
names with two or more spaces before what they mean become lists.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|meth|mod):`~?([\w.]+)`")
DOCTEST = re.compile(
    r"^(?P<indent> *)>>> .*(?:\n(?P=indent)\S.*|\n(?P=indent) +\S.*)*", re.MULTILINE
)
OPTIMUM = re.compile(r"(?<![\w*`])([fw])\*(?![*`])")
DEFINITION = re.compile(r"^(\w+)  +(\S.*)$", re.MULTILINE)


class Markdown(griffe.Extension):
    """Rewrites every docstring before it is parsed."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Rewrite when all is loaded, so that names can be looked up."""
        self._rewrite(pkg)

    def _rewrite(self, item: griffe.Object) -> None:
        if item.docstring is not None:
            item.docstring.value = markdown(item.docstring.value, item)
        for member in item.members.values():
            if isinstance(member, griffe.Object):
                self._rewrite(member)


def markdown(text: str, item: griffe.Object) -> str:
    """A docstring of ``item`` in Markdown."""
    text = escaped(ROLE.sub(lambda role: _link(role[1], item), text))
    if not item.is_function:
        text = DEFINITION.sub(r"- `\1`: \2", text)
    return DOCTEST.sub(_session, text)


def escaped(text: str) -> str:
    """Text in which f* and w* do not begin an emphasis; code blocks, which are indented, stay."""
    return "\n".join(
        line if line.startswith("    ") else OPTIMUM.sub(r"\1\\*", line)
        for line in text.split("\n")
    )


def _link(name: str, item: griffe.Object) -> str:
    """A cross-reference where the name is one of the package, else code."""
    if name.startswith("adahb."):
        return f"[`{name}`][{name}]"
    try:
        return f"[`{name}`][{item.resolve(name)}]"
    except griffe.NameResolutionError:
        return f"`{name}`"


def _session(doctest: re.Match[str]) -> str:
    indent, text = doctest["indent"], doctest[0]
    return f"{indent}```pycon\n{text}\n{indent}```"
