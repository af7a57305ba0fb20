"""Ctrl-C and SIGTERM: one word, one code, and nothing cut in two."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from adahb import _stopping
from adahb._stopping import CTRL_C, Interrupted, held_back, stoppable


def send(number):
    os.kill(os.getpid(), number)


def stopped(work):
    """How work ends that is sent signals."""
    with pytest.raises(Interrupted) as end:
        stoppable()(work)()
    return end.value


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, CTRL_C), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_block_with_its_code(number, code):
    before, steps = signal.getsignal(number), []

    def work():
        steps.append("before")
        send(number)
        steps.append("after")

    end = stopped(work)
    assert end.code == code
    assert "the same command goes on from there" in str(end)
    assert steps == ["before"]
    assert signal.getsignal(number) is before


def test_what_a_library_makes_of_it_is_it_all_the_same():
    def work():
        try:
            send(signal.SIGTERM)
        except Interrupted as error:
            raise ImportError("numpy failed to import") from error

    assert stopped(work).code == 143


def test_without_a_signal_errors_are_what_they_are():
    with pytest.raises(ImportError, match="none"), stoppable():
        raise ImportError("none")


@pytest.mark.parametrize(("same", "cleaned"), [(60.0, ["begun", "done"]), (0.0, ["begun"])])
def test_a_signal_sent_twice_is_one_and_a_later_one_is_another(monkeypatch, same, cleaned):
    monkeypatch.setattr(_stopping, "_SAME", same)
    steps = []

    def work():
        try:
            send(signal.SIGTERM)
        finally:
            steps.append("begun")
            send(signal.SIGTERM)
            steps.append("done")

    assert stopped(work).code == 143
    assert steps == cleaned


@pytest.mark.parametrize("others", [False, True])
def test_held_back_it_comes_at_the_end_of_the_block(others):
    """Whichever thread the system gives the signal to."""
    steps, enough = [], threading.Event()
    if others:
        threading.Thread(target=enough.wait, daemon=True).start()

    def work():
        with held_back():
            with held_back():
                send(signal.SIGINT)
            steps.append("inside")
        steps.append("outside")

    assert stopped(work).code == CTRL_C
    assert steps == ["inside"]
    enough.set()


def test_a_signal_that_comes_just_before_leaves_nothing_held_back(monkeypatch):
    mask = signal.pthread_sigmask

    def late(how, signals):
        before = mask(how, signals)
        if signals is _stopping.SIGNALS:
            raise KeyboardInterrupt
        return before

    monkeypatch.setattr(signal, "pthread_sigmask", late)
    with pytest.raises(KeyboardInterrupt), held_back():
        pytest.fail("went on")
    assert not mask(signal.SIG_BLOCK, ())


def test_a_child_begun_while_it_is_held_back_holds_it_back():
    program = "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    with held_back():
        held = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert "SIGINT" in held
    assert "SIGTERM" in held
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_what_is_ignored_stays_so():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stoppable():
            send(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_have_no_handlers():
    errors = []

    def work():
        try:
            with stoppable(), held_back():
                pass
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not errors
