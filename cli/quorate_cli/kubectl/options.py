"""Options of `kubectl quorate` that say which API server, namespace and operator are meant."""

import shlex
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import typer

KubeconfigOption = Annotated[
    str, typer.Option("--kubeconfig", help="Default: $KUBECONFIG, else ~/.kube/config.")
]
ContextOption = Annotated[str, typer.Option("--context", help="Default: the current context.")]
NamespaceOption = Annotated[
    str, typer.Option("--namespace", "-n", help="Default: the namespace of the context.")
]
OperatorOption = Annotated[
    str,
    typer.Option(
        "--operator-namespace", help="Namespace of the operator. Default: the same, else any."
    ),
]


class Place(NamedTuple):
    """The API server, namespace and operator that options of the command line name."""

    kubeconfig: str
    context: str
    namespace: str
    operator_namespace: str

    @property
    def options(self) -> list[str]:
        """The same as options of a command line."""
        names = ("--kubeconfig", "--context", "--namespace", "--operator-namespace")
        given = zip(names, self, strict=True)
        return [word for name, value in given if value for word in (name, value)]

    @property
    def words(self) -> str:
        """The options to write behind a command of `kubectl quorate`, quoted for a shell."""
        return shell_words(self.options)

    @property
    def kubectl_words(self) -> str:
        """The same behind a command of kubectl itself, which has no option for the operator."""
        return self._replace(operator_namespace="").words


def shell_words(options: Sequence[str]) -> str:
    """Return options as a shell reads them, each behind a space."""
    return "".join(f" {shlex.quote(each)}" for each in options)
