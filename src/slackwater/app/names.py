"""Names and texts in SQL: the only place where either is put into quotes."""

from __future__ import annotations

from collections.abc import Collection


def quoted(name: str) -> str:
    """Quote a column's name for Spark SQL, whatever signs are in it.

    >>> quoted("views__n"), quoted("a`b")
    ('`views__n`', '`a``b`')
    """
    return "`" + name.replace("`", "``") + "`"


def sql_text(text: str) -> str:
    r"""Write a SQL string literal.

    >>> sql_text("it's")
    "'it\\'s'"
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def argument_sql(text: str, columns: Collection[str]) -> str:
    """Write as SQL what is a column's name or an expression: it is the name where there is one.

    >>> argument_sql("unit price", ["unit price"]), argument_sql("price * 2", ["price"])
    ('`unit price`', 'price * 2')
    """
    return quoted(text) if text in columns else text
