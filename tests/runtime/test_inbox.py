"""The fleet has one owner; everybody else gets his answer all the same."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from slackwater.errors import SlackwaterError
from slackwater.runtime.inbox import Inbox


def elsewhere(act: Callable[[], object]) -> object:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(act).result(timeout=30)


def test_without_an_owner_everybody_works_for_himself() -> None:
    inbox = Inbox()
    assert inbox.ask(threading.get_ident) == threading.get_ident()
    assert elsewhere(lambda: inbox.ask(threading.get_ident)) != threading.get_ident()
    assert inbox.at_once(lambda: 3) == 3


def test_the_owner_does_what_others_ask_and_they_get_its_answer_or_its_error() -> None:
    woken = threading.Event()
    inbox = Inbox(woken.set)
    with ThreadPoolExecutor(2) as pool, inbox.owned():
        asked = pool.submit(inbox.ask, threading.get_ident)
        failing = pool.submit(inbox.ask, lambda: 1 // 0)
        while not (asked.done() and failing.done()):
            woken.wait(0.1)
            woken.clear()
            inbox.work()
        assert asked.result() == threading.get_ident()
        with pytest.raises(ZeroDivisionError):
            failing.result()
        assert pool.submit(inbox.at_once, lambda: 3).result(timeout=30) is None
        assert inbox.at_once(lambda: 3) == 3


def test_what_is_asked_as_the_owner_leaves_is_done() -> None:
    inbox, done = Inbox(), list[int]()
    with inbox.owned():
        elsewhere(lambda: inbox.post(lambda: done.append(1)))
        assert not done
    assert done == [1]


def test_there_is_one_owner_at_a_time() -> None:
    inbox = Inbox()
    with inbox.owned(), pytest.raises(SlackwaterError, match="running already"), inbox.owned():
        pass
    with inbox.owned():
        pass


def test_a_thread_that_comes_in_by_another_way_is_named() -> None:
    inbox = Inbox()
    inbox.require_owner()
    with inbox.owned():
        inbox.require_owner()
        with pytest.raises(RuntimeError, match=r"ThreadPoolExecutor.* changes the fleet"):
            elsewhere(inbox.require_owner)


def test_many_threads_ask_while_owners_come_and_go() -> None:
    inbox, counted = Inbox(), 0
    asked = 8 * 500

    def count() -> None:
        nonlocal counted
        inbox.require_owner()
        counted += 1  # not atomic: two at once would lose one

    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(inbox.ask, count) for _ in range(asked)]
        while not all(each.done() for each in waiting):
            with inbox.owned():
                inbox.work()
        for each in waiting:
            each.result()
    assert counted == asked
