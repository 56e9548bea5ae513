"""The SQL filter, its event streams subset, and message selectors: tokens to a tree, by recursive descent.

    predicate   = conjunction { "OR" conjunction }
    conjunction = negation { "AND" negation }
    negation    = "NOT" negation | condition
    condition   = sum [ ( "=" | "<>" | "!=" | "<" | "<=" | ">" | ">=" ) sum
                      | [ "NOT" ] "LIKE" string [ "ESCAPE" string ]
                      | [ "NOT" ] "IN" "(" sum { "," sum } ")"
                      | [ "NOT" ] "BETWEEN" sum "AND" sum            (selectors)
                      | "IS" [ "NOT" ] "NULL" ]
    sum         = product { ( "+" | "-" ) product }
    product     = signed { ( "*" | "/" | "%" ) signed }
    signed      = ( "+" | "-" ) signed | primary
    primary     = constant | field | "(" predicate ")"
                | "EXISTS" "(" field ")"                             (SQL)
                | name "(" [ sum { "," sum } ] ")"                   (SQL: a function)
    constant    = string | integer | decimal | "TRUE" | "FALSE"
                | binary | "INF" | "NAN"                             (SQL)

    field       = [ section "." ] ( identifier | "[" any "]" )       (SQL)
                | identifier                                         (selectors: `functions`)

The event streams subset (event streams 5.2.2) keeps of it, with section = "delivery_annotations" or "d":

    predicate   = simple { ( "AND" | "OR" ) simple }                 (AND binds more tightly)
    simple      = "TRUE" | "FALSE" | operand comparison operand
    operand     = string | [ "+" | "-" ] integer | field
"""

from __future__ import annotations

import math
from collections.abc import Callable

from . import syntax
from .comparisons import comparison, folded
from .context import Context, InvalidFilter
from .fields import APPLICATION_PROPERTIES, DELIVERY_ANNOTATIONS, WELL_KNOWN, well_known
from .functions import FUNCTIONS, selector_field
from .lexer import SELECTOR, SQL, Language, Token, TokenKind, tokens
from .syntax import Constant, Node
from .values import Pattern

_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
_CONSTANTS = {"TRUE": True, "FALSE": False, "INF": math.inf, "NAN": math.nan}


def parse_sql(text: str, context: Context) -> Node:
    """The predicate of an SQL filter (FILTEX 6). Raises InvalidFilter with the position of the error."""
    return _SqlParser(text, context).parse()


def parse_event_streams_sql(text: str, context: Context) -> Node:
    """The predicate of an event streams SQL filter (event streams 5.2.2). Raises InvalidFilter."""
    return _EventStreamsParser(text, context).parse()


def parse_selector(text: str, context: Context) -> Node:
    """The predicate of a message selector (JMS 3.8.1). Raises InvalidFilter. A blank selector is true."""
    return _SelectorParser(text, context).parse() if text.strip() else Constant(True)


