"""Markdown of a language model as a tree, for channels that each write it in their own way."""

from adapters.markdown.parse import DEEPEST, LONGEST, parse
from adapters.markdown.split import Weight, split
from adapters.markdown.tree import (
    Block,
    Code,
    Heading,
    Item,
    Link,
    Listing,
    Mark,
    Paragraph,
    Quote,
    Rule,
    Span,
    Style,
    Table,
)
from adapters.markdown.write import write

__all__ = [
    "DEEPEST",
    "LONGEST",
    "Block",
    "Code",
    "Heading",
    "Item",
    "Link",
    "Listing",
    "Mark",
    "Paragraph",
    "Quote",
    "Rule",
    "Span",
    "Style",
    "Table",
    "Weight",
    "parse",
    "split",
    "write",
]
