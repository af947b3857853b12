"""A public key has one text, and every other text is refused by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbo.message.signed import _WEAK, is_weak, key_text, parse_key

KEY = bytes(range(32))
TEXT = "ed25519:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"


def test_the_text_never_changes() -> None:
    assert key_text(KEY) == TEXT
    assert key_text(bytes([255] * 32)) == f"ed25519:{'_' * 42}8"


@given(st.binary(min_size=32, max_size=32).filter(lambda key: not is_weak(key)))
def test_a_key_comes_back(key: bytes) -> None:
    assert parse_key(key_text(key)) == key


@pytest.mark.parametrize("sign", [0x00, 0x80])
@pytest.mark.parametrize("start", ["0000", "0100", "26e8", "c717", "ecff", "edff", "eeff"])
def test_a_key_with_which_anyone_can_sign_is_refused(start: str, sign: int) -> None:
    weak = next(key for key in _WEAK if key.hex().startswith(start))
    text = key_text(weak[:31] + bytes([weak[31] | sign]))
    with pytest.raises(ValueError, match="anyone can sign with it"):
        parse_key(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        TEXT.upper(),
        TEXT[:-1],
        TEXT + "=",
        TEXT[:-1] + "9",  # the same bytes, but bits that no byte needs are set
        TEXT.replace("Q", "é"),
        f"{TEXT}\n",
        "rsa:" + TEXT,
    ],
)
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"the key is .*, expected 'ed25519:' and 43") as caught:
        parse_key(text)
    assert repr(text)[:80] in str(caught.value)
