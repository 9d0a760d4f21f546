"""Mutations of texts token by token: words, numbers, strings and signs."""

from __future__ import annotations

import re
from random import Random

_TOKEN = re.compile(r'"[^"\n]*"|\'[^\'\n]*\'|[\w.+-]+|\s+|.', re.DOTALL)
_NUMBER = re.compile(r"[+-]?[\d.]+(e[+-]?\d+)?", re.IGNORECASE)

NUMBERS = [
    *("0", "-1", "1", "2", "3", "7", "1000", "30000", "20000000", "2147483647", "2147483648", "-2147483648"),
    *("4294967295", "4294967296", "9223372036854775807", "18446744073709551615", "-9223372036854775808"),
    *("1e38", "1e39", "-1e400", "nan", "inf", "-inf", "1e-45", "0.5", "0x10", "017", "1.5", ".", "9" * 30, "9" * 5000),
    *("\u0663", "\u00b2", "1_0", "+3", "--1", "1e5", "00", "-0"),
]
_STRINGS = [
    *(
        '""',
        '"x"',
        '"\\n"',
        '"\\000"',
        '"\\377\\376"',
        '"%s%n{}"',
        '"/"',
        '"."',
        '"../.."',
        '"data"',
        '"label"',
        '"\x1b[31m"',
    ),
    *(f'"{"a" * 300}"', f'"{"/a" * 3000}"', '"\u202e\U0001f600"', '"a/b"', '"\udcff"', '"\x00"', '"<&>"', '"a" "b"'),
]
_PUNCTUATION = [
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    ";",
    "<",
    ">",
    "#",
    '"',
    "\\",
    "-",
    "\x00",
    "\ufeff",
    "\r",
    "\x0b",
    "\u2028",
    "/",
]


def split_tokens(text: str) -> list[str]:
    """Split a text into tokens, white space among them."""
    return _TOKEN.findall(text)


def change_tokens(rng: Random, content: bytes, words: list[str]) -> bytes:
    """Change a few tokens; `words` are those that the format knows."""
    tokens = split_tokens(content.decode("utf-8", "surrogateescape"))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        _change_tokens(rng, tokens, words)
    return "".join(tokens).encode("utf-8", "surrogateescape" if rng.random() < 0.5 else "surrogatepass")


def _change_tokens(rng: Random, tokens: list[str], words: list[str]) -> None:
    indices = [i for i, token in enumerate(tokens) if not token.isspace()]
    if not indices:
        tokens.append(rng.choice(words))
        return
    index = rng.choice(indices)
    token, choice = tokens[index], rng.random()
    if choice < 0.6:
        tokens[index] = _draw_replacement(rng, token, tokens, words)
    elif choice < 0.7:
        del tokens[index]
    elif choice < 0.8:
        begin, end = sorted((index, min(len(tokens), index + rng.choice((2, 5, 20, 100)))))
        tokens[begin:end] = tokens[begin:end] * rng.choice((0, 2, 2, 3))
    elif choice < 0.9:
        tokens.insert(index, rng.choice([*_PUNCTUATION, " " + rng.choice(words) + " ", rng.choice(NUMBERS) + " "]))
    elif choice < 0.95:
        begin, end = sorted((index, rng.choice(indices)))
        piece = tokens[begin:end]
        del tokens[begin:end]
        target = rng.randrange(len(tokens) + 1)
        tokens[target:target] = piece
    elif choice < 0.97:
        tokens[index] = token * rng.choice((2, 50, 5000))
    elif choice < 0.98:
        del tokens[index:]
    else:
        depth = rng.choice((3, 99, 101, 3000))
        opening, closing = rng.choice((("{", "}"), ("[", "]"), (f"{rng.choice(words)} {{ ", "}"), ("<", ">")))
        tokens[index] = opening * depth + token + closing * rng.choice((depth, 0, 1))


def _draw_replacement(rng: Random, token: str, tokens: list[str], words: list[str]) -> str:
    """Another token of the same kind, mostly."""
    if rng.random() < 0.1:
        return rng.choice([*NUMBERS, *_STRINGS, *_PUNCTUATION, *words])
    if _NUMBER.fullmatch(token):
        return rng.choice(NUMBERS)
    if token[:1] in ('"', "'"):
        strings = [t for t in tokens if t[:1] == '"']
        return rng.choice(
            [*_STRINGS, *strings, *strings, *(f'"{word}"' for word in rng.sample(words, min(9, len(words))))]
        )
    return rng.choice(words) if token[:1].isalpha() else rng.choice(_PUNCTUATION)
