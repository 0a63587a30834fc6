"""Which of the archives that apt knows the base of the images comes from."""

import pytest

from kept_builds import BuildError
from quorate_images.base import choose_archive

SECURITY = "http://deb.debian.org/debian-security/\tDebian\tDebian-Security\tmain"
VENDOR = "https://packages.example/apt\tExample\tExample\tmain"
MIRROR = "http://mirror.example/pub/debian/\tDebian\tDebian\tmain"
CONTRIB = "http://other.example/debian/\tDebian\tDebian\tcontrib"


def test_the_archive_of_debian_is_taken_wherever_it_stands_in_the_list() -> None:
    listed = "\n".join([VENDOR, SECURITY, CONTRIB, MIRROR])

    assert choose_archive(listed) == "http://mirror.example/pub/debian/"


def test_before_apt_has_fetched_anything_the_address_tells() -> None:
    listed = "\n".join(
        [
            "https://packages.example/apt\t\t\tmain",
            "http://deb.debian.org/debian-security/\t\t\tmain",
            "http://deb.debian.org/debian/\t\t\tmain",
        ]
    )

    assert choose_archive(listed) == "http://deb.debian.org/debian/"


@pytest.mark.parametrize("listed", ["", "\n".join([VENDOR, SECURITY])])
def test_without_one_the_way_out_is_told(listed: str) -> None:
    with pytest.raises(BuildError, match="apt knows no archive of Debian"):
        choose_archive(listed)
