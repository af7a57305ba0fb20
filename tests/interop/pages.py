"""The page of the documentation, and the examples that belong to it, as programs."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "jax-and-keras.md"


def run_page(heading, **given):
    """Run the blocks under a heading, one after the other; return the names they have made."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    program = "\n".join(re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL))
    exec(compile(program, PAGE.name, "exec"), given)
    return given


def example(name):
    """The module of an example."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