class _Parser:
    """The common grammar. Each method consumes the tokens of the production in its name."""

    language: Language

    def __init__(self, text: str, context: Context) -> None:
        self._context = context
        self._tokens = tokens(text, self.language, context)
        self._at = 0

    def parse(self) -> Node:
        """Parse the whole text as a predicate."""
        found = self._predicate()
        if self._token.kind is not TokenKind.END:
            raise self._unexpected("an operator, or the end")
        return found

    # Tokens

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._tokens[self._at]
        self._at += token.kind is not TokenKind.END
        return token

    def _took(self, *spellings: str) -> Token | None:
        return self._take() if self._token.is_(*spellings) else None

    def _expect(self, spelling: str) -> Token:
        if not self._token.is_(spelling):
            raise self._unexpected(repr(spelling) if len(spelling) == 1 else spelling)
        return self._take()

    def _unexpected(self, expected: str, token: Token | None = None) -> InvalidFilter:
        token = token or self._token
        return self._context.fault(f"expected {expected}, got {token}", token.position)

    # Predicates

    def _predicate(self) -> Node:
        return self._chain(self._conjunction, "OR", syntax.Or)

    def _conjunction(self) -> Node:
        return self._chain(self._negation, "AND", syntax.And)

    def _chain(
        self, part: Callable[[], Node], joint: str, node: Callable[[tuple[Node, ...]], syntax.And | syntax.Or]
    ) -> Node:
        parts = [part()]
        while self._took(joint):
            parts.append(part())
        return parts[0] if len(parts) == 1 else node(tuple(parts))

    def _negation(self) -> Node:
        if token := self._took("NOT"):
            with self._context.nested(token.position):
                return syntax.Not(self._negation())
        return self._condition()

    def _condition(self) -> Node:
        left = self._sum()
        if operator := self._took(*_COMPARISONS):
            return self._comparison(operator, left, self._sum())
        if self._took("IS"):
            negated = self._took("NOT")
            self._expect("NULL")
            return _negated(syntax.IsNull(left), negated)
        negated = self._took("NOT")
        if self._took("LIKE"):
            return _negated(syntax.Like(left, self._pattern()), negated)
        if self._took("IN"):
            return _negated(syntax.In(left, self._items()), negated)
        if self._took("BETWEEN"):
            lowest = self._sum()
            self._expect("AND")
            bounds = folded(syntax.Compare(">=", left, lowest)), folded(syntax.Compare("<=", left, self._sum()))
            return _negated(syntax.And(bounds), negated)
        if negated:
            raise self._unexpected("LIKE, IN or BETWEEN" if "BETWEEN" in self.language.keywords else "LIKE or IN")
        return left

    def _comparison(self, operator: Token, left: Node, right: Node) -> Node:
        return comparison(str(operator.value), left, right, self._context.latest)

    def _pattern(self) -> Pattern:
        start, pattern, escape = self._token.position, self._string(), None
        if self._took("ESCAPE"):
            token = self._token
            escape = self._string()
            if len(escape) != 1:
                raise self._context.fault(f"expected an escape of one character, got {token}", token.position)
        try:
            found = Pattern(pattern, escape)
        except ValueError as error:
            raise self._context.fault(str(error), start) from None
        if found.is_search:
            self._context.spend_search(found, start)
        return found

    def _string(self) -> str:
        token = self._take()
        if token.kind is not TokenKind.CONSTANT or not isinstance(token.value, str):
            raise self._unexpected("a string constant", token)
        return token.value

    def _items(self) -> tuple[Node, ...]:
        opening = self._expect("(")
        items = self._list()
        if len(items) > self._context.limits.list_items_max:
            problem = f"{len(items)} items given, at most {self._context.limits.list_items_max} are allowed"
            raise self._context.fault(problem, opening.position)
        return items

    def _list(self) -> tuple[Node, ...]:
        """`sum { "," sum } ")"`"""
        items = [self._sum()]
        while self._took(","):
            items.append(self._sum())
        self._expect(")")
        return tuple(items)

    # Values

    def _sum(self) -> Node:
        return self._arithmetic(self._product, "+", "-")

    def _product(self) -> Node:
        return self._arithmetic(self._signed, "*", "/", "%")

    def _arithmetic(self, part: Callable[[], Node], *operators: str) -> Node:
        first, rest = part(), []
        while operator := self._took(*operators):
            rest.append((str(operator.value), part()))
        return folded(syntax.Arithmetic(first, tuple(rest))) if rest else first

    def _signed(self) -> Node:
        if token := self._took("+", "-"):
            with self._context.nested(token.position):
                sign = syntax.Sign(str(token.value), self._signed())
            return folded(sign)
        return self._primary()

    def _primary(self) -> Node:
        token = self._take()
        if token.kind is TokenKind.CONSTANT:
            return Constant(token.value)
        if token.is_("("):
            with self._context.nested(token.position):
                inner = self._predicate()
            self._expect(")")
            return inner
        if token.is_(*_CONSTANTS):
            return Constant(_CONSTANTS[str(token.value)])
        if token.is_("NULL"):
            raise self._context.fault("NULL cannot be compared; use IS NULL", token.position)
        return self._field_or_call(token)

    def _field_or_call(self, token: Token) -> Node:
        raise NotImplementedError


