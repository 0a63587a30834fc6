"""`make images`: builds the images of the Dockerfile, and says what they are called."""

import sys
import time

from kept_builds import BuildError
from quorate_images.build import TARGETS, build_image
from quorate_images.storage import can_have_images


def main() -> int:
    """Exit code 1 when the machine cannot build them, or a step of the build failed."""
    if not can_have_images():
        print(
            "make images: needs root and the programs buildah, debootstrap and runc; elsewhere:"
            " docker build --target agent .",
            file=sys.stderr,
        )
        return 1
    began = time.monotonic()

    def say(what: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {what}", flush=True)

    for target in TARGETS:
        try:
            image = build_image(target, say)
        except BuildError as error:
            print(f"make images: {error}", file=sys.stderr)
            return 1
        print(f"{target:24} {image.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
