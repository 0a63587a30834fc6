"""The API group of the custom resources, and the names that their objects may have.

They are apart from the models, which take long to import: most commands of `quorate` need none.
"""

GROUP = "quorate.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
NAME_LENGTH_MAX = 50
"""Children of an object carry its name and a suffix; all of them must be valid names."""


def is_short_name(name: str, length_max: int = NAME_LENGTH_MAX) -> bool:
    """Whether `name` can name an object of ours and be part of its children's names."""
    if not 0 < len(name) <= length_max or name[0] == "-" or name[-1] == "-":
        return False
    return all(sign in "abcdefghijklmnopqrstuvwxyz0123456789-" for sign in name)
