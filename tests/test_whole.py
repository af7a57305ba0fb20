"""What Ctrl-C must not leave half done."""

import signal
import threading

import pytest

from adahb._whole import Whole


def interrupt():
    signal.raise_signal(signal.SIGINT)


def test_it_takes_effect_at_the_end():
    done = []

    def work():
        with Whole():
            interrupt()
            done.append(1)
            with Whole():
                interrupt()
            done.append(2)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == [1, 2]


def test_the_handler_is_put_back_whatever_happens():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ValueError, match="inside"), Whole():
        raise ValueError("inside")
    assert signal.getsignal(signal.SIGINT) is before

    def work():
        with Whole():
            interrupt()
            raise ValueError("inside")

    with pytest.raises(KeyboardInterrupt) as caught:
        work()
    assert isinstance(caught.value.__context__, ValueError)
    assert signal.getsignal(signal.SIGINT) is before


def test_the_handler_is_the_users():
    came = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        with Whole():
            interrupt()
            assert not came
        assert came == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_what_is_no_function_stays(handler):
    before = signal.signal(signal.SIGINT, handler)
    try:
        with Whole():
            assert signal.getsignal(signal.SIGINT) == handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_have_nothing_to_do():
    before, inside = signal.getsignal(signal.SIGINT), []

    def work():
        with Whole():
            inside.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert inside == [before]
