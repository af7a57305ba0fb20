"""The command: what it writes, what it says, and the code it ends with."""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from adahb import cli
from adahb.experiments import backends, commands, report, result_tables, store, synthetic
from adahb.experiments.errata import ERRATA
from adahb.experiments.findings import Claim, Estimate, Finding, exact
from adahb.experiments.store import read_json, to_json


@pytest.fixture
def adahb(monkeypatch, capfd):
    """Call the command as its script does; return its exit code, output and errors."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["adahb", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            sys.exit(cli.main())
        captured = capfd.readouterr()
        return end.value.code or 0, captured.out, captured.err

    return call


CLAIMS = [
    Claim("C1", "one & <two>", [Finding("x", exact(0.5), at_most=1.0)]),
    Claim("C2 HB", "bad", [Finding("y", Estimate(2.0, 1.5, 2.5), at_most=1.0)], "why"),
    Claim("C4 HB", "open", [Finding("z", Estimate(1.0, 0.5, float("inf")), at_most=1.0)]),
]


@pytest.fixture
def judged(monkeypatch):
    """Claims that need no runs, one for each verdict."""
    monkeypatch.setattr(commands.claims, "judge", lambda *_, **__: CLAIMS)


def test_reproduce_synthetic(adahb, tmp_path):
    out = tmp_path / "deep" / "out"
    code, printed, _ = adahb("reproduce", "synthetic", "--out", out, "--T", "40", "--T", "60,50")
    assert code == 0
    names = {"figure5.png", "figure5.svg", "figure5.json"}
    assert {path.name for path in out.iterdir()} == names | {"runs"}
    assert {Path(line).name for line in printed.split()} == names
    assert (out / "figure5.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (out / "figure5.svg").read_bytes()
    data = read_json(out / "figure5.json")
    assert [panel["T"] for panel in data["panels"]] == [40, 60, 50]
    for panel in data["panels"]:
        assert panel["step"][-1] == panel["T"]
        assert len(panel["curves"]) == len(synthetic.curves(40))
        for curve in panel["curves"]:
            assert len(curve["value"]) == len(panel["step"])
            assert curve["value"][0] == 0.0


def test_the_figures_bytes_are_the_same_again(adahb, tmp_path):
    for folder in ("a", "b"):
        assert adahb("reproduce", "synthetic", "--out", tmp_path / folder, "--T", "30")[0] == 0
    for kind in ("png", "svg", "json"):
        first, second = ((tmp_path / f / f"figure5.{kind}").read_bytes() for f in ("a", "b"))
        assert first == second


def test_known_values_in_the_figures_data(adahb, tmp_path):
    adahb("reproduce", "synthetic", "--out", tmp_path, "--T", "1000")
    (panel,) = read_json(tmp_path / "figure5.json")["panels"]
    last = {curve["label"]: curve["value"][-1] for curve in panel["curves"]}
    assert last["PSG, last"] == pytest.approx(0.00503, abs=1e-5)
    assert last["HB"] == pytest.approx(0.00327, abs=1e-5)
    assert last["HB, averaging form"] == pytest.approx(0.00265, abs=1e-5)
    assert last["AdaHB as printed"] == pytest.approx(0.00381, abs=1e-5)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--T", "0"), 2, "--T takes whole numbers from 1 to 1000000, got '0'"),
        (("--T", "1" + 20 * "0"), 2, "--T takes whole numbers from 1 to 1000000, got '1000"),
        (("--T", 5000 * "9"), 2, "--T takes whole numbers from 1 to 1000000, got '999"),
        (("--T", "10,x"), 2, "got '10,x'"),
        (("--T", "1.5"), 2, "got '1.5'"),
        (("--T", "10", "--c", "0.5"), 1, "c must be a number in [1, inf), got 0.5"),
        (("--T", "10", "--c", "nan"), 1, "c must be a number in [1, inf), got nan"),
        (("--T", "10", "--jobs", "0"), 2, "'--jobs'"),
    ],
)
def test_bad_arguments_write_nothing(adahb, tmp_path, arguments, code, message):
    found, _, errors = adahb("reproduce", "synthetic", "--out", tmp_path / "o", *arguments)
    assert found == code
    assert message in re.sub(r"[│\s]+", " ", errors)
    assert not (tmp_path / "o").exists()


def test_a_folder_that_is_a_file(adahb, tmp_path):
    (tmp_path / "o").write_text("mine")
    code, _, errors = adahb("reproduce", "synthetic", "--out", tmp_path / "o", "--T", "10")
    assert code == 1
    assert "error:" in errors
    assert (tmp_path / "o").read_text() == "mine"


def test_a_missing_extra_is_missed_before_the_runs(adahb, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, errors = adahb("reproduce", "synthetic", "--out", tmp_path / "o", "--T", "10")
    assert code == 1
    assert "pip install 'adahb[experiments]'" in errors
    assert not (tmp_path / "o").exists()


def test_quick_needs_no_data_and_judges_last(adahb, tmp_path, monkeypatch):
    called = {}

    def note(name, *returned):
        def noting(*arguments, **options):
            called[name] = (*arguments, options)
            path = [tmp_path / name]
            return (*returned, path) if returned else path

        return noting

    monkeypatch.setattr(commands, "draw_synthetic", note("draw_synthetic"))
    monkeypatch.setattr(commands, "draw_convex", note("draw_convex"))
    monkeypatch.setattr(commands, "train_deep", note("train_deep", {}))
    monkeypatch.setattr(commands, "judge_claims", note("judge_claims", []))
    monkeypatch.setattr(report, "write_report", lambda *_: tmp_path / "page")
    monkeypatch.setenv("ADAHB_DATA", "/nowhere")
    code, printed, said = adahb("reproduce", "quick", "--out", tmp_path, "--jobs", "1")
    assert code == 0
    assert list(called) == ["draw_synthetic", "draw_convex", "train_deep", "judge_claims"]
    assert [Path(line).name for line in printed.split()[-5:]] == [*called, "page"]
    problems, cells = called["draw_convex"][1], called["train_deep"][1]
    assert called["judge_claims"][1] == problems
    assert {problem.home for problem in problems} == {cell.home for cell in cells} == {None}
    assert {problem.dataset for problem in problems} == {"breast_cancer", "digits"}
    assert {cell.dataset for cell in cells} == {"digits"}
    assert "4 of 4" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--backend", "slurm"), "--backend takes loky or dask, got 'slurm'"),
        (("--backend", "dask"), "--backend dask and --scheduler ADDRESS belong together"),
        (("--scheduler", "tcp://a:1"), "--backend dask and --scheduler ADDRESS belong together"),
    ],
)
def test_backends_are_checked(adahb, tmp_path, arguments, message):
    code, _, errors = adahb("reproduce", "deep", "--out", tmp_path / "o", *arguments)
    assert code == 2
    assert message in re.sub(r"[│\s]+", " ", errors)
    assert not (tmp_path / "o").exists()


def test_a_cluster_that_is_not_there(adahb, tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(backends.Dask.__init__, "__defaults__", (0.5,))
    cluster = ("--backend", "dask", "--scheduler", "tcp://127.0.0.1:1")
    code, _, errors = adahb("reproduce", "deep", "--out", tmp_path / "o", *cluster)
    assert code == 1
    assert "error: no dask scheduler answers at 'tcp://127.0.0.1:1'" in errors.replace("\n", " ")
    assert not (tmp_path / "o").exists()


def test_claims(adahb, tmp_path, judged):
    code, printed, _ = adahb("claims", "--out", tmp_path)
    assert code == 0
    for word in ("supported", "not supported", "undecided", "not measured"):
        assert word in printed
    for name in ("C5", "C6", "C7"):
        command = f"adahb reproduce deep --preset paper --data DATA --out {tmp_path}"
        assert f"{name}: measured by: {command}" in printed
    kept = read_json(tmp_path / "claims.json")
    assert [claim["verdict"] for claim in kept["claims"]] == [
        "supported",
        "not supported",
        "undecided",
    ]
    assert kept["claims"][0]["findings"][0] == {
        "what": "x",
        "estimate": {"value": 0.5, "low": 0.5, "high": 0.5},
        "at_least": None,
        "at_most": 1.0,
        "range": "at most 1",
        "verdict": "supported",
    }
    assert kept["environment"]["numpy"]


def test_claims_about_networks_come_from_the_folder(adahb, tmp_path, judged):
    c5, c6 = (Claim(k, f"{k} said", [Finding("x", exact(0.5), at_most=1.0)]) for k in ("C5", "C6"))
    for preset, claims in (("quick", [c5, c6]), ("paper", [replace(c5, statement="on CIFAR")])):
        content = {"claims": [claim.plain() for claim in claims]}
        (tmp_path / f"deep-{preset}.json").write_text(to_json(content))
    code, printed, _ = adahb("claims", "--out", tmp_path)
    assert code == 0
    table = printed[printed.index("The claims") :]
    places = [table.index(word) for word in ("C1", "C2 HB", "C4 HB", "C5", "C6", "C7")]
    assert places == sorted(places)
    assert "on CIFAR" in table
    assert "C6 said" in table
    assert "C5 said" not in table
    assert table.count("not measured") == 1
    assert "C7: measured by: adahb reproduce deep" in table
    (tmp_path / "deep-quick.json").write_text('{"claims": [{"id": "C5"}]}')
    code, _, errors = adahb("claims", "--out", tmp_path)
    assert code == 1
    assert "deep-quick.json does not hold what its name says" in errors.replace("\n", "")


def test_forms(adahb, tmp_path, monkeypatch):
    measured = read_json(Path(__file__).parents[2] / "results" / "forms.json")
    written = tmp_path / "forms.json"
    monkeypatch.setattr(commands, "compare_forms", lambda *_, **__: (measured, [written]))
    code, printed, _ = adahb("reproduce", "digits", "--out", tmp_path, "--forms")
    assert code == 0
    assert printed.count("averaging") == printed.count("paper") == 10
    assert str(written) in printed
    code, _, errors = adahb("reproduce", "digits", "--out", tmp_path, "--forms", "--grid")
    assert code == 2
    assert "--grid, --forms and --precision exclude each other" in errors


def test_the_report(adahb, tmp_path, judged, monkeypatch):
    monkeypatch.setattr(report, "_plotly", lambda: "/* plotly */")
    adahb("reproduce", "synthetic", "--out", tmp_path, "--T", "20")
    adahb("claims", "--out", tmp_path)
    code, printed, _ = adahb("report", "--results", tmp_path, "--out", tmp_path / "page")
    assert code == 0
    path = tmp_path / "page" / "index.html"
    assert printed.strip() == str(path)
    html = path.read_text(encoding="utf-8")
    assert "one &amp; &lt;two&gt;" in html
    for words in ("✓ supported", "✗ not supported", "? undecided", "1 [0.5, ∞]", "T = 20"):
        assert words in html


def test_a_report_of_nothing(adahb, tmp_path):
    code, _, errors = adahb("report", "--results", tmp_path, "--out", tmp_path)
    assert code == 1
    assert "has no results; `adahb reproduce quick" in errors.replace("\n", " ")


def test_a_report_of_a_damaged_file(adahb, tmp_path):
    (tmp_path / "claims.json").write_text('{"claims": [')
    code, _, errors = adahb("report", "--results", tmp_path, "--out", tmp_path)
    assert code == 1
    assert "claims.json is not a whole JSON file" in errors.replace("\n", " ")


def test_errata_name_claims_that_exist():
    from adahb.experiments.claims import all_parts

    known = {getattr(part, "id", None) for part in all_parts()} | {"C1", "C2 PSG"}
    for erratum in ERRATA:
        assert set(erratum.shown_by) <= known


@pytest.mark.parametrize(("number", "wanted"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_is_said_and_what_is_done_is_kept(
    adahb, tmp_path, monkeypatch, number, wanted
):
    keep, kept = store.Store._keep, []

    def keep_two(self, job, result):
        kept.append(job)
        if len(kept) == 2:
            os.kill(os.getpid(), number)  # while it is being kept
        keep(self, job, result)

    monkeypatch.setattr(store.Store, "_keep", keep_two)
    arguments = ("reproduce", "synthetic", "--out", tmp_path, "--T", "30")
    code, _, errors = adahb(*arguments)
    assert code == wanted
    assert re.search(r"with [23] of 8 runs done", errors)  # the next may come before the signal
    assert {path.name for path in tmp_path.iterdir()} == {"runs"}
    monkeypatch.setattr(store.Store, "_keep", keep)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").iterdir()}
    assert adahb(*arguments)[0] == 0
    assert all(path.stat().st_mtime_ns == when for path, when in before.items())


@pytest.mark.parametrize("kind", ["figure5.json", "claims.json"])
def test_another_number_in_the_data_of_a_figure_is_noticed(adahb, tmp_path, judged, kind):
    adahb("reproduce", "synthetic", "--out", tmp_path, "--T", "20")
    adahb("claims", "--out", tmp_path)
    path = tmp_path / kind
    path.write_text(re.sub(r"(\d\.)\d", r"\g<1>7", path.read_text(), count=1))
    code, _, errors = adahb("report", "--results", tmp_path, "--out", tmp_path)
    assert code == 1
    assert f"{kind} is not as it was written; delete it" in errors.replace("\n", "")


def test_bench_projection(adahb, monkeypatch):
    code, printed, _ = adahb("bench", "projection", "--json", "--d", "2000", "--repeats", "1")
    assert code == 0
    result = json.loads(printed)
    assert result["benchmark"] == "projection"
    assert all(case["seconds"]["ours"]["best"] > 0 for case in result["cases"])


def test_bench_step(adahb, tmp_path, one_thread):
    arguments = ("bench", "step", "--repeats", "1", "--scale", "0.0005")
    code, printed, _ = adahb(*arguments, "--json", "--partial", tmp_path / "part.json")
    assert code == 0
    result = json.loads(printed)
    assert result == json.loads((tmp_path / "part.json").read_text())
    assert [case["tensors"] for case in result["cases"]] == [1, 1, 148, 62, 5]
    code, printed, _ = adahb(*arguments)
    assert code == 0
    assert "AdaHB foreach" in printed
    code, _, said = adahb(*arguments, "--device", "tpu")
    assert code == 1
    assert "device must be one of 'cpu', 'cuda', got 'tpu'" in said


@pytest.mark.parametrize(
    "arguments", [(), ("reproduce",), ("bench",), ("reproduce", "synthetic"), ("claims",)]
)
def test_help_has_an_example(adahb, arguments):
    code, printed, _ = adahb(*arguments, "--help")
    assert code == 0
    assert "adahb" in printed


def test_version_and_unknown_commands(adahb):
    code, printed, _ = adahb("--version")
    assert (code, printed.strip()) == (0, cli.adahb.__version__)
    assert adahb("nonsense")[0] == 2
    assert adahb("claims")[0] == 2


def test_the_script_runs():
    done = subprocess.run(
        [sys.executable, "-m", "adahb", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == cli.adahb.__version__


def test_json_of_claims_is_json():
    assert json.loads(to_json([claim.plain() for claim in CLAIMS], 1))
    assert result_tables.interval({"value": 1.0, "low": 0.5, "high": None}) == "1 [0.5, ∞]"


@pytest.mark.parametrize("name", ["[/bold]", "[red]x", ":boom:", os.fsdecode(b"no \xff text")])
def test_names_are_printed_as_they_are(adahb, tmp_path, monkeypatch, name):
    """Neither markup nor bytes that are no text end in a traceback, or change what is said."""
    out = tmp_path / name
    monkeypatch.setattr(commands, "draw_synthetic", lambda *_, **__: [out / "figure5.png"])
    code, printed, errors = adahb("reproduce", "synthetic", "--out", out)
    shown = name.encode("utf-8", "backslashreplace").decode()
    assert (code, printed) == (0, f"{tmp_path}/{shown}/figure5.png\n"), errors
    code, _, errors = adahb("report", "--results", out, "--out", tmp_path / "page")
    assert code == 1
    assert f"{shown} has no results" in errors


@pytest.mark.parametrize("content", ["[1]", '{"claims": 3}', '{"claims": [{"id": []}]}'])
def test_hostile_claims_are_named(adahb, tmp_path, judged, content):
    (tmp_path / "deep-paper.json").write_text(content)
    code, _, errors = adahb("claims", "--out", tmp_path)
    assert code == 1
    assert "deep-paper.json does not hold what its name says" in errors


@pytest.mark.parametrize("content", ["[1]", '{"steps": [3]}', '{"auto": [{"x": 1}]}'])
def test_a_partial_file_of_something_else_is_named(adahb, tmp_path, content):
    part = tmp_path / "part.json"
    part.write_text(content)
    code, _, errors = adahb("bench", "linear", "--sets", "digits", "--partial", part)
    assert code == 1
    assert "part.json does not hold what its name says" in errors
    assert part.read_text() == content


def test_memory_that_is_not_there_is_one_line(adahb, monkeypatch):
    def greedy(*_):
        raise MemoryError("Unable to allocate 7 EiB")

    monkeypatch.setattr(cli, "_problems", greedy)
    code, _, errors = adahb("bench", "linear")
    assert (code, errors) == (1, "error: Unable to allocate 7 EiB\n")
