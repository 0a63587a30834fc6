"""A user that nobody chose: pods of the namespace get one as they are made, as OpenShift does it.

No image has an entry of passwd for it.  Executors and those who lead them keep their user, which
has an entry: Java of several pods needs one.
"""

import json

from quorate_nodes.cluster import NodeCluster
from quorate_operator.names import DRIVER_ACCOUNT

USER = 1_000_680_000
_NAME = "any-user"
_GROUP = "admissionregistration.k8s.io"
_ALONE = (
    f"object.spec.?serviceAccountName.orValue('') != '{DRIVER_ACCOUNT}' &&"
    " object.metadata.?labels[?'app.kubernetes.io/component'].orValue('') != 'executor'"
)
_CHANGE = "Object{spec: Object.spec{securityContext: Object.spec.securityContext{runAsUser: %d}}}"


def give_pods_any_user(nodes: NodeCluster, namespace: str) -> None:
    """From a moment later on; the pods' group is 0 then, as no image has one for this user."""
    pods = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
    }
    policy = {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": _NAME},
        "spec": {
            "matchConstraints": {"resourceRules": [pods]},
            "matchConditions": [{"name": "alone", "expression": _ALONE}],
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "mutations": [
                {
                    "patchType": "ApplyConfiguration",
                    "applyConfiguration": {"expression": _CHANGE % USER},
                }
            ],
        },
    }
    here = {"kubernetes.io/metadata.name": namespace}
    binding = {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": _NAME},
        "spec": {
            "policyName": _NAME,
            "matchResources": {"namespaceSelector": {"matchLabels": here}},
        },
    }
    declared = {"apiVersion": "v1", "kind": "List", "items": [policy, binding]}
    nodes.kubectl("apply", "--filename=-", stdin=json.dumps(declared))
