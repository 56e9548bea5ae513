"""Converts the text of a filter to tokens, for the SQL filters and for message selectors.

One expression per language, with possessive repetitions only: any text is read only once.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from ...core.limits import show
from .context import Context
from .fields import APPLICATION_PROPERTIES, DELIVERY_ANNOTATIONS, FOOTER, HEADER, MESSAGE_ANNOTATIONS, PROPERTIES

INTEGER_MAX = 2**64 - 1

SECTIONS = {
    "header": HEADER,
    "h": HEADER,
    "footer": FOOTER,
    "f": FOOTER,
    "properties": PROPERTIES,
    "p": PROPERTIES,
    "application_properties": APPLICATION_PROPERTIES,
    "application-properties": APPLICATION_PROPERTIES,
    "a": APPLICATION_PROPERTIES,
    "delivery_annotations": DELIVERY_ANNOTATIONS,
    "delivery-annotations": DELIVERY_ANNOTATIONS,
    "d": DELIVERY_ANNOTATIONS,
    "message_annotations": MESSAGE_ANNOTATIONS,
    "message-annotations": MESSAGE_ANNOTATIONS,
    "m": MESSAGE_ANNOTATIONS,
}


class TokenKind(Enum):
    """The kinds of tokens, and the type of value that each has."""

    KEYWORD = "keyword"  # str, in capitals
    NAME = "name"  # str
    DELIMITED = "delimited identifier"  # str
    FIELD = "field"  # str, in a section
    CONSTANT = "constant"  # str, int, float, bytes
    OPERATOR = "operator"  # str
    END = "end"  # None


class Token(NamedTuple):
    """A token; `position` counts characters from 1. A field also has its section."""

    kind: TokenKind
    value: str | int | float | bytes | None
    position: int
    section: str = ""

    def is_(self, *spellings: str) -> bool:
        """Whether it is one of these operators or keywords."""
        return self.kind in (TokenKind.KEYWORD, TokenKind.OPERATOR) and self.value in spellings

    def __str__(self) -> str:
        if self.kind is TokenKind.END:
            return "the end"
        if self.kind is TokenKind.FIELD:
            return self.section + "." + str(self.value)
        return show(self.value) if self.kind is TokenKind.CONSTANT else str(self.value)


class Language(NamedTuple):
    """The lexical differences between the languages."""

    pattern: re.Pattern[str]
    keywords: frozenset[str]
    is_java: bool
    """Numbers are Java's: 0x is a number, a leading 0 octal, suffixes L, D, F."""


_SPACE = r"(?P<space>[ \t\r\n\f\v]++)"
_OPERATOR = r"(?P<operator><>|!=|<=|>=|[=<>+\-*/%(),])"
_NUMBER = r"(?P<number>(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?+)"
_HEX = r"(?P<hex>0[xX][0-9a-fA-F]*+)"
_MEMBER = r"(?P<member>(?:[^\W\d]|\$)[\w$-]*+)|\[(?P<bracketed>(?:[^\]]|\]\])++)\]"
_FIELD = rf"(?P<field>(?P<section>{'|'.join(SECTIONS)})\.(?:{_MEMBER}))"
_DELIMITED = r"\[(?P<delimited>(?:[^\]]|\]\])++)\]"
_SQL_NAME = r"(?P<name>(?:[^\W\d]|\$)[\w$]*+)"
_SQL_TEXT = r"""(?P<text>'(?:[^']|'')*+'|"(?:[^"]|"")*+")"""
_JAVA_NAME = r"(?P<name>(?:[^\W\d]|\$)[\w$.]*+)"
_JAVA_TEXT = r"(?P<text>'(?:[^']|'')*+')"
_JAVA_SUFFIX = r"(?P<suffix>[lLdDfF]?+)"


def _pattern(*parts: str) -> re.Pattern[str]:
    return re.compile("|".join(parts))


SQL = Language(
    _pattern(_SPACE, _FIELD, _SQL_NAME, _DELIMITED, _SQL_TEXT, _HEX, _NUMBER, _OPERATOR),
    frozenset(["AND", "OR", "NOT", "LIKE", "ESCAPE", "IN", "IS", "NULL", "EXISTS", "TRUE", "FALSE", "INF", "NAN"]),
    is_java=False,
)
SELECTOR = Language(
    _pattern(_SPACE, _JAVA_NAME, _JAVA_TEXT, rf"(?:{_HEX}|{_NUMBER}){_JAVA_SUFFIX}", _OPERATOR),
    frozenset(["AND", "OR", "NOT", "BETWEEN", "LIKE", "ESCAPE", "IN", "IS", "NULL", "TRUE", "FALSE"]),
    is_java=True,
)


