"""Tokens, sizes and JSON, before anything is understood."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albertine.serving.limits import (
    ServingLimits,
    authorized,
    is_loopback,
    read_body,
    read_json,
    token_number,
)
from albertine.tasks.http.errors import HttpError

LIMITS = ServingLimits(body_bytes=1000)


def body(
    parts: int,
    size: int,
    headers: dict[str, str] | None = None,
    wait: float = 0.0,
    limits: ServingLimits = LIMITS,
) -> tuple[int, HttpError | None]:
    """How many parts were read before it ended or was refused."""
    read = 0

    async def stream() -> AsyncIterator[bytes]:
        nonlocal read
        for _ in range(parts):
            read += 1
            await asyncio.sleep(wait)
            yield b"x" * size

    try:
        asyncio.run(read_body(stream(), headers or {}, limits))
    except HttpError as error:
        return read, error
    return read, None


def test_a_body_is_bounded_while_it_is_read() -> None:
    """Catches: a body that is read whole before its size is looked at; trust in Content-Length."""
    assert body(10, 100) == (10, None)
    read, error = body(1_000_000, 100, {"content-length": "10"})
    assert read == 11 and error is not None and (error.status, error.code) == (413, "body_too_large")
    read, error = body(1, 1, {"content-length": "1001"})
    assert read == 0 and error is not None and error.status == 413
    read, error = body(1, 1, {"content-length": "9" * 5000})
    assert read == 0 and error is not None and error.status == 413


def test_too_many_small_chunks_are_refused() -> None:
    read, error = body(70_000, 1, limits=ServingLimits())
    assert read == 65_537 and error is not None and error.status == 413


def test_slow_and_compressed_bodies() -> None:
    _, error = body(100, 1, wait=0.05, limits=ServingLimits(body_seconds=0.2))
    assert error is not None and (error.status, error.code) == (408, "slow_body")
    assert error.headers["connection"] == "close"
    _, error = body(1, 1, {"content-encoding": "gzip"})
    assert error is not None and (error.status, error.code) == (400, "compressed_body")


@pytest.mark.parametrize(
    ("given", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff\xfe{}", 400),
        (b'{"inputs": "\xed\xa0\x80"}', 400),
        (b'{"inputs": NaN}', 400),
        (b'{"inputs": -Infinity}', 400),
        (b'{"a": 1, "a": 2}', 400),
        (b'{"a": {"b": 1, "b": 1}}', 400),
        (b'{"a": ' + b"9" * 5000 + b"}", 400),
        (b"[" * 100_000, 400),
        (b'{"a":' * 100_000, 400),
        (b'{"inputs": "\\ud800"}', 422),
        (b'{"inputs": ["a", {"b": "\\uDFFF b"}]}', 422),
        (b'{"\\ud83d": 1}', 422),
        (b"{" + b",".join(b'"%d": 1' % i for i in range(101)) + b"}", 422),
        (b"[]", 422),
        (b'"text"', 422),
        (b"null", 422),
    ],
    ids=lambda one: str(one)[:24],
)
def test_what_is_no_object(given: bytes, status: int) -> None:
    """Catches: NaN that is a number; the last of two equal keys that wins; a RecursionError that escapes;
    half a character in a list or a key; any number of fields."""
    with pytest.raises(HttpError) as error:
        read_json(given)
    assert error.value.status == status


def test_whole_characters_may_be_escaped() -> None:
    """Catches: every escape of a surrogate taken for a half, written-out ones too."""
    assert read_json(b'{"inputs": "\\ud83d\\ude00"}') == {"inputs": "\U0001f600"}
    assert read_json(b'{"inputs": "\\\\ud800"}') == {"inputs": "\\ud800"}


@given(st.binary(max_size=200))
def test_any_bytes_are_an_object_or_refused(given: bytes) -> None:
    try:
        assert isinstance(read_json(given), dict)
    except HttpError as error:
        assert error.status in (400, 422)


@pytest.mark.parametrize(
    ("header", "passes"),
    [
        ("Bearer s3cret", True),
        ("bearer  s3cret ", True),
        ("s3cret", True),
        (None, False),
        ("", False),
        ("Bearer", False),
        ("Bearer s3cre", False),
        ("Bearer s3crets", False),
        ("Basic s3cret", False),
        ("Bearer \udcff", False),
    ],
)
def test_the_token_in_both_forms(header: str | None, passes: bool) -> None:
    """Catches: LlamaIndex's bare token refused; an empty header that passes."""
    assert authorized(header, b"s3cret") is passes
    assert authorized(header, None)


def test_one_of_several_tokens() -> None:
    every = "first\nsecond\ngehéim".encode()
    assert [token_number(f"Bearer {one}", every) for one in ("second", "first", "gehéim")] == [1, 0, 2]
    for wrong in ("Bearer first\nsecond", "Bearer ", "third", None):
        assert token_number(wrong, every) is None and not authorized(wrong, every)


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_token_beyond_ascii(encoding: str) -> None:
    """Of the header's bytes Starlette makes text as if they were Latin-1. Catches: the two forms in which
    clients send such a token, of which only one passes."""
    header = "Bearer gehéim".encode(encoding).decode("latin-1")
    assert authorized(header, "gehéim".encode())
    assert not authorized(header, b"geheim")


def test_which_addresses_are_ours_alone() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.0.1", "example.org", "")))
