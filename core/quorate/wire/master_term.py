"""The custom resource MasterTerm: the number of a cluster's newest mastership."""

from typing import Annotated, ClassVar

from pydantic import Field

from quorate.wire.schema.resource import Integer, Part, Resource, Rule
from quorate.wire.zone import ObjectName


class MasterTermSpec(Part):
    """Written by the operator only."""

    cluster_ref: ObjectName
    term: Annotated[Integer, Field(ge=1)]
    """The highest masterTerm that was taken."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "term",
            "self.term >= oldSelf.term",
            "master terms never decrease, and agents refuse a lower one: write a higher term",
            lambda new, old: new.term >= old.term,
        ),
    )


class MasterTerm(Resource):
    """Counts how often the mastership of one StorageCluster was taken; it has the cluster's name
    and outlives it.  Written by the operator; users only read it."""

    plural = "masterterms"
    short_name = "mt"
    printer_columns = (
        ("Cluster", "string", ".spec.clusterRef.name"),
        ("Term", "integer", ".spec.term"),
        ("Age", "date", ".metadata.creationTimestamp"),
    )

    spec: MasterTermSpec
