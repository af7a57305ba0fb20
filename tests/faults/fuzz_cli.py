"""What is fuzzed of the command line: all that happens before the work would begin."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import Any

import typer
from experiments import result_folder as made

from adahb import cli
from adahb.data import files
from adahb.experiments import (
    bench_linear,
    bench_projection,
    bench_step,
    commands,
    printed,  # noqa: F401 - loaded late, it would look like a leak
    report,
)

from .fuzz import Choices, Target

RIGHT, REFUSED = "right answer", "clear error"
COMMANDS = (
    *(["reproduce", name] for name in ("synthetic", "convex", "quick", "digits", "deep")),
    *(["bench", name] for name in ("projection", "step", "linear")),
    *(["claims"], ["report"], ["reproduce", "synthetic", "--out", "o"], ["claims", "--out", "o"]),
    *(["report", "--results", "good", "--out", "o"], ["reproduce", "deep", "--out", "o"]),
    *(
        ["reproduce", "convex", "--out", "o", "--sets", "digits"],
        ["bench", "linear", "--sets", "digits"],
    ),
)
ODD = (["--version"], ["bench"], ["reproduce"], [], ["spam"], ["reproduce", "spam"], ["--help"])
OPTIONS = (
    *("--out", "--T", "--c", "--jobs", "--data", "--sets", "--repeats", "--epochs", "--backend"),
    *("--scheduler", "--grid", "--forms", "--precision", "--preset", "--device", "--budget"),
    *("--whole", "--results", "--json", "--d", "--scale", "--partial", "--parts", "--limit"),
    *("--version", "-", "--", "-x", "--spam", "--out=", "--T=", "--jobs=", "--=", "---"),
)
VALUES = (
    *(
        "",
        " ",
        "0",
        "1",
        "2",
        "-1",
        "7",
        "1000001",
        "9" * 30,
        "9" * 5000,
        "1e400",
        "nan",
        "-inf",
        "inf",
    ),
    *("0.5", "1_0", "0x10", "1,2", "1,,2", ",", "5,x", "٣", "²", "1 2", "true", "None", "digits"),
    *("breast_cancer", "a9a", "covtype,digits", "cpu", "cuda", "quick", "paper", "modern", "loky"),
    *(
        "dask",
        "tcp://host:1",
        "://",
        "tcp://",
        "steps",
        "auto,memory",
        "spam",
        "good",
        "bad",
        "file",
    ),
    *(
        "../x",
        "/",
        "/dev/null",
        "/proc/self",
        "~",
        "~nobody",
        "x" * 300,
        "[/bold]",
        "[red]x",
        ":boom:",
    ),
    *(
        "\udcff",
        "\ud800",
        "é" * 50,
        "\u202e",
        "\x1b[2J",
        "\n",
        "\x00",
        "$(x)",
        "; rm",
        "'\"",
        "<script>",
    ),
    *("%s%n", "{0}", "{x!r}", "--out", "-5", "--", "a/b/c/../..", "\\\\x\\y", "con"),
)
WHOLE = 500
"""One of so many is run as the script runs it, with all that it prints."""


class Started(BaseException):
    """The work would begin here."""


def _start(*_: Any, **__: Any) -> Any:
    raise Started


def _no_network(*arguments: Any, **_: Any) -> Any:
    raise FileNotFoundError(f"{arguments[0]} is not here")


def cli_target(folder: Path) -> Target:
    home = folder / "a" / "b"
    for name in ("good", "bad", "[/bold]"):
        (home / name).mkdir(parents=True, exist_ok=True)
    made.filled(home / "good")
    made.filled(home / "[/bold]")
    (home / "bad" / "claims.json").write_text('{"claims": [3]}')
    (home / "bad" / "deep-paper.json").write_text('{"claims": [{"id": []}]}')
    (home / "file").write_text("[1]")
    os.chdir(home)
    os.environ.pop("ADAHB_DATA", None)
    for name in ("draw_synthetic", "draw_convex", "train_deep", "train_digits", "compare_forms"):
        setattr(commands, name, _start)
    commands.compare_precisions = _start
    commands.claims.judge = _start
    files.download = _no_network
    report.write_whole = bench_projection._without_simd = bench_step._machine = _start
    bench_linear.machine = _start
    for arguments in (["claims", "--out", "o"], ["report", "--results", "good", "--out", "o"]):
        _Attempt()._printed(arguments)  # loads what is loaded late
    return Target(_Attempt())


class _Attempt:
    def __init__(self) -> None:
        self.command = typer.main.get_command(cli.app)

    def __call__(self, data: bytes) -> str:
        choose = Choices(data)
        arguments = list(choose.pick(COMMANDS) if choose.below(100) else choose.pick(ODD))
        for _ in range(choose.below(7)):
            token = choose.pick(OPTIONS) if choose.below(2) else choose.pick(VALUES)
            if choose.below(8) == 0:
                at = choose.below(len(token) + 1)
                token = token[:at] + choose.pick(VALUES) + token[at + choose.below(3) :]
            arguments.insert(max(1, len(arguments) - choose.below(3)), token)
        return self._printed(arguments) if choose.below(WHOLE) == 0 else self._parsed(arguments)

    def _parsed(self, arguments: list[str]) -> str:
        """As far as the work, without what is printed, which would take most of the time."""
        printing, cli.stderr.print = cli.stderr.print, lambda *_, **__: None
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                self.command.main(arguments, prog_name="adahb", standalone_mode=False)
        except Started:
            return RIGHT
        except Exception as refusal:
            error = refusal
        else:
            return RIGHT
        finally:
            cli.stderr.print = printing
        code, said = getattr(error, "exit_code", None), str(error)
        if code is not None:  # what typer says, with a code of its own
            assert code in (0, 1, 2), repr(error)
            return REFUSED if code else RIGHT
        assert isinstance(error, ValueError | TypeError | OSError), repr(error)
        assert len(said) > 20, f"not clear: {error!r}"
        assert not isinstance(error, TypeError) or "must" in said, f"not clear: {error!r}"
        return REFUSED

    def _printed(self, arguments: list[str]) -> str:
        """The whole command: no code but 0, 1 and 2, and never a traceback."""
        kept = sys.argv, sys.stdout, sys.stderr
        streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)]
        sys.argv, (sys.stdout, sys.stderr) = ["adahb", *arguments], streams
        code: Any = 0
        try:
            cli.main()
        except SystemExit as end:
            code = end.code or 0
        except Started:
            pass
        finally:
            sys.argv, sys.stdout, sys.stderr = kept
        assert code in (0, 1, 2), code
        out, errors = (stream.buffer.getvalue() for stream in streams if not stream.flush())
        assert b"Traceback" not in out + errors
        assert not code or errors.strip() or out.strip(), f"{code} without a word"
        return REFUSED if code else RIGHT