class _SqlParser(_Parser):
    language = SQL

    def _field_or_call(self, token: Token) -> Node:
        if token.is_("EXISTS"):
            self._expect("(")
            field = syntax.Exists(self._field(self._take()))
            self._expect(")")
            return field
        if token.kind is TokenKind.NAME and self._token.is_("("):
            return self._call(token)
        return self._field(token)

    def _field(self, token: Token) -> syntax.Field:
        if token.kind in (TokenKind.NAME, TokenKind.DELIMITED):
            return self._context.field(APPLICATION_PROPERTIES, str(token.value))
        if token.kind is not TokenKind.FIELD:
            raise self._unexpected("a field, a constant or '('", token)
        section, name = token.section, str(token.value)
        known = well_known(section, name)
        if known is None:
            problem = f"{section} has no field {name!r}; it has {', '.join(sorted(WELL_KNOWN[section]))}"
            raise self._context.fault(problem, token.position)
        return self._context.field(section, known)

    def _call(self, name: Token) -> Node:
        with self._context.nested(name.position):
            self._expect("(")
            arguments = () if self._took(")") else self._list()
        spelling = str(name.value).upper()
        if spelling == "UTC" and not arguments:
            return syntax.Now(self._context.attached_at)
        function = FUNCTIONS.get(spelling)
        if function is None and spelling != "UTC":
            return Constant(None)  # FILTEX: an unknown function is null
        allowed = range(function.arguments_min, function.arguments_max + 1) if function else range(1)
        if function is None or len(arguments) not in allowed:
            counts = " or ".join(map(str, allowed))
            raise self._context.fault(f"{spelling} takes {counts} arguments, got {len(arguments)}", name.position)
        self._context.spend(function.terms, name.position)
        return folded(syntax.Call(function, arguments))


class _EventStreamsParser(_SqlParser):
    """Refuses everything outside the subset, so that filters accepted here work on every other node."""

    def _negation(self) -> Node:
        if token := self._took("TRUE", "FALSE"):
            return Constant(_CONSTANTS[str(token.value)])
        left = self._operand()
        operator = self._take()
        if not operator.is_(*_COMPARISONS):
            raise self._unexpected(f"a comparison ({' '.join(_COMPARISONS)})", operator)
        return self._comparison(operator, left, self._operand())

    def _operand(self) -> Node:
        sign = self._took("+", "-")
        token = self._take()
        if token.kind is TokenKind.CONSTANT and isinstance(token.value, int):
            return Constant(-token.value if sign and sign.value == "-" else token.value)
        if sign is None and token.kind is TokenKind.CONSTANT and isinstance(token.value, str):
            return Constant(token.value)
        if sign is None and token.kind is TokenKind.FIELD and token.section == DELIVERY_ANNOTATIONS:
            return self._field(token)
        expected = "a string, an integer or a field d.event-streams-... (amqp:sql-filter supports more)"
        raise self._unexpected(expected, token)


class _SelectorParser(_Parser):
    language = SELECTOR

    def _field_or_call(self, token: Token) -> Node:
        if token.kind is not TokenKind.NAME:
            raise self._unexpected("an identifier, a literal or '('", token)
        if self._token.is_("("):
            raise self._context.fault(f"a selector cannot call functions, got {token}", token.position)
        try:
            return selector_field(str(token.value), self._context)
        except ValueError as error:
            raise self._context.fault(str(error), token.position) from None


def _negated(node: Node, negated: Token | None) -> Node:
    return syntax.Not(node) if negated else node
