"""Options of `kubectl quorate` that say which API server, namespace and operator are meant."""

from typing import Annotated

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
