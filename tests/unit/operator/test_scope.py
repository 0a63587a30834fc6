"""Which namespaces are served, and where the Lease is, by what was typed."""

import pytest

from quorate_operator.kube.scope import Scope, make_scope


@pytest.mark.parametrize(
    ("named", "everywhere", "lease", "made"),
    [
        ([], False, "", Scope(("own",), "own")),
        (["shop"], False, "", Scope(("shop",), "shop")),
        (["shop"], False, "system", Scope(("shop",), "system")),
        (["shop", "bank", "shop"], False, "", Scope(("shop", "bank"), "own")),
        ([], True, "", Scope((), "own")),
        ([], True, "system", Scope((), "system")),
    ],
)
def test_the_lease_is_beside_the_only_one_and_else_in_the_operators_own(
    named: list[str], everywhere: bool, lease: str, made: Scope
) -> None:
    assert make_scope(named, everywhere, lease, "own") == made


def test_all_namespaces_are_one_place_and_a_list_has_one_for_each() -> None:
    everything, two = Scope((), "own"), Scope(("shop", "bank"), "own")

    assert (everything.places, everything.place_of("shop")) == (("",), "")
    assert (two.places, two.place_of("bank")) == (("shop", "bank"), "bank")
    assert (str(everything), str(two)) == ("all namespaces", "namespaces shop, bank")
