"""NSQTestMixin, as the tests of a project use it."""

from __future__ import annotations

import unittest

import pytest
from django.db import transaction
from django.test import SimpleTestCase, TestCase

from nsqsmart.contrib.django import publish
from nsqsmart.contrib.django.test import NSQTestMixin, outbox


class Example(NSQTestMixin, TestCase):
    __test__ = False

    def test_published(self):
        with self.captureOnCommitCallbacks(execute=True), transaction.atomic():
            publish("orders", b'{"id": 1}', key="a")
        (found,) = self.assertPublished("orders", contains={"id": 1}, key="a", times=1)
        assert found is self.nsq_outbox[0]
        self.assertNotPublished("log")
        self.assertNotPublished("orders", contains={"id": 2})

    def test_nothing_is_left_of_the_test_before(self):
        assert self.nsq_outbox == []

    def test_forgets_the_commit(self):
        with transaction.atomic():
            publish("orders", b"1")
            publish("orders", b"2")
        self.assertPublished("orders")

    def test_is_wrong(self):
        self.assertPublished("orders")


class Simple(NSQTestMixin, SimpleTestCase):
    __test__ = False

    def test_now(self):
        publish("orders", b"1", when="now")
        self.assertPublished("orders", body=b"1")


def run(case: unittest.TestCase) -> str:
    result = unittest.TestResult()
    unittest.TestSuite([case]).run(result)
    return "".join(text for _, text in result.failures + result.errors)


@pytest.mark.parametrize("name", ["test_published", "test_nothing_is_left_of_the_test_before"])
def test_it_tells_what_was_published(recorded, name):
    publish("orders", b"of another test")
    assert run(Example(name)) == ""


def test_a_test_without_a_database(recorded):
    assert run(Simple("test_now")) == ""


def test_a_commit_that_was_forgotten_is_named(recorded):
    text = run(Example("test_forgets_the_commit"))
    assert "2 wait for a commit" in text
    assert "captureOnCommitCallbacks(execute=True)" in text


def test_a_failure_is_one_of_an_assertion(recorded):
    text = run(Example("test_is_wrong"))
    assert "nothing was published" in text
    assert "wait for a commit" not in text
    assert outbox == []
