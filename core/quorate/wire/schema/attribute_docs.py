"""The docstrings of a model's fields, which schemas show.

pydantic can keep them (`use_attribute_docstrings`), but reads the source of every model for that in
every process, which takes 40 ms of CPU.  Only who writes the CRDs needs them.
"""

import ast
import functools
import inspect
import textwrap

from pydantic import BaseModel


def attribute_docs(model: type[BaseModel]) -> dict[str, str]:
    """Field -> its docstring, also of fields that are inherited."""
    found: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if issubclass(each, BaseModel) and each is not BaseModel:
            found |= _own_docs(each)
    return found


@functools.cache
def _own_docs(model: type[BaseModel]) -> dict[str, str]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(definition, ast.ClassDef)
    found: dict[str, str] = {}
    for field, doc in zip(definition.body, definition.body[1:], strict=False):
        match field, doc:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = inspect.cleandoc(text)
            case _:
                pass
    return found
