"""What a type checker says of a user's script: nothing, or the lines that are wrong."""

from pathlib import Path

import pytest

import adahb

SCRIPT = Path(__file__).with_name("users_script.py")
MISTAKES = {
    "AdaHB([], learning_rate=1)": 'Unexpected keyword argument "learning_rate" for "AdaHB"',
    "AdaHB([], form='printed')": 'Argument "form" to "AdaHB" has incompatible type',
    "L1Ball('2')": 'Argument 1 to "L1Ball" has incompatible type "str"',
    "HeavyBallClassifier(constraint=2)": 'Argument "constraint" to "HeavyBallClassifier"',
    "record(AdaHB([]), to=print, every='day')": 'Argument "every" to "record"',
    "adahb.reference.adahb(1, 2, alpha=3)": 'Argument 1 to "adahb" has incompatible type "int"',
    "adahb.schedules.AdaHB()": 'Missing named argument "alpha"',
}


@pytest.fixture(scope="module")
def mypy(bare_environment, pytestconfig):
    """Check a file strictly, with adahb among the installed packages; return what is said."""
    api = pytest.importorskip("mypy.api")
    python = bare_environment(Path(adahb.__file__).parents[1])
    cache = pytestconfig.cache.mkdir("mypy")  # torch takes twenty seconds, the first time

    def check(path):
        options = ["--python-executable", str(python), "--config-file="]
        said, crashed, _ = api.run(["--strict", "--cache-dir", str(cache), *options, str(path)])
        assert not crashed
        return said.splitlines()

    return check


def test_every_door_is_typed(mypy):
    assert mypy(SCRIPT) == ["Success: no issues found in 1 source file"]


def test_mistakes_are_found_in_their_lines(mypy, tmp_path):
    script = tmp_path / "mistaken.py"
    script.write_text(SCRIPT.read_text(encoding="utf-8") + "\n".join(["", *MISTAKES, ""]))
    errors = [line for line in mypy(script) if ": error: " in line]
    first = len(SCRIPT.read_text(encoding="utf-8").splitlines()) + 2
    for number, (line, message) in enumerate(zip(errors, MISTAKES.values(), strict=True), first):
        assert f":{number}: error: {message}" in line