def tokens(text: str, language: Language, context: Context) -> list[Token]:
    """The tokens of a text, ending with END. Raises InvalidFilter."""
    allowed = context.limits.expression_chars_max
    if len(text) > allowed:
        raise context.fault(f"{len(text)} characters given, at most {allowed} are allowed", allowed + 1)
    found: list[Token] = []
    at = 0
    while at < len(text):
        match = language.pattern.match(text, at)
        if match is None:
            raise context.fault(_misfit(text, at), at + 1)
        if match["space"] is None:
            try:
                found.append(_token(match, language, at + 1))
            except ValueError as error:
                raise context.fault(str(error), at + 1) from None
            context.spend(1, at + 1)
        at = match.end()
    found.append(Token(TokenKind.END, None, len(text) + 1))
    return found


def _token(match: re.Match[str], language: Language, position: int) -> Token:
    groups = match.groupdict()
    if (operator := groups["operator"]) is not None:
        return Token(TokenKind.OPERATOR, "<>" if operator == "!=" else operator, position)
    if groups.get("field") is not None:
        name = groups["member"] or groups["bracketed"].replace("]]", "]")
        return Token(TokenKind.FIELD, name, position, SECTIONS[groups["section"]])
    if (name := groups["name"]) is not None:
        keyword = name.upper()
        is_keyword = name.isascii() and keyword in language.keywords
        return Token(TokenKind.KEYWORD, keyword, position) if is_keyword else Token(TokenKind.NAME, name, position)
    if groups.get("delimited") is not None:
        return Token(TokenKind.DELIMITED, groups["delimited"].replace("]]", "]"), position)
    if (text := groups["text"]) is not None:
        return Token(TokenKind.CONSTANT, text[1:-1].replace(text[0] * 2, text[0]), position)
    rest = match.string[match.end() : match.end() + 1]
    if rest and (rest.isalnum() or rest in "_$."):
        raise ValueError(f"{show(match.string[match.start() : match.end() + 1])} is not a number")
    if groups["hex"] is not None:
        return Token(TokenKind.CONSTANT, _hex(groups["hex"], groups.get("suffix"), language), position)
    return Token(TokenKind.CONSTANT, _number(groups["number"], groups.get("suffix") or "", language), position)


def _hex(text: str, suffix: str | None, language: Language) -> int | bytes:
    digits = text[2:]
    if not language.is_java:
        if len(digits) % 2:
            raise ValueError(f"a binary literal needs two hexadecimal digits per byte, got {len(digits)}")
        return bytes.fromhex(digits)
    if not digits or suffix not in ("", "l", "L"):
        raise ValueError(f"{text}{suffix} is not a number")
    return _in_range(int(digits, 16), text)


def _number(text: str, suffix: str, language: Language) -> int | float:
    is_whole = text.isdigit()
    if suffix in ("d", "D", "f", "F") or not is_whole:
        if suffix in ("l", "L"):
            raise ValueError(f"{text}{suffix} is not a number")
        value = float(text)
        if value == float("inf"):
            raise ValueError(f"{show(text)} is too large for a double")
        return value
    if len(text) > 40:
        return _in_range(INTEGER_MAX + 1, text)
    if language.is_java and text[0] == "0" and len(text) > 1:
        if "8" in text or "9" in text:
            raise ValueError(f"{text} starts with 0 (octal) but has other digits")
        return _in_range(int(text, 8), text)
    return _in_range(int(text), text)


def _in_range(value: int, text: str) -> int:
    if value > INTEGER_MAX:
        raise ValueError(f"{show(text)} is above {INTEGER_MAX}, the largest integer")
    return value


def _misfit(text: str, at: int) -> str:
    char = text[at]
    if char in "'\"":
        return "unterminated string"
    if char == "[":
        return "unterminated or empty delimited identifier"
    if char == "." and at and (text[at - 1].isalnum() or text[at - 1] in "_$]"):
        return f"expected SECTION.FIELD with a section of {', '.join(SECTIONS)}; for a name with a dot write [a.b]"
    return f"{show(char)} is not expected here"
